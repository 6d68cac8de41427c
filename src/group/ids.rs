use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

macro_rules! text {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Owns its text and is cheap to clone; compares and hashes as its text.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                $name(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                $name(text.into())
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    };
}

text! {
    /// A group's name. Empty is legal where only offsets are stored.
    GroupId
}
text! {
    /// A member's name, given by the coordinator. Empty = the sender has none yet.
    MemberId
}
text! {
    /// `group.instance.id`: the lasting name of a static member (KIP-345).
    InstanceId
}
text! {
    /// The name of an embedded protocol, such as the assignor `range`, or of a protocol type, such as
    /// `consumer`.
    ProtocolName
}

/// Counts the completed rebalances of a group; the first one gives 1. `-1` = the sender is no member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct GenerationId(pub i32);

impl GenerationId {
    pub const NONE: GenerationId = GenerationId(-1);

    pub(super) fn next(self) -> GenerationId {
        GenerationId(self.0.wrapping_add(1).max(0))
    }
}

impl fmt::Display for GenerationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl MemberId {
    /// The id Kafka gives: the instance id of a static member, else the client id, with a random UUID behind it.
    pub(super) fn generate(prefix: &str, random: [u8; 16]) -> MemberId {
        let mut bytes = random;
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        let mut id = String::with_capacity(prefix.len() + 37);
        id.push_str(prefix);
        for (at, byte) in bytes.iter().enumerate() {
            if matches!(at, 0 | 4 | 6 | 8 | 10) {
                id.push('-');
            }
            id.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
            id.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
        }
        MemberId::from(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_ids_end_in_a_random_uuid() {
        let id = MemberId::generate("consumer-1", [0xff; 16]);
        assert_eq!(id.as_str(), "consumer-1-ffffffff-ffff-4fff-bfff-ffffffffffff");
    }

    #[test]
    fn generations_count_from_one_and_never_turn_negative() {
        assert_eq!(GenerationId::default().next(), GenerationId(1));
        assert_eq!(GenerationId(i32::MAX).next(), GenerationId(0));
    }
}
