//! Towards a ZooKeeper that asks who a broker is: SASL, TLS, and the access lists that follow from them.

use std::path::Path;

use protocol_tests::client::left_out;
use protocol_tests::{
    Broker, Connection, Keys, Port, Server, ZooKeeper, command_exists, free_port, has_java,
};

use super::{
    CONNECTION_TIMEOUT, OUTAGE, SESSION_TIMEOUT, check_equal, consume, create_topic, produce, script,
};

const DIGEST_LOGIN: &str = "org.apache.zookeeper.server.auth.DigestLoginModule required";

/// A JAAS file with one section.
fn jaas_file(folder: &Path, name: &str, section: &str, options: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, format!("{section} {{\n  {DIGEST_LOGIN}\n  {options};\n}};\n"))
        .expect("write a JAAS file");
    path.display().to_string()
}

fn with_sasl(folder: &Path) -> ZooKeeper {
    let file = jaas_file(folder, "server.jaas", "Server", "user_kafka=\"kafka-secret\"");
    let option = format!("-Djava.security.auth.login.config={file}");
    let provider = "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
    ZooKeeper::start_with(&["tickTime=500", provider], &[&option])
}

/// The same requests under SASL with `zookeeper.set.acl` leave the same tree, access lists included.
#[test]
fn the_tree_under_sasl_is_kafkas() {
    if !has_java() {
        return;
    }
    let folder = tempfile::tempdir().expect("create a folder");
    let zookeeper = with_sasl(folder.path());
    let client = "username=\"kafka\" password=\"kafka-secret\"";
    let file = jaas_file(folder.path(), "client.jaas", "Client", client);
    let option = format!("-Djava.security.auth.login.config={file}");
    let settings = [
        ("zookeeper.set.acl", "true"),
        ("broker.rack", "r1"),
        ("offsets.topic.num.partitions", "4"),
        ("offsets.topic.replication.factor", "1"),
        ("log.cleaner.dedupe.buffer.size", "2097153"),
    ];
    let run = |server: Server, chroot: &str, variable: &str| {
        let connect = format!("{}{chroot}", zookeeper.address());
        let mut broker = Broker::prepare_to_join(server, 1, &connect, &settings);
        broker.set_variable(variable, &option);
        broker.start_again();
        script(&broker);
        zookeeper.dump(chroot)
    };
    let theirs = run(Server::named("kafka-3.9.2"), "/theirs", "KAFKA_JVM_OPTS");
    // Where Kafka's own scripts take it from.
    let ours = run(Server::Barnabas, "/ours", "KAFKA_OPTS");
    assert_eq!(ours["/brokers/topics"].acl, "sasl:kafka:rwcda,world:anyone:r");
    assert_eq!(ours["/config/users"].acl, "sasl:kafka:rwcda");
    assert_eq!(ours["/consumers"].acl, "world:anyone:rwcda");
    assert_eq!(ours["/"].acl, theirs["/"].acl);
    check_equal(theirs, ours);
}

#[test]
fn a_wrong_password_is_one_clear_line() {
    if !has_java() {
        return;
    }
    let folder = tempfile::tempdir().expect("create a folder");
    let zookeeper = with_sasl(folder.path());
    let client = "username=\"kafka\" password=\"another\"";
    let file = jaas_file(folder.path(), "client.jaas", "Client", client);
    let mut broker = Broker::prepare(&[
        ("zookeeper.connect", &zookeeper.address()),
        ("barnabas.zookeeper.jaas.file", &file),
        CONNECTION_TIMEOUT,
    ]);
    let said = broker.start_refused();
    let last = said.lines().last().unwrap_or_default();
    assert!(last.contains("do not authenticate each other: it does not accept the user"), "{said}");
}

/// A server that asks for certificates on a port of its own, beside the plain one for tests.
struct SecureZooKeeper {
    keys: Keys,
    port: Port,
    zookeeper: ZooKeeper,
}

impl SecureZooKeeper {
    /// `None` and a line in the run's output where this machine lacks a program.
    fn start() -> Option<SecureZooKeeper> {
        if !has_java() {
            return None;
        }
        if !command_exists("openssl") {
            left_out("TLS to ZooKeeper", "this machine has no openssl");
            return None;
        }
        let (keys, port) = (Keys::new(), free_port());
        let own = keys.issue("zookeeper", "IP:127.0.0.1");
        let zookeeper = ZooKeeper::start(&[
            "tickTime=500",
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider",
            &format!("secureClientPort={}", port.number),
            &format!("ssl.keyStore.location={}", own.display()),
            &format!("ssl.trustStore.location={}", keys.authority().display()),
            "ssl.protocol=TLS",
            "ssl.enabledProtocols=TLSv1.2,TLSv1.3",
            // Its defaults have none of TLS 1.3.
            "ssl.ciphersuites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384",
        ]);
        Some(SecureZooKeeper { keys, port, zookeeper })
    }

    fn settings(&self, host: &str) -> Vec<(String, String)> {
        let text = |path: std::path::PathBuf| path.display().to_string();
        let settings = [
            ("zookeeper.connect", format!("{host}:{}", self.port.number)),
            ("zookeeper.ssl.client.enable", "true".to_owned()),
            ("zookeeper.clientCnxnSocket", "org.apache.zookeeper.ClientCnxnSocketNetty".to_owned()),
            ("zookeeper.ssl.keystore.location", text(self.keys.issue("broker", "DNS:broker"))),
            ("zookeeper.ssl.keystore.type", "PEM".to_owned()),
            ("zookeeper.ssl.truststore.location", text(self.keys.authority())),
            ("zookeeper.ssl.truststore.type", "PEM".to_owned()),
            ("zookeeper.set.acl", "true".to_owned()),
            (SESSION_TIMEOUT.0, SESSION_TIMEOUT.1.to_owned()),
            (CONNECTION_TIMEOUT.0, CONNECTION_TIMEOUT.1.to_owned()),
        ];
        settings.map(|(key, value)| (key.to_owned(), value)).to_vec()
    }

    fn broker(&self, host: &str) -> Broker {
        let settings = self.settings(host);
        let settings: Vec<(&str, &str)> =
            settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        Broker::prepare(&settings)
    }
}

#[test]
fn a_broker_known_by_its_certificate_lives_through_an_outage() {
    let Some(secure) = SecureZooKeeper::start() else { return };
    let mut broker = secure.broker("127.0.0.1");
    OUTAGE.iter().for_each(|text| broker.allow_log(text));
    broker.start_again();
    let mut connection = Connection::open(&broker.address());
    // More than one record of TLS holds.
    create_topic(&mut connection, "wide", 2_000, &[]);
    create_topic(&mut connection, "t", 1, &[]);
    produce(&mut connection, "t", "before");
    let tree = secure.zookeeper.dump("");
    assert_eq!(tree["/brokers/topics/t"].acl, "x509:CN=broker:rwcda,world:anyone:r");
    assert!(tree["/brokers/topics/wide"].data.len() > 16 * 1024);
    secure.zookeeper.stop();
    produce(&mut connection, "t", "during");
    secure.zookeeper.start_again();
    create_topic(&mut connection, "later", 1, &[]);
    assert_eq!(consume(&mut connection, "t"), ["before-0", "during-0"]);
    // The other version, and one suite of it.
    broker.stop();
    broker.set("zookeeper.ssl.enabled.protocols", "TLSv1.3");
    broker.set("zookeeper.ssl.cipher.suites", "TLS_AES_256_GCM_SHA384");
    broker.start_again();
    assert_eq!(consume(&mut Connection::open(&broker.address()), "t"), ["before-0", "during-0"]);
}

#[test]
fn certificates_that_do_not_fit_are_one_clear_line() {
    let Some(secure) = SecureZooKeeper::start() else { return };
    let refused = |host: &str, change: &[(&str, &str)], expected: &str| {
        let mut broker = secure.broker(host);
        for (key, value) in change {
            broker.set(key, value);
        }
        let said = broker.start_refused();
        assert!(said.lines().last().unwrap_or_default().contains(expected), "{said}");
    };
    let stranger = Keys::new();
    let foreign = stranger.authority().display().to_string();
    refused("127.0.0.1", &[("zookeeper.ssl.truststore.location", &foreign)], "invalid peer certificate");
    refused("localhost", &[], "certificate not valid for name \"localhost\"");
    let other = stranger.issue("other", "DNS:other").display().to_string();
    let impatient = ("zookeeper.connection.timeout.ms", "2000");
    refused("127.0.0.1", &[("zookeeper.ssl.keystore.location", &other), impatient], "127.0.0.1:");
    // Only the name is not checked then.
    let mut broker = secure.broker("localhost");
    broker.set("zookeeper.ssl.endpoint.identification.algorithm", "");
    broker.start_again();
    broker.stop();
}
