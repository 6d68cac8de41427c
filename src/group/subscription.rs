use std::collections::HashSet;

/// The topics named in a member's subscription, or `None` if it is not one of the consumer protocol.
///
/// Reads the first version's fields only: a version, then an array of topic names. Every later version begins
/// with them.
pub(super) fn subscribed_topics(metadata: &[u8]) -> Option<Vec<&str>> {
    let (version, rest) = metadata.split_first_chunk::<2>()?;
    if i16::from_be_bytes(*version) < 0 {
        return None;
    }
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let count = usize::try_from(i32::from_be_bytes(*count)).ok()?;
    // A name takes at least its two length bytes, so a count beyond that is not believed.
    let mut topics = Vec::with_capacity(count.min(rest.len() / 2));
    for _ in 0..count {
        let (length, after) = rest.split_first_chunk::<2>()?;
        let length = usize::try_from(i16::from_be_bytes(*length)).ok()?;
        let (name, after) = after.split_at_checked(length)?;
        topics.push(std::str::from_utf8(name).ok()?);
        rest = after;
    }
    Some(topics)
}

/// The topics that any of these members subscribes to, or `None` if one of them does not tell.
pub(super) fn union<'a>(subscriptions: impl Iterator<Item = &'a [u8]>) -> Option<HashSet<String>> {
    let mut topics = HashSet::new();
    for subscription in subscriptions {
        topics.extend(subscribed_topics(subscription)?.into_iter().map(str::to_owned));
    }
    Some(topics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_read_from_any_version() {
        let first = b"\x00\x00\x00\x00\x00\x02\x00\x01a\x00\x02bc\xff\xff\xff\xff";
        assert_eq!(subscribed_topics(first), Some(vec!["a", "bc"]));
        let third =
            b"\x00\x03\x00\x00\x00\x01\x00\x01a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x04rack";
        assert_eq!(subscribed_topics(third), Some(vec!["a"]));
    }

    #[test]
    fn what_is_no_subscription_names_no_topics() {
        for metadata in [
            &b""[..],
            b"\x00",
            b"\x00\x00\x7f\xff\xff\xff",
            b"\x00\x00\xff\xff\xff\xff",
            b"\x00\x00\x00\x00\x00\x01\x00\x05a",
            b"\x00\x00\x00\x00\x00\x01\x00\x01\xff",
            b"\xff\xff\x00\x00\x00\x00",
        ] {
            assert_eq!(subscribed_topics(metadata), None, "{metadata:?}");
        }
    }

    #[test]
    fn one_silent_member_hides_the_groups_topics() {
        let a = b"\x00\x00\x00\x00\x00\x01\x00\x01a";
        let b = b"\x00\x00\x00\x00\x00\x01\x00\x01b";
        let both = union([&a[..], &b[..]].into_iter());
        assert_eq!(both, Some(HashSet::from(["a".to_owned(), "b".to_owned()])));
        assert_eq!(union([&a[..], b"?"].into_iter()), None);
    }
}
