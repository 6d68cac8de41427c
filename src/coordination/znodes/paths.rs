use crate::model::{BrokerId, PartitionIndex};

pub const CLUSTER: &str = "/cluster";
pub const CLUSTER_ID: &str = "/cluster/id";
pub const BROKER_IDS: &str = "/brokers/ids";
/// Each set gives a number for a broker without an id: the node's version.
pub const BROKER_SEQUENCE: &str = "/brokers/seqid";
pub const TOPICS: &str = "/brokers/topics";
pub const CONTROLLER: &str = "/controller";
pub const CONTROLLER_EPOCH: &str = "/controller_epoch";
pub const CONFIG: &str = "/config";
pub const CONFIG_CHANGES: &str = "/config/changes";
pub const DELETE_TOPICS: &str = "/admin/delete_topics";
pub const REASSIGN_PARTITIONS: &str = "/admin/reassign_partitions";
pub const PREFERRED_ELECTION: &str = "/admin/preferred_replica_election";
pub const ISR_CHANGES: &str = "/isr_change_notification";
pub const LOG_DIR_EVENTS: &str = "/log_dir_event_notification";
pub const PRODUCER_ID_BLOCK: &str = "/latest_producer_id_block";
pub const FEATURE: &str = "/feature";
/// What is ours alone; Kafka does not look at it.
pub const BARNABAS: &str = "/barnabas";
/// The levels of features, in the form of [`FEATURE`].
pub const BARNABAS_FEATURES: &str = "/barnabas/features";
/// The live brokers that know of features.
pub const BARNABAS_BROKERS: &str = "/barnabas/brokers";

/// The nodes that every broker makes sure of when it starts, parents first; persistent, with null data.
pub const CREATED_AT_START: [&str; 18] = [
    "/consumers",
    "/brokers",
    BROKER_IDS,
    TOPICS,
    CONFIG,
    CONFIG_CHANGES,
    "/admin",
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
    CLUSTER,
];

/// What begins the names of sequential nodes, under [`CONFIG_CHANGES`], [`ISR_CHANGES`], [`LOG_DIR_EVENTS`].
pub const CONFIG_CHANGE_PREFIX: &str = "config_change_";
pub const ISR_CHANGE_PREFIX: &str = "isr_change_";
pub const LOG_DIR_EVENT_PREFIX: &str = "log_dir_event_";

pub fn broker(id: BrokerId) -> String {
    format!("{BROKER_IDS}/{id}")
}

pub fn barnabas_broker(id: BrokerId) -> String {
    format!("{BARNABAS_BROKERS}/{id}")
}

pub fn topic(name: &str) -> String {
    format!("{TOPICS}/{name}")
}

pub fn partitions(topic: &str) -> String {
    format!("{TOPICS}/{topic}/partitions")
}

pub fn partition(topic: &str, partition: PartitionIndex) -> String {
    format!("{TOPICS}/{topic}/partitions/{partition}")
}

pub fn partition_state(topic: &str, partition: PartitionIndex) -> String {
    format!("{TOPICS}/{topic}/partitions/{partition}/state")
}

/// Where consumers of 0.8 keep their offset, as text.
pub fn consumer_offset(group: &str, topic: &str, partition: PartitionIndex) -> String {
    format!("/consumers/{group}/offsets/{topic}/{partition}")
}

pub fn topic_config(topic: &str) -> String {
    format!("/config/topics/{topic}")
}

pub fn delete_topic(topic: &str) -> String {
    format!("{DELETE_TOPICS}/{topic}")
}
