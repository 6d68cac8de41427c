//! Transactions from outside: codes by version, late writes, restarts, offsets of groups, clients, tools.

mod clients;
mod codes;
mod endings;
mod idle;
mod offsets;
mod producer;
mod same_output;
mod spread;
mod takeover;
mod tools;

use protocol_tests::{Broker, Connection};

/// One broker, one partition of each internal topic to look into.
const SETTINGS: &[(&str, &str)] = &[
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
    ("transaction.state.log.num.partitions", "1"),
    ("offsets.topic.num.partitions", "1"),
    ("group.initial.rebalance.delay.ms", "0"),
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "200"),
];

fn start(settings: &[(&str, &str)]) -> Broker {
    let mut all = SETTINGS.to_vec();
    all.retain(|(key, _)| !settings.iter().any(|(changed, _)| changed == key));
    all.extend_from_slice(settings);
    let broker = Broker::start(&all);
    Connection::open(&broker.address()).wait_for_coordinator("any");
    broker
}

/// Raises `transaction.version`.
fn set_version(connection: &mut Connection, level: i16) {
    use wire::update_features_request::{FeatureUpdateKey, UpdateFeaturesRequest};
    let update = FeatureUpdateKey {
        feature: "transaction.version".into(),
        max_version_level: level,
        ..Default::default()
    };
    let request = UpdateFeaturesRequest { feature_updates: vec![update], ..Default::default() };
    let response = connection.call(1, &request);
    assert_eq!(response.error_code, 0, "{response:?}");
}

mod code {
    //! Kafka's error codes, as the tests name them.
    pub const NONE: i16 = 0;
    pub const ILLEGAL_GENERATION: i16 = 22;
    pub const UNKNOWN_MEMBER_ID: i16 = 25;
    pub const INVALID_REQUEST: i16 = 42;
    pub const INVALID_PRODUCER_EPOCH: i16 = 47;
    pub const INVALID_TXN_STATE: i16 = 48;
    pub const INVALID_PRODUCER_ID_MAPPING: i16 = 49;
    pub const INVALID_TRANSACTION_TIMEOUT: i16 = 50;
    pub const CONCURRENT_TRANSACTIONS: i16 = 51;
    pub const FENCED_INSTANCE_ID: i16 = 82;
    pub const UNSTABLE_OFFSET_COMMIT: i16 = 88;
    pub const PRODUCER_FENCED: i16 = 90;
    pub const TRANSACTIONAL_ID_NOT_FOUND: i16 = 105;
    pub const TRANSACTION_ABORTABLE: i16 = 120;
}
