use std::time::Instant;

use tracing::{debug, warn};

use super::Admin;
use super::create_topics::NewTopic;
use super::creation_error::CreateTopicError;
use crate::config::BrokerConfig;
use crate::model::TopicName;

/// What to answer to a client that asked for a topic which did not exist.
#[derive(Debug, PartialEq, Eq)]
pub enum AutoCreation {
    /// It exists now, or soon: LEADER_NOT_AVAILABLE.
    Started,
    /// Another request is creating it: UNKNOWN_TOPIC_OR_PARTITION.
    InFlight,
    Refused(CreateTopicError),
}

const CONSUMER_OFFSETS: &str = "__consumer_offsets";
const TRANSACTION_STATE: &str = "__transaction_state";

impl Admin {
    /// Creates topics that clients use, with the brokers' defaults; internal topics with what they need.
    ///
    /// Whether topics may be created so, and by this client, is for the caller to say. Any broker does it, and
    /// nobody waits for it. One answer for each name, in order.
    pub async fn auto_create(
        &self,
        names: impl IntoIterator<Item = String>,
        config: &BrokerConfig,
    ) -> Vec<(String, AutoCreation)> {
        let mut answers = Vec::new();
        let mut topics = Vec::new();
        let mut claims = Claims { admin: self, names: Vec::new() };
        for name in names {
            if let Err(invalid) = TopicName::new(&name) {
                let error = CreateTopicError::InvalidName { name: invalid };
                answers.push((name, AutoCreation::Refused(error)));
            } else if !claims.take(&name) {
                answers.push((name, AutoCreation::InFlight));
            } else {
                topics.push(new_topic(name.clone(), config));
                answers.push((name, AutoCreation::Started));
            }
        }
        for (name, outcome) in self.create(topics, false, config).await {
            let refusal = match outcome {
                Ok(_)
                | Err(
                    CreateTopicError::TopicExists { .. }
                    | CreateTopicError::MarkedForDeletion { .. }
                    | CreateTopicError::TimedOut,
                ) => continue,
                Err(refusal) => refusal,
            };
            match refusal {
                // Clients ask for topics while they are being deleted; they are told, and ask again.
                CreateTopicError::MarkedForDeletion { .. } => {
                    debug!(topic = %name, error = %refusal, "a topic was not created for a client");
                }
                _ => {
                    if let Some(held_back) = self.refusals.admit(Instant::now()) {
                        warn!(topic = %name, error = %refusal, held_back, "a topic was not created for a client");
                    }
                }
            }
            if let Some((_, answer)) = answers.iter_mut().find(|(answered, _)| *answered == name) {
                *answer = AutoCreation::Refused(refusal);
            }
        }
        answers
    }
}

/// The names that this request creates, until it is done or dropped.
struct Claims<'a> {
    admin: &'a Admin,
    names: Vec<String>,
}

impl Claims<'_> {
    fn take(&mut self, name: &str) -> bool {
        let is_new = self.admin.in_creation.lock().insert(name.to_owned());
        if is_new {
            self.names.push(name.to_owned());
        }
        is_new
    }
}

impl Drop for Claims<'_> {
    fn drop(&mut self) {
        let mut in_creation = self.admin.in_creation.lock();
        for name in &self.names {
            in_creation.remove(name);
        }
    }
}

fn new_topic(name: String, config: &BrokerConfig) -> NewTopic {
    let set = |key: &str, value: String| (key.to_owned(), Some(value));
    match name.as_str() {
        CONSUMER_OFFSETS => NewTopic {
            partitions: config.offsets_topic_num_partitions(),
            replication_factor: config.offsets_topic_replication_factor(),
            assignments: Vec::new(),
            configs: vec![
                set("compression.type", "producer".to_owned()),
                set("cleanup.policy", "compact".to_owned()),
                set("segment.bytes", config.offsets_topic_segment_bytes().to_string()),
            ],
            name,
        },
        TRANSACTION_STATE => NewTopic {
            partitions: config.transaction_state_log_num_partitions(),
            replication_factor: config.transaction_state_log_replication_factor(),
            assignments: Vec::new(),
            configs: vec![
                set("compression.type", "uncompressed".to_owned()),
                set("cleanup.policy", "compact".to_owned()),
                set("min.insync.replicas", config.transaction_state_log_min_isr().to_string()),
                set("segment.bytes", config.transaction_state_log_segment_bytes().to_string()),
                set("unclean.leader.election.enable", "false".to_owned()),
            ],
            name,
        },
        _ => NewTopic { name, partitions: -1, replication_factor: -1, ..NewTopic::default() },
    }
}
