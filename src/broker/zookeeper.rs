//! What the settings say of an ensemble: where it is, who this broker is to it, and how it is spoken to.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use snafu::{OptionExt, ResultExt, ensure};

use super::error::*;
use crate::config::BrokerConfig;
use crate::coordination::{AclPolicy, ConnectString, SaslIdentity, ZooKeeperOptions};
use crate::runtime::Random;
use crate::runtime::tls::{TlsClient, TlsClientOptions};
use crate::security::jaas::{self, LoginModule};

/// Reads files of keys and passwords. A start that asks for more than can be done is refused here.
pub(super) fn options(
    config: &BrokerConfig,
    connect: &str,
    random: &Random,
) -> Result<ZooKeeperOptions, StartError> {
    let digest = config.zookeeper_digest().map(|identity| Bytes::copy_from_slice(identity.as_bytes()));
    let sasl = sasl(config)?;
    let tls = tls(config)?;
    let is_named_by_tls = tls.is_some() && config.zookeeper_ssl_keystore_location().is_some();
    let has_identity = digest.is_some() || sasl.is_some() || is_named_by_tls;
    ensure!(!config.zookeeper_set_acl() || has_identity, NoZooKeeperIdentitySnafu);
    let session_timeout = milliseconds(config.zookeeper_session_timeout_ms());
    Ok(ZooKeeperOptions {
        connect: ConnectString::parse(connect)?,
        session_timeout,
        connection_timeout: config.zookeeper_connection_timeout_ms().map_or(session_timeout, milliseconds),
        request_bytes_max: request_bytes_max(config),
        in_flight_max: usize::try_from(config.zookeeper_max_in_flight_requests()).unwrap_or(1),
        acl: if config.zookeeper_set_acl() { AclPolicy::Creator } else { AclPolicy::Open },
        auth: digest.map(|identity| ("digest".to_owned(), identity)).into_iter().collect(),
        sasl,
        tls,
        random: random.clone(),
    })
}

pub(super) fn request_bytes_max(config: &BrokerConfig) -> usize {
    usize::try_from(config.zookeeper_jute_maxbuffer()).unwrap_or(0)
}

pub(super) fn milliseconds(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

fn tls(config: &BrokerConfig) -> Result<Option<TlsClient>, StartError> {
    if !config.zookeeper_ssl_client_enable() {
        return Ok(None);
    }
    let trust_store = config.zookeeper_ssl_truststore_location().context(NoTrustStoreSnafu)?;
    let protocols = match config.zookeeper_ssl_enabled_protocols() {
        Some(protocols) => protocols.to_vec(),
        None => vec![config.zookeeper_ssl_protocol().to_owned()],
    };
    let options = TlsClientOptions {
        trust_store: PathBuf::from(trust_store),
        key_store: config.zookeeper_ssl_keystore_location().map(PathBuf::from),
        protocols,
        cipher_suites: config.zookeeper_ssl_cipher_suites().unwrap_or_default().to_vec(),
        checks_host_name: !config.zookeeper_ssl_endpoint_identification_algorithm().is_empty(),
    };
    Ok(Some(TlsClient::new(&options).context(ZooKeeperTlsSnafu)?))
}

/// A file without the section is of other uses of JAAS: no identity then, as with Kafka.
fn sasl(config: &BrokerConfig) -> Result<Option<SaslIdentity>, StartError> {
    let Some(path) = config.zookeeper_jaas_file() else { return Ok(None) };
    let (path, section) = (Path::new(path), config.zookeeper_jaas_section());
    let text = std::fs::read_to_string(path).context(ReadJaasSnafu { path })?;
    let Some(modules) = jaas::login_modules(&text, section).context(JaasSnafu { path })? else {
        return Ok(None);
    };
    let identity = modules.first().and_then(digest_identity);
    Ok(Some(identity.context(NoDigestLoginSnafu { path, section })?))
}

fn digest_identity(module: &LoginModule) -> Option<SaslIdentity> {
    if !module.class.ends_with(".DigestLoginModule") {
        return None;
    }
    let option = |name| module.option(name).map(str::to_owned);
    Some(SaslIdentity { user: option("username")?, password: option("password")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(settings: &[(&str, &str)], expected: &str) {
        let settings = settings.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        let config = BrokerConfig::new(settings).unwrap();
        let told = match options(&config, "localhost:2181", &Random::from_seed(1)) {
            Ok(options) => format!("{:?} {:?}", options.acl, options.sasl),
            Err(error) => error.to_string(),
        };
        assert!(told.contains(expected), "{told}");
    }

    fn written(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn an_identity_comes_from_a_jaas_file() {
        let module = "org.apache.zookeeper.server.auth.DigestLoginModule required";
        let file = written(&format!("Client {{ {module} username=\"kafka\" password=\"secret\"; }};"));
        let path = file.path().to_str().unwrap();
        let named = ("barnabas.zookeeper.jaas.file", path);
        check(&[named, ("zookeeper.set.acl", "true")], "Creator Some(SaslIdentity { user: \"kafka\"");
        check(&[named, ("barnabas.zookeeper.jaas.section", "Other")], "Open None");
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        check(&[("zookeeper.set.acl", "true")], "there is no identity");
        check(&[("zookeeper.ssl.client.enable", "true")], "zookeeper.ssl.truststore.location is not set");
        check(&[("barnabas.zookeeper.jaas.file", "/nonexistent")], "cannot read /nonexistent");
        let unfinished = written("Client {");
        check(
            &[("barnabas.zookeeper.jaas.file", unfinished.path().to_str().unwrap())],
            "line 1: a login module or } is expected",
        );
        let kerberos = written("Client { com.sun.security.auth.module.Krb5LoginModule required; };");
        check(
            &[("barnabas.zookeeper.jaas.file", kerberos.path().to_str().unwrap())],
            "the section Client has no DigestLoginModule with username and password",
        );
        let empty = written("");
        check(
            &[
                ("zookeeper.ssl.client.enable", "true"),
                ("zookeeper.ssl.truststore.location", empty.path().to_str().unwrap()),
            ],
            "TLS towards ZooKeeper: ",
        );
    }
}
