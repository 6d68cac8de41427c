/// The three layouts of records, oldest first. Kafka calls the number in a batch its magic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum MessageFormat {
    /// Messages without timestamps (before 0.10).
    V0,
    /// Messages with timestamps (0.10).
    V1,
    /// Record batches (since 0.11).
    #[default]
    V2,
}

impl MessageFormat {
    /// `None` for a number that no format has.
    pub fn from_magic(magic: i8) -> Option<MessageFormat> {
        match magic {
            0 => Some(MessageFormat::V0),
            1 => Some(MessageFormat::V1),
            2 => Some(MessageFormat::V2),
            _ => None,
        }
    }

    pub fn magic(self) -> i8 {
        match self {
            MessageFormat::V0 => 0,
            MessageFormat::V1 => 1,
            MessageFormat::V2 => 2,
        }
    }

    /// A format of single messages, which are compressed by being put into another message.
    pub fn is_legacy(self) -> bool {
        self < MessageFormat::V2
    }
}
