use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::{PartitionIndex, TopicId};

/// A legal topic name: 1 to 249 of `[a-zA-Z0-9._-]`, neither `.` nor `..`.
///
/// Cheap to clone; compares and hashes as its text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Arc<str>);

/// Why a text is not a topic name, worded for the client that sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvalidTopicName {
    Empty,
    /// `.` or `..`
    Dots {
        name: &'static str,
    },
    TooLong {
        name: String,
    },
    IllegalCharacter {
        name: String,
    },
}

impl TopicName {
    pub const LENGTH_MAX: usize = 249;

    /// Refuses what Kafka answers with INVALID_TOPIC_EXCEPTION.
    pub fn new(name: &str) -> Result<TopicName, InvalidTopicName> {
        if name.is_empty() {
            return Err(InvalidTopicName::Empty);
        }
        if let Some(name) = [".", ".."].into_iter().find(|dots| *dots == name) {
            return Err(InvalidTopicName::Dots { name });
        }
        if name.encode_utf16().count() > Self::LENGTH_MAX {
            return Err(InvalidTopicName::TooLong { name: name.to_owned() });
        }
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if !name.bytes().all(is_legal) {
            return Err(InvalidTopicName::IllegalCharacter { name: name.to_owned() });
        }
        Ok(TopicName(name.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name with `.` as `_`: two names that agree here collide in metric names, which Kafka refuses.
    pub fn collision_key(&self) -> String {
        self.0.replace('.', "_")
    }
}

impl Deref for TopicName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for TopicName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for InvalidTopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidTopicName::Empty => f.write_str("Topic name is invalid: the empty string is not allowed"),
            InvalidTopicName::Dots { name } => write!(f, "Topic name is invalid: '{name}' is not allowed"),
            InvalidTopicName::TooLong { name } => write!(
                f,
                "Topic name is invalid: the length of '{}' is longer than the max allowed length {}",
                name.escape_debug(),
                TopicName::LENGTH_MAX
            ),
            InvalidTopicName::IllegalCharacter { name } => write!(
                f,
                "Topic name is invalid: '{}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
                name.escape_debug()
            ),
        }
    }
}

impl std::error::Error for InvalidTopicName {}

/// The topics that brokers write for themselves: clients may read them, not write them.
pub fn is_internal_topic(name: &str) -> bool {
    matches!(name, "__consumer_offsets" | "__transaction_state" | "__share_group_state")
}

/// One partition of a topic, by name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicPartition {
    pub topic: TopicName,
    pub partition: PartitionIndex,
}

impl TopicPartition {
    pub fn new(topic: TopicName, partition: PartitionIndex) -> Self {
        TopicPartition { topic, partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

impl fmt::Debug for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One partition of a topic, by name and id. A zero id = the sender knows none.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct TopicIdPartition {
    pub topic_id: TopicId,
    pub topic_partition: TopicPartition,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kafka_legal_names_are_accepted() {
        for name in ["a", "a.b_c-D9", &"x".repeat(249), "..."] {
            assert!(TopicName::new(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn kafka_illegal_names_are_refused() {
        for name in ["", ".", "..", "a/b", "a b", "ä", "a\0", &"x".repeat(250)] {
            assert!(TopicName::new(name).is_err(), "{name}");
        }
    }

    #[test]
    fn refusals_are_worded_as_kafkas() {
        let words = |name: &str| TopicName::new(name).map_err(|refused| refused.to_string()).unwrap_err();
        assert_eq!(words("."), "Topic name is invalid: '.' is not allowed");
        assert_eq!(words(".."), "Topic name is invalid: '..' is not allowed");
        let long = "x".repeat(250);
        assert_eq!(
            words(&long),
            format!(
                "Topic name is invalid: the length of '{long}' is longer than the max allowed length 249"
            )
        );
    }

    #[test]
    fn dots_and_underscores_collide() {
        let dotted = TopicName::new("a.b").unwrap();
        let underscored = TopicName::new("a_b").unwrap();
        assert_eq!(dotted.collision_key(), underscored.collision_key());
    }
}
