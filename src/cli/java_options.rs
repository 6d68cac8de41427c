//! What Kafka's start scripts pass to the JVM, as far as it says how ZooKeeper is spoken to: Kafka takes these from
//! nowhere else (JAAS), or from there as well (TLS).

use crate::config::Properties;

/// Java's system property, and the setting that says the same.
const SETTINGS: &[(&str, &str)] = &[
    ("java.security.auth.login.config", JAAS_FILE),
    ("zookeeper.sasl.clientconfig", "barnabas.zookeeper.jaas.section"),
    ("jute.maxbuffer", "barnabas.zookeeper.jute.maxbuffer"),
    ("zookeeper.client.secure", "zookeeper.ssl.client.enable"),
    ("zookeeper.clientCnxnSocket", "zookeeper.clientCnxnSocket"),
    ("zookeeper.ssl.ciphersuites", "zookeeper.ssl.cipher.suites"),
    ("zookeeper.ssl.crl", "zookeeper.ssl.crl.enable"),
    ("zookeeper.ssl.enabledProtocols", "zookeeper.ssl.enabled.protocols"),
    ("zookeeper.ssl.hostnameVerification", HOST_NAME_CHECK),
    ("zookeeper.ssl.keyStore.location", "zookeeper.ssl.keystore.location"),
    ("zookeeper.ssl.keyStore.password", "zookeeper.ssl.keystore.password"),
    ("zookeeper.ssl.keyStore.type", "zookeeper.ssl.keystore.type"),
    ("zookeeper.ssl.ocsp", "zookeeper.ssl.ocsp.enable"),
    ("zookeeper.ssl.protocol", "zookeeper.ssl.protocol"),
    ("zookeeper.ssl.trustStore.location", "zookeeper.ssl.truststore.location"),
    ("zookeeper.ssl.trustStore.password", "zookeeper.ssl.truststore.password"),
    ("zookeeper.ssl.trustStore.type", "zookeeper.ssl.truststore.type"),
];

const JAAS_FILE: &str = "barnabas.zookeeper.jaas.file";
const HOST_NAME_CHECK: &str = "zookeeper.ssl.endpoint.identification.algorithm";

/// Adds what `KAFKA_OPTS` says to the settings that say nothing of it themselves. The text is split at blanks, as
/// Kafka's scripts let the shell do; of a property that stands twice the last value counts, as in Java.
pub(super) fn add(kafka_opts: &str, settings: &mut Properties) {
    let defined: Vec<(&str, &str)> = kafka_opts
        .split_whitespace()
        .filter_map(|option| option.strip_prefix("-D")?.split_once('='))
        .collect();
    let find = |wanted: &str| defined.iter().rev().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
    let uses_sasl = find("zookeeper.sasl.client") != Some("false");
    for &(property, setting) in SETTINGS {
        let Some(value) = find(property) else { continue };
        if settings.contains_key(setting) || (setting == JAAS_FILE && !uses_sasl) {
            continue;
        }
        let value = match (setting, value) {
            (HOST_NAME_CHECK, "false") => "",
            (HOST_NAME_CHECK, _) => "HTTPS",
            (_, value) => value,
        };
        settings.insert(setting.to_owned(), value.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kafka_opts: &str, before: &[(&str, &str)], expected: &[(&str, &str)]) {
        let owned = |pairs: &[(&str, &str)]| -> Properties {
            pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
        };
        let mut settings = owned(before);
        add(kafka_opts, &mut settings);
        assert_eq!(settings, owned(expected));
    }

    #[test]
    fn a_jaas_file_is_taken_from_where_kafka_has_it() {
        let options = "-Xmx1g -Djava.security.auth.login.config=/etc/kafka/jaas.conf\n -Dother=1";
        check(options, &[], &[(JAAS_FILE, "/etc/kafka/jaas.conf")]);
        check(options, &[(JAAS_FILE, "/own")], &[(JAAS_FILE, "/own")]);
        check(&format!("{options} -Dzookeeper.sasl.client=false"), &[], &[]);
        check("-Dzookeeper.sasl.clientconfig=Zk", &[], &[("barnabas.zookeeper.jaas.section", "Zk")]);
        check("", &[], &[]);
    }

    #[test]
    fn tls_is_taken_from_system_properties_where_the_file_is_silent() {
        check(
            "-Dzookeeper.client.secure=false -Dzookeeper.client.secure=true \
             -Dzookeeper.ssl.trustStore.location=/a=b.pem -Dzookeeper.ssl.hostnameVerification=false",
            &[("zookeeper.ssl.truststore.location", "/file.pem")],
            &[
                ("zookeeper.ssl.client.enable", "true"),
                ("zookeeper.ssl.truststore.location", "/file.pem"),
                (HOST_NAME_CHECK, ""),
            ],
        );
        check("-Dzookeeper.ssl.hostnameVerification=true", &[], &[(HOST_NAME_CHECK, "HTTPS")]);
    }
}
