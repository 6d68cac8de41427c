//! The words everyone shares: ids, topic names, partitions, offsets, epochs.
//!
//! Pure values without I/O. Each id is a type of its own, so that an offset cannot be passed where a
//! leader epoch is wanted. A value that exists is valid: [`TopicName::new`] refuses what Kafka refuses.

mod ids;
mod topic;

pub use ids::{
    BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, Offset, PartitionIndex, ProducerEpoch, ProducerId,
    Timestamp, TopicId,
};
pub use topic::{InvalidTopicName, TopicIdPartition, TopicName, TopicPartition, is_internal_topic};
