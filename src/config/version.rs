use std::fmt;

/// A value of `inter.broker.protocol.version`: which versions of inter-broker requests the cluster speaks.
///
/// Ordered by age. Its name is the exact one of the level; parsing also takes a release, `3.9` or `3.9.2`,
/// which stands for that release's last level.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProtocolVersion(u8);

/// A format of stored records, by its magic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordVersion {
    V0,
    V1,
    V2,
}

/// Oldest first; every level that Kafka 3.9 and 4.0 know.
const NAMES: &[&str] = &[
    "0.8.0",
    "0.8.1",
    "0.8.2",
    "0.9.0",
    "0.10.0-IV0",
    "0.10.0-IV1",
    "0.10.1-IV0",
    "0.10.1-IV1",
    "0.10.1-IV2",
    "0.10.2-IV0",
    "0.11.0-IV0",
    "0.11.0-IV1",
    "0.11.0-IV2",
    "1.0-IV0",
    "1.1-IV0",
    "2.0-IV0",
    "2.0-IV1",
    "2.1-IV0",
    "2.1-IV1",
    "2.1-IV2",
    "2.2-IV0",
    "2.2-IV1",
    "2.3-IV0",
    "2.3-IV1",
    "2.4-IV0",
    "2.4-IV1",
    "2.5-IV0",
    "2.6-IV0",
    "2.7-IV0",
    "2.7-IV1",
    "2.7-IV2",
    "2.8-IV0",
    "2.8-IV1",
    "3.0-IV0",
    "3.0-IV1",
    "3.1-IV0",
    "3.2-IV0",
    "3.3-IV0",
    "3.3-IV1",
    "3.3-IV2",
    "3.3-IV3",
    "3.4-IV0",
    "3.5-IV0",
    "3.5-IV1",
    "3.5-IV2",
    "3.6-IV0",
    "3.6-IV1",
    "3.6-IV2",
    "3.7-IV0",
    "3.7-IV1",
    "3.7-IV2",
    "3.7-IV3",
    "3.7-IV4",
    "3.8-IV0",
    "3.9-IV0",
    "4.0-IV0",
    "4.0-IV1",
];

impl ProtocolVersion {
    /// `None` when no level has this name.
    pub fn parse(text: &str) -> Option<ProtocolVersion> {
        let numbers = if text.starts_with("0.") { 3 } else { 2 };
        let mut wanted = text;
        if let Some((end, _)) = text.match_indices('.').nth(numbers - 1) {
            wanted = &text[..end];
        }
        let at = NAMES.iter().rposition(|&name| name == wanted || release(name) == wanted)?;
        u8::try_from(at).ok().map(ProtocolVersion)
    }

    /// From this level on `message.format.version` has no effect: records are stored in the newest format.
    pub(super) fn ignores_message_format(self) -> bool {
        ProtocolVersion::parse("3.0-IV1").is_some_and(|first| self >= first)
    }

    /// The record format that came with the level, or before it.
    pub fn record_version(self) -> RecordVersion {
        let is_at_least = |name| ProtocolVersion::parse(name).is_some_and(|level| self >= level);
        if is_at_least("0.11.0-IV0") {
            RecordVersion::V2
        } else if is_at_least("0.10.0-IV0") {
            RecordVersion::V1
        } else {
            RecordVersion::V0
        }
    }

    /// The oldest level with the same record format.
    pub(super) fn first_of_record_version(self) -> ProtocolVersion {
        let levels = (0..=self.0).map(ProtocolVersion);
        levels.into_iter().find(|level| level.record_version() == self.record_version()).unwrap_or(self)
    }

    pub fn name(self) -> &'static str {
        NAMES[usize::from(self.0)]
    }

    /// The release the level belongs to, such as `3.9`.
    pub fn release(self) -> &'static str {
        release(self.name())
    }
}

fn release(name: &str) -> &str {
    name.split_once('-').map_or(name, |(release, _)| release)
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, name: Option<&str>) {
        assert_eq!(ProtocolVersion::parse(text).map(ProtocolVersion::name), name, "{text}");
    }

    #[test]
    fn a_release_stands_for_its_last_level() {
        check("3.9", Some("3.9-IV0"));
        check("2.7", Some("2.7-IV2"));
        check("2.8.1", Some("2.8-IV1"));
        check("0.10.2.1", Some("0.10.2-IV0"));
        check("0.9.0", Some("0.9.0"));
        check("2.7-IV1", Some("2.7-IV1"));
        check("9.9", None);
        check("2", None);
        check("", None);
    }

    #[test]
    fn record_formats_came_with_0_10_and_0_11() {
        let format = |text| ProtocolVersion::parse(text).unwrap().record_version();
        assert_eq!(format("0.9.0"), RecordVersion::V0);
        assert_eq!(format("0.10.0-IV0"), RecordVersion::V1);
        assert_eq!(format("0.10.2"), RecordVersion::V1);
        assert_eq!(format("0.11.0-IV0"), RecordVersion::V2);
        let is_ignored = |text| ProtocolVersion::parse(text).unwrap().ignores_message_format();
        assert!(is_ignored("3.0-IV1") && is_ignored("3.9") && !is_ignored("3.0-IV0") && !is_ignored("2.8"));
    }

    #[test]
    fn levels_are_ordered_by_age() {
        assert!(ProtocolVersion::parse("2.8") < ProtocolVersion::parse("3.0"));
        assert!(ProtocolVersion::parse("0.11.0-IV2") > ProtocolVersion::parse("0.11.0-IV1"));
    }
}
