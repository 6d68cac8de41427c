use bytes::Bytes;

use crate::{Str, Uuid};

/// What a record of an internal topic says, with Kafka's names: for those who print it.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    Null,
    Bool(bool),
    Number(i64),
    Float(f64),
    Text(Str),
    Bytes(Bytes),
    Uuid(Uuid),
    List(Vec<Shown>),
    /// In the order of the schema.
    Fields(Vec<(&'static str, Shown)>),
}

/// What can be printed of a record, or of a part of one.
pub trait Show {
    /// The fields that `version` has. Of tagged ones only those that have not their default, as in Kafka's JSON.
    fn show(&self, version: i16) -> Shown;
}

macro_rules! show_numbers {
    ($($number:ty)*) => { $(
        impl Show for $number {
            fn show(&self, _: i16) -> Shown {
                Shown::Number(i64::from(*self))
            }
        }
    )* };
}

show_numbers!(i8 i16 u16 i32 u32 i64);

impl Show for bool {
    fn show(&self, _: i16) -> Shown {
        Shown::Bool(*self)
    }
}

impl Show for f64 {
    fn show(&self, _: i16) -> Shown {
        Shown::Float(*self)
    }
}

impl Show for Str {
    fn show(&self, _: i16) -> Shown {
        Shown::Text(self.clone())
    }
}

impl Show for Bytes {
    fn show(&self, _: i16) -> Shown {
        Shown::Bytes(self.clone())
    }
}

impl Show for Uuid {
    fn show(&self, _: i16) -> Shown {
        Shown::Uuid(*self)
    }
}

impl<T: Show> Show for Option<T> {
    fn show(&self, version: i16) -> Shown {
        self.as_ref().map_or(Shown::Null, |value| value.show(version))
    }
}

impl<T: Show> Show for Vec<T> {
    fn show(&self, version: i16) -> Shown {
        Shown::List(self.iter().map(|element| element.show(version)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OffsetCommitValue, ShareUpdateValue};

    #[test]
    fn fields_are_those_of_the_version() {
        let names = |shown: Shown| match shown {
            Shown::Fields(fields) => fields.into_iter().map(|(name, _)| name).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        let commit = OffsetCommitValue::default();
        assert_eq!(names(commit.show(1)), ["offset", "metadata", "commitTimestamp", "expireTimestamp"]);
        assert_eq!(names(commit.show(4)), ["offset", "leaderEpoch", "metadata", "commitTimestamp"]);
        let mut update = ShareUpdateValue::default();
        assert_eq!(names(update.show(0)), ["snapshotEpoch", "leaderEpoch", "startOffset", "stateBatches"]);
        update.delivery_complete_count = 3;
        assert!(names(update.show(0)).contains(&"deliveryCompleteCount"), "tagged, and not as by default");
    }
}
