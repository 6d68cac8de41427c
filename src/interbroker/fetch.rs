use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use indexmap::IndexMap;
use wire::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic, ReplicaState};
use wire::{FetchRequest, Records, Uuid};

use super::{Peer, PeerError, RemoteError};
use crate::model::{
    BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId, TopicName, TopicPartition,
};

/// A follower's fetch.
#[derive(Clone, Debug)]
pub struct FollowerFetch {
    pub replica_id: BrokerId,
    pub broker_epoch: BrokerEpoch,
    pub wait_max_ms: i32,
    pub bytes_min: i32,
    pub bytes_max: i32,
    pub session_id: i32,
    pub session_epoch: i32,
    /// Name topics by their ids; each partition has one then.
    pub uses_topic_ids: bool,
    pub partitions: Vec<FollowerFetchPartition>,
    /// Partitions that leave the session.
    pub forgotten: Vec<(TopicPartition, TopicId)>,
}

/// From where on a follower wants a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowerFetchPartition {
    pub topic_partition: TopicPartition,
    pub topic_id: TopicId,
    pub leader_epoch: LeaderEpoch,
    pub fetch_offset: Offset,
    /// `-1` = none.
    pub last_fetched_epoch: LeaderEpoch,
    pub log_start_offset: Offset,
    pub bytes_max: i32,
}

/// A leader's answer.
#[derive(Debug)]
pub struct FollowerFetched {
    /// The answer to the fetch as a whole; the rest is empty then.
    pub error: Option<RemoteError>,
    /// `0` = there is no session.
    pub session_id: i32,
    pub partitions: Vec<FetchedPartition>,
}

#[derive(Debug)]
pub struct FetchedPartition {
    pub topic_partition: TopicPartition,
    pub error: Option<RemoteError>,
    pub high_watermark: Offset,
    pub log_start_offset: Offset,
    /// The follower's log left the leader's: the largest epoch up to which they agree, and its end.
    pub diverging: Option<(LeaderEpoch, Offset)>,
    /// Whole batches, perhaps with a part of one after them.
    pub records: Bytes,
}

/// The first version that names topics by ids alone.
const TOPIC_IDS_VERSION: i16 = 13;

impl Peer {
    /// Fetches as a follower. `names` knows the topics of the session by their ids.
    pub async fn fetch(
        &self,
        fetch: FollowerFetch,
        names: &HashMap<TopicId, TopicName>,
    ) -> Result<FollowerFetched, PeerError> {
        let version = match fetch.uses_topic_ids {
            true => self.versions.fetch,
            false => self.versions.fetch.min(TOPIC_IDS_VERSION - 1),
        };
        let patience = Duration::from_millis(u64::try_from(fetch.wait_max_ms).unwrap_or(0));
        let response = self.call_patiently(&request(fetch, version), version, patience).await?;
        let mut partitions = Vec::new();
        for topic in response.responses {
            let name = match version >= TOPIC_IDS_VERSION {
                true => names.get(&TopicId(topic.topic_id.0)).cloned(),
                false => TopicName::new(&topic.topic).ok(),
            };
            let Some(name) = name else { continue };
            partitions.extend(topic.partitions.into_iter().map(|data| {
                let diverging = &data.diverging_epoch;
                let diverging = (diverging.epoch >= 0 || diverging.end_offset >= 0)
                    .then_some((LeaderEpoch(diverging.epoch), Offset(diverging.end_offset)));
                FetchedPartition {
                    topic_partition: TopicPartition::new(name.clone(), PartitionIndex(data.partition_index)),
                    error: RemoteError::of_code(data.error_code),
                    high_watermark: Offset(data.high_watermark),
                    log_start_offset: Offset(data.log_start_offset),
                    diverging,
                    records: match data.records {
                        Some(Records::Bytes(bytes)) => bytes,
                        _ => Bytes::new(),
                    },
                }
            }));
        }
        let error = RemoteError::of_code(response.error_code);
        Ok(FollowerFetched { error, session_id: response.session_id, partitions })
    }
}

fn request(fetch: FollowerFetch, version: i16) -> FetchRequest {
    let mut request = FetchRequest {
        max_wait_ms: fetch.wait_max_ms,
        min_bytes: fetch.bytes_min,
        max_bytes: fetch.bytes_max,
        session_id: fetch.session_id,
        session_epoch: fetch.session_epoch,
        ..FetchRequest::default()
    };
    if version >= 15 {
        let replica_epoch = fetch.broker_epoch.0;
        request.replica_state = ReplicaState { replica_id: fetch.replica_id.0, replica_epoch };
    } else {
        request.replica_id = fetch.replica_id.0;
    }
    let mut topics: IndexMap<(TopicName, TopicId), Vec<FetchPartition>> = IndexMap::new();
    for partition in fetch.partitions {
        let TopicPartition { topic, partition: index } = partition.topic_partition;
        topics.entry((topic, partition.topic_id)).or_default().push(FetchPartition {
            partition: index.0,
            current_leader_epoch: partition.leader_epoch.0,
            fetch_offset: partition.fetch_offset.0,
            last_fetched_epoch: if version >= 12 { partition.last_fetched_epoch.0 } else { -1 },
            log_start_offset: partition.log_start_offset.0,
            partition_max_bytes: partition.bytes_max,
            ..FetchPartition::default()
        });
    }
    let topic = |((name, id), partitions): ((TopicName, TopicId), _)| FetchTopic {
        topic: name.as_str().into(),
        topic_id: Uuid(id.0),
        partitions,
    };
    request.topics = topics.into_iter().map(topic).collect();
    let mut forgotten: IndexMap<(TopicName, TopicId), Vec<i32>> = IndexMap::new();
    for (of, id) in fetch.forgotten {
        forgotten.entry((of.topic, id)).or_default().push(of.partition.0);
    }
    let topic = |((name, id), partitions): ((TopicName, TopicId), _)| ForgottenTopic {
        topic: name.as_str().into(),
        topic_id: Uuid(id.0),
        partitions,
    };
    request.forgotten_topics_data = forgotten.into_iter().map(topic).collect();
    request
}
