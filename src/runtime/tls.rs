//! TLS towards servers: whom a client believes, who it is, and what it speaks.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use snafu::{OptionExt, ResultExt, Snafu, ensure};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as RustlsError, RootCertStore,
    SignatureScheme, SupportedProtocolVersion,
};
use tracing::warn;

/// Speaks TLS to servers, with one identity. Cheap to clone.
#[derive(Clone)]
pub struct TlsClient(TlsConnector);

/// What [`TlsClient`] is made of. Names are Java's.
#[derive(Clone, Debug)]
pub struct TlsClientOptions {
    /// PEM: certificates of authorities, or of servers themselves.
    pub trust_store: PathBuf,
    /// PEM: a private key that is not encrypted, and its chain of certificates. `None` = the client shows no identity.
    pub key_store: Option<PathBuf>,
    /// As `TLSv1.3`; `TLS` = all that are spoken here.
    pub protocols: Vec<String>,
    /// As `TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384`; empty = all that are spoken here.
    pub cipher_suites: Vec<String>,
    /// Whether a certificate must be one for the host that was connected to.
    pub checks_host_name: bool,
}

/// Why nobody can be spoken to; one line for the operator.
#[derive(Debug, Snafu)]
pub enum TlsError {
    #[snafu(display("cannot read {}: {source}", path.display()))]
    ReadStore { path: PathBuf, source: io::Error },
    #[snafu(display(
        "{} is {format}: Barnabas reads PEM, to which keytool -importkeystore and openssl pkcs12 convert it",
        path.display()
    ))]
    OtherFormat { path: PathBuf, format: &'static str },
    #[snafu(display("{}: {source}", path.display()))]
    Pem { path: PathBuf, source: pem::Error },
    #[snafu(display("{} holds no certificate", path.display()))]
    NoCertificate { path: PathBuf },
    #[snafu(display("{} holds no private key", path.display()))]
    NoPrivateKey { path: PathBuf },
    #[snafu(display(
        "the private key in {} is encrypted: openssl pkcs8 writes it without a password", path.display()
    ))]
    EncryptedKey { path: PathBuf },
    #[snafu(display("{}: {source}", path.display()))]
    UnusableStore { path: PathBuf, source: RustlsError },
    #[snafu(display("of the protocols {} none is spoken here; TLSv1.2 and TLSv1.3 are", asked.join(",")))]
    NoProtocol { asked: Vec<String> },
    #[snafu(display("the cipher suites {} leave nothing to speak: {source}", asked.join(",")))]
    NoCipherSuite { asked: Vec<String>, source: RustlsError },
}

impl TlsClient {
    /// Reads the files once: a changed one is seen by the next client that is made.
    pub fn new(options: &TlsClientOptions) -> Result<TlsClient, TlsError> {
        let provider = Arc::new(provider(&options.cipher_suites));
        let versions = versions(&options.protocols)?;
        let verifier = ServerVerifier::new(options, &provider)?;
        let asked = &options.cipher_suites;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .context(NoCipherSuiteSnafu { asked: asked.as_slice() })?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let config = match &options.key_store {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let text = read_pem(path)?;
                let chain = certificates(path, &text)?;
                let key = private_key(path, &text)?;
                builder.with_client_auth_cert(chain, key).context(UnusableStoreSnafu { path })?
            }
        };
        Ok(TlsClient(TlsConnector::from(Arc::new(config))))
    }

    /// `host` is what the certificate is to be for: a name or an address.
    pub async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        self.0.connect(name, stream).await
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsClient")
    }
}

/// With the suites that are asked for, as far as they are spoken here.
fn provider(asked: &[String]) -> CryptoProvider {
    let mut provider = ring::default_provider();
    if asked.is_empty() {
        return provider;
    }
    // Of the suites of TLS 1.3 rustls' names have the version in them.
    let java_name = |name: &str| name.replace("TLS13_", "TLS_");
    let known =
        |suite: &str| provider.cipher_suites.iter().any(|known| named(known.suite(), suite, java_name));
    for suite in asked.iter().filter(|suite| !known(suite)) {
        warn!(suite, "this cipher suite is not spoken here");
    }
    provider.cipher_suites.retain(|known| asked.iter().any(|suite| named(known.suite(), suite, java_name)));
    provider
}

fn named(suite: tokio_rustls::rustls::CipherSuite, name: &str, java_name: impl Fn(&str) -> String) -> bool {
    suite.as_str().is_some_and(|known| java_name(known) == name)
}

fn versions(asked: &[String]) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
    let mut versions: Vec<&'static SupportedProtocolVersion> = Vec::new();
    for name in asked {
        match name.as_str() {
            "TLSv1.3" => versions.push(&TLS13),
            "TLSv1.2" => versions.push(&TLS12),
            "TLS" => versions.extend([&TLS13, &TLS12]),
            _ => warn!(protocol = name, "this version of TLS is not spoken here"),
        }
    }
    ensure!(!versions.is_empty(), NoProtocolSnafu { asked });
    Ok(versions)
}

fn read_pem(path: &Path) -> Result<Vec<u8>, TlsError> {
    let bytes = std::fs::read(path).context(ReadStoreSnafu { path })?;
    let format = match bytes.as_slice() {
        [0xfe, 0xed, 0xfe, 0xed, ..] => "a JKS store",
        [0x30, ..] => "a PKCS12 store",
        _ => return Ok(bytes),
    };
    OtherFormatSnafu { path, format }.fail()
}

fn certificates(path: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let found = found.context(PemSnafu { path })?;
    ensure!(!found.is_empty(), NoCertificateSnafu { path });
    Ok(found)
}

fn private_key(path: &Path, text: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    let is_encrypted = text.windows(ENCRYPTED.len()).any(|window| window == ENCRYPTED);
    ensure!(!is_encrypted, EncryptedKeySnafu { path });
    let found = PrivateKeyDer::pem_slice_iter(text).next();
    found.context(NoPrivateKeySnafu { path })?.context(PemSnafu { path })
}

/// Of PKCS #8, and of the older form that OpenSSL wrote.
const ENCRYPTED: &[u8] = b"ENCRYPTED";

/// Believes whom Java believes: a server whose certificate lies in the trust store is itself, also where that certificate
/// is one of an authority, and host names are checked only where that is asked for.
#[derive(Debug)]
struct ServerVerifier {
    by_chain: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
    checks_host_name: bool,
}

impl ServerVerifier {
    fn new(options: &TlsClientOptions, provider: &Arc<CryptoProvider>) -> Result<ServerVerifier, TlsError> {
        let path = &options.trust_store;
        let trusted = certificates(path, &read_pem(path)?)?;
        let mut roots = RootCertStore::empty();
        for certificate in &trusted {
            roots.add(certificate.clone()).context(UnusableStoreSnafu { path })?;
        }
        let by_chain =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
        let by_chain = by_chain.ok().context(NoCertificateSnafu { path })?;
        Ok(ServerVerifier { by_chain, trusted, checks_host_name: options.checks_host_name })
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, RustlsError> {
        if self.trusted.iter().any(|trusted| trusted.as_ref() == end_entity.as_ref()) {
            if self.checks_host_name {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
            }
            return Ok(ServerCertVerified::assertion());
        }
        let verified =
            self.by_chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            // The name is looked at last: everything else was in order.
            Err(RustlsError::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_host_name => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.by_chain.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, RustlsError> {
        self.by_chain.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.by_chain.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate that signed itself, for `localhost`; its key is gone.
    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\n\
        MIIBlTCCATugAwIBAgIUbEWg76RH4pF4PG5Qu5FP56hl8FQwCgYIKoZIzj0EAwIw\n\
        FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEzMDExMTE1N1oYDzIxMjYxMTA2\n\
        MTExMTU3WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO\n\
        PQMBBwNCAASKJHbX8hwO63BF+2328Ltq/PsXiXo5NaBheMaqRaAZ727ZRYs/bT/c\n\
        9bdRnihpvQOHHIsU3EhE+zD7Xd3m7I5yo2kwZzAdBgNVHQ4EFgQU610O1lOl/2PK\n\
        i+ydQIYfKxxrWd4wHwYDVR0jBBgwFoAU610O1lOl/2PKi+ydQIYfKxxrWd4wDwYD\n\
        VR0TAQH/BAUwAwEB/zAUBgNVHREEDTALgglsb2NhbGhvc3QwCgYIKoZIzj0EAwID\n\
        SAAwRQIgVccI3lXseJ9NCZ3OMnPe9OB0Y7jl6k1I6P25jFiWTvMCIQDA1RPBsBge\n\
        wrXx9NlPH3gYYIO4f2QS4Q0uHIn19PbRQA==\n\
        -----END CERTIFICATE-----\n";

    fn options(trust_store: &[u8], folder: &tempfile::TempDir) -> TlsClientOptions {
        let path = folder.path().join("trust");
        std::fs::write(&path, trust_store).unwrap();
        TlsClientOptions {
            trust_store: path,
            key_store: None,
            protocols: vec!["TLSv1.2".to_owned()],
            cipher_suites: Vec::new(),
            checks_host_name: true,
        }
    }

    #[track_caller]
    fn check(trust_store: &[u8], change: impl FnOnce(&mut TlsClientOptions), expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        let mut options = options(trust_store, &folder);
        change(&mut options);
        let told = TlsClient::new(&options).map_err(|error| error.to_string());
        match told {
            Ok(_) => assert_eq!(expected, ""),
            Err(told) => assert!(!expected.is_empty() && told.contains(expected), "{told}"),
        }
    }

    #[test]
    fn stores_that_cannot_be_used_say_why() {
        let good = CERTIFICATE.as_bytes();
        check(good, |_| {}, "");
        check(b"", |_| {}, "holds no certificate");
        check(&[0xfe, 0xed, 0xfe, 0xed, 0, 0], |_| {}, "is a JKS store: Barnabas reads PEM");
        check(&[0x30, 0x82, 1, 2], |_| {}, "is a PKCS12 store: Barnabas reads PEM");
        check(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", |_| {}, "trust: ");
        check(good, |options| options.trust_store = "/nonexistent".into(), "cannot read /nonexistent");
        let key_store =
            |options: &mut TlsClientOptions| options.key_store = Some(options.trust_store.clone());
        check(good, key_store, "holds no private key");
        let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        check(
            format!("{CERTIFICATE}{encrypted}").as_bytes(),
            key_store,
            "is encrypted: openssl pkcs8 writes it",
        );
    }

    #[test]
    fn javas_names_choose_what_is_spoken() {
        let good = CERTIFICATE.as_bytes();
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let old = |options: &mut TlsClientOptions| options.protocols = names(&["TLSv1.1", "SSLv3"]);
        check(good, old, "of the protocols TLSv1.1,SSLv3 none is spoken here");
        check(good, |options| options.protocols = names(&["TLSv1.1", "TLSv1.3"]), "");
        let newest = |options: &mut TlsClientOptions| {
            options.protocols = names(&["TLSv1.3"]);
            options.cipher_suites = names(&["TLS_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA"]);
        };
        check(good, newest, "");
        // A suite of the one version is of no use in the other.
        let mixed =
            |options: &mut TlsClientOptions| options.cipher_suites = names(&["TLS_AES_128_GCM_SHA256"]);
        check(good, mixed, "the cipher suites TLS_AES_128_GCM_SHA256 leave nothing to speak");
    }
}
