//! SASL's mechanism DIGEST-MD5 (RFC 2831), with which ZooKeeper's servers ask for a user's password.

use std::fmt;

use snafu::{OptionExt, Snafu, ensure};

use crate::coordination::digest::md5;

/// Whom a session is of: a user that the servers know from the section `Server` of their JAAS file.
#[derive(Clone, PartialEq, Eq)]
pub struct SaslIdentity {
    pub user: String,
    pub password: String,
}

/// One exchange with one server. The server begins.
pub(super) struct Exchange<'a> {
    identity: &'a SaslIdentity,
    digest_uri: &'static str,
    client_nonce: String,
    /// What a server says that knows the password as well.
    proof: Option<String>,
}

#[derive(Debug, PartialEq, Eq, Snafu)]
pub(super) enum SaslError {
    #[snafu(display("it has no users: its JAAS file has no section Server"))]
    NoChallenge,
    #[snafu(display("it asks in another way than DIGEST-MD5 does"))]
    Malformed,
    #[snafu(display("it does not know the password"))]
    NotProven,
}

/// The service and the host name that ZooKeeper uses in place of a server's own.
const DIGEST_URI: &str = "zookeeper/zk-sasl-md5";
const MAX_BUFFER_BYTES: usize = 65_536;

impl<'a> Exchange<'a> {
    pub fn new(identity: &'a SaslIdentity, client_nonce: String) -> Exchange<'a> {
        Exchange { identity, digest_uri: DIGEST_URI, client_nonce, proof: None }
    }

    /// Answers the server's challenge.
    pub fn answer(&mut self, challenge: &[u8]) -> Result<String, SaslError> {
        ensure!(!challenge.is_empty(), NoChallengeSnafu);
        let directives = parse(challenge).context(MalformedSnafu)?;
        let find = |name| directives.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
        let nonce = find("nonce").context(MalformedSnafu)?;
        let qualities = find("qop").unwrap_or("auth");
        ensure!(qualities.split(',').any(|quality| quality.trim() == "auth"), MalformedSnafu);
        ensure!(find("algorithm") == Some("md5-sess"), MalformedSnafu);
        let realm = find("realm").unwrap_or("");
        let response = self.response(nonce, realm, "AUTHENTICATE:");
        self.proof = Some(self.response(nonce, realm, ":"));
        let user = quoted(&self.identity.user);
        let (realm, nonce, client_nonce) = (quoted(realm), quoted(nonce), quoted(&self.client_nonce));
        let uri = quoted(self.digest_uri);
        Ok(format!(
            "charset=utf-8,username={user},realm={realm},nonce={nonce},nc=00000001,cnonce={client_nonce},\
             digest-uri={uri},maxbuf={MAX_BUFFER_BYTES},response={response},qop=auth"
        ))
    }

    /// Looks at what the server says last.
    pub fn finish(&self, last: &[u8]) -> Result<(), SaslError> {
        let directives = parse(last).context(MalformedSnafu)?;
        let proof = directives.into_iter().find(|(name, _)| name == "rspauth").map(|(_, value)| value);
        ensure!(proof.is_some() && proof == self.proof, NotProvenSnafu);
        Ok(())
    }

    fn response(&self, nonce: &str, realm: &str, method: &str) -> String {
        let user =
            [&*narrow(&self.identity.user), b":", &*narrow(realm), b":", &*narrow(&self.identity.password)];
        let mut session = md5(&user.concat()).to_vec();
        session.extend_from_slice(format!(":{nonce}:{}", self.client_nonce).as_bytes());
        let action = hex(&md5(format!("{method}{}", self.digest_uri).as_bytes()));
        let whole = format!("{}:{nonce}:00000001:{}:auth:{action}", hex(&md5(&session)), self.client_nonce);
        hex(&md5(whole.as_bytes()))
    }
}

impl fmt::Debug for SaslIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SaslIdentity").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Names and passwords are hashed in ISO 8859-1 where that can hold them.
fn narrow(text: &str) -> Vec<u8> {
    let narrow: Option<Vec<u8>> = text.chars().map(|letter| u8::try_from(u32::from(letter)).ok()).collect();
    narrow.unwrap_or_else(|| text.as_bytes().to_vec())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// `name=value` pairs between commas, values with or without quotes; names in lower case.
fn parse(text: &[u8]) -> Option<Vec<(String, String)>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut directives = Vec::new();
    let mut letters = text.chars().peekable();
    loop {
        while letters.next_if(|letter| letter.is_whitespace() || *letter == ',').is_some() {}
        if letters.peek().is_none() {
            return Some(directives);
        }
        let mut name = String::new();
        while let Some(letter) = letters.next_if(|letter| *letter != '=') {
            name.extend(letter.to_lowercase());
        }
        letters.next()?;
        let mut value = String::new();
        if letters.next_if_eq(&'"').is_some() {
            loop {
                match letters.next()? {
                    '"' => break,
                    '\\' => value.push(letters.next()?),
                    letter => value.push(letter),
                }
            }
        } else {
            while let Some(letter) = letters.next_if(|letter| *letter != ',') {
                value.push(letter);
            }
        }
        directives.push((name.trim().to_owned(), value.trim().to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> SaslIdentity {
        SaslIdentity { user: "kafka".into(), password: "kafka-secret".into() }
    }

    #[test]
    fn the_example_of_rfc_2831_is_answered_as_it_says() {
        let identity = SaslIdentity { user: "chris".into(), password: "secret".into() };
        let mut exchange = Exchange::new(&identity, "OA6MHXh6VqTrRk".into());
        exchange.digest_uri = "imap/elwood.innosoft.com";
        let challenge = "realm=\"elwood.innosoft.com\",nonce=\"OA6MG9tEQGm2hh\",qop=\"auth\",\
            algorithm=md5-sess,charset=utf-8";
        let answer = exchange.answer(challenge.as_bytes()).unwrap();
        assert!(answer.contains(",response=d388dad90d4bbd760a152321f2143af7,"), "{answer}");
        assert_eq!(exchange.finish(b"rspauth=ea40f60335c427b5527b84dbabcdfffd"), Ok(()));
        assert_eq!(exchange.finish(b"rspauth=00"), Err(SaslError::NotProven));
    }

    #[test]
    fn a_server_that_cannot_do_it_is_told_from_one_that_lies() {
        let identity = identity();
        let answer = |challenge: &[u8]| Exchange::new(&identity, "c".into()).answer(challenge);
        assert_eq!(answer(b""), Err(SaslError::NoChallenge));
        for malformed in [
            &b"realm=\"r\",algorithm=md5-sess"[..],
            b"nonce=\"n\"",
            b"nonce=\"n\",qop=\"auth-conf\",algorithm=md5-sess",
            b"nonce=\"n",
            b"nonce",
            b"\xff",
        ] {
            assert_eq!(answer(malformed), Err(SaslError::Malformed), "{malformed:?}");
        }
        assert!(answer(b"nonce=\"n\",qop=\"auth-int, auth\",algorithm=md5-sess").is_ok());
        assert_eq!(Exchange::new(&identity, "c".into()).finish(b""), Err(SaslError::NotProven));
    }

    #[test]
    fn quotes_are_escaped_and_secrets_hidden() {
        let identity = SaslIdentity { user: "a\"b\\".into(), password: "p".into() };
        let answer =
            Exchange::new(&identity, "c".into()).answer(b"nonce=\"n\\\"m\",algorithm=md5-sess").unwrap();
        assert!(
            answer.contains("username=\"a\\\"b\\\\\"") && answer.contains("nonce=\"n\\\"m\""),
            "{answer}"
        );
        assert_eq!(format!("{identity:?}"), "SaslIdentity { user: \"a\\\"b\\\\\", .. }");
    }
}
