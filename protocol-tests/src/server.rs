use std::fmt;

/// The program that a test runs against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    Barnabas,
    /// Apache Kafka with ZooKeeper, of this version (3.9.2 and older).
    KafkaWithZooKeeper(String),
    /// Apache Kafka in combined KRaft mode, of this version (4.0 and newer).
    KafkaWithoutZooKeeper(String),
}

impl Server {
    /// What `BARNABAS_TEST_SERVER` names: `barnabas` (also when unset) or `kafka-VERSION`.
    pub fn from_environment() -> Server {
        match std::env::var("BARNABAS_TEST_SERVER") {
            Err(_) => Server::Barnabas,
            Ok(name) => Server::named(&name),
        }
    }

    #[track_caller]
    pub fn named(name: &str) -> Server {
        match name.strip_prefix("kafka-") {
            None if name == "barnabas" => Server::Barnabas,
            None => panic!("BARNABAS_TEST_SERVER is {name:?}: expected barnabas or kafka-VERSION"),
            Some(version) if version.starts_with(['0', '1', '2', '3']) => {
                Server::KafkaWithZooKeeper(version.to_owned())
            }
            Some(version) => Server::KafkaWithoutZooKeeper(version.to_owned()),
        }
    }

    pub fn is_barnabas(&self) -> bool {
        *self == Server::Barnabas
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Server::Barnabas => f.write_str("barnabas"),
            Server::KafkaWithZooKeeper(version) | Server::KafkaWithoutZooKeeper(version) => {
                write!(f, "kafka-{version}")
            }
        }
    }
}
