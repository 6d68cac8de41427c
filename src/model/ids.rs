use std::fmt;
use std::str::FromStr;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                $name(value)
            }
        }
    };
}

number! {
    /// A broker's id: `broker.id` or a generated one. `-1` = none.
    BrokerId(i32)
}
number! {
    /// The czxid of a broker's registration; grows with each registration. `-1` = unknown.
    BrokerEpoch(i64)
}

impl BrokerEpoch {
    /// As requests tell it; `None` = unknown.
    pub fn told(epoch: i64) -> Option<BrokerEpoch> {
        (epoch >= 0).then_some(BrokerEpoch(epoch))
    }
}

number! {
    /// A partition's number inside its topic, from 0.
    PartitionIndex(i32)
}
number! {
    /// Counts the leaders of one partition. `-1` = unknown, skips fencing.
    LeaderEpoch(i32)
}
number! {
    /// Counts the controllers of the cluster.
    ControllerEpoch(i32)
}
number! {
    /// A record's position in its partition, from 0. `-1` = none.
    Offset(i64)
}
number! {
    /// The identity of an idempotent or transactional producer. `-1` = none.
    ProducerId(i64)
}
number! {
    /// Fences older instances of a producer id. `-1` = none.
    ProducerEpoch(i16)
}
number! {
    /// Milliseconds since 1970-01-01 UTC. `-1` = none.
    Timestamp(i64)
}

impl BrokerId {
    pub const NONE: BrokerId = BrokerId(-1);
}

impl LeaderEpoch {
    pub const UNKNOWN: LeaderEpoch = LeaderEpoch(-1);
}

impl Offset {
    pub const ZERO: Offset = Offset(0);
    pub const NONE: Offset = Offset(-1);

    /// The offset `count` records later. Saturates: the sum of a stored offset and a batch's length cannot
    /// overflow in a log that was validated, and a hostile one must not wrap to a small offset.
    pub fn plus(self, count: i64) -> Offset {
        Offset(self.0.saturating_add(count))
    }

    /// How many offsets lie between `earlier` and this one; negative when it is not earlier.
    pub fn since(self, earlier: Offset) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl ProducerId {
    pub const NONE: ProducerId = ProducerId(-1);
}

impl ProducerEpoch {
    pub const NONE: ProducerEpoch = ProducerEpoch(-1);
}

impl Timestamp {
    pub const NONE: Timestamp = Timestamp(-1);

    pub fn plus_ms(self, ms: i64) -> Timestamp {
        Timestamp(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this moment.
    pub fn since_ms(self, earlier: Timestamp) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A topic's UUID: distinguishes a topic from an earlier one of the same name. All zero = none.
///
/// Its text is URL-safe base64 without padding, as Kafka writes it in `partition.metadata` and znodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TopicId(pub [u8; 16]);

const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl TopicId {
    pub const ZERO: TopicId = TopicId([0; 16]);

    pub fn is_zero(&self) -> bool {
        self.0 == [0; 16]
    }

    /// Makes an id of 16 random bytes, or `None` where Kafka draws again: the reserved values 0 and 1, and
    /// texts that begin with `-`, which command lines would take for an option.
    pub fn from_random(mut bytes: [u8; 16]) -> Option<TopicId> {
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let id = TopicId(bytes);
        (!id.to_string().starts_with('-')).then_some(id)
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = u128::from_be_bytes(self.0);
        for digit in 0..22 {
            let shifted = if digit < 21 { number >> (122 - 6 * digit) } else { number << 4 };
            let symbol = BASE64_URL[(shifted & 0x3f) as usize];
            write!(f, "{}", symbol as char)?;
        }
        Ok(())
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not 22 characters of URL-safe base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidTopicId;

impl FromStr for TopicId {
    type Err = InvalidTopicId;

    fn from_str(text: &str) -> Result<Self, InvalidTopicId> {
        if text.len() != 22 {
            return Err(InvalidTopicId);
        }
        let mut number: u128 = 0;
        for (at, symbol) in text.bytes().enumerate() {
            let value = BASE64_URL.iter().position(|&known| known == symbol).ok_or(InvalidTopicId)? as u128;
            if at < 21 {
                number = (number << 6) | value;
            } else {
                number = (number << 2) | (value >> 4);
            }
        }
        Ok(TopicId(number.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: [u8; 16], text: &str) {
        assert_eq!(TopicId(bytes).to_string(), text);
        assert_eq!(text.parse(), Ok(TopicId(bytes)));
    }

    #[test]
    fn topic_ids_read_as_url_safe_base64() {
        check([0; 16], "AAAAAAAAAAAAAAAAAAAAAA");
        check([0xff; 16], "_____________________w");
        check([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], "AAAAAAAAAAAAAAAAAAAAAQ");
    }

    #[test]
    fn damaged_topic_ids_are_refused() {
        assert_eq!("AAAA".parse::<TopicId>(), Err(InvalidTopicId));
        assert_eq!("AAAAAAAAAAAAAAAAAAAAA+".parse::<TopicId>(), Err(InvalidTopicId));
    }
}
