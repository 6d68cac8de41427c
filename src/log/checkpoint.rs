//! The text files that a log directory and its partitions keep, as Kafka reads and writes them.
//!
//! Pure: text in, values out, and back. Writing them so that a crash leaves the old or the new one is up to
//! the caller.

use std::fmt::Write;
use std::str::FromStr;

use snafu::{OptionExt, Snafu, ensure};

use crate::config::parse_properties;
use crate::model::{
    BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionIndex, TopicId, TopicName, TopicPartition,
};

use super::epoch_cache::EpochEntry;

/// Why a text is not the checkpoint that it should be.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
pub enum CheckpointError {
    #[snafu(display("version `{version}` is not known"))]
    UnknownVersion { version: String },
    #[snafu(display("line {line} is malformed: `{text}`"))]
    MalformedLine { line: usize, text: String },
    #[snafu(display("{expected} entries are declared, {found} are there"))]
    WrongCount { expected: usize, found: usize },
    #[snafu(display("its end is missing"))]
    CutOff,
    #[snafu(display("`{key}` is missing"))]
    MissingKey { key: &'static str },
    #[snafu(display("`{key}` is malformed: `{value}`"))]
    MalformedValue { key: &'static str, value: String },
    #[snafu(display("the file is not a properties file"))]
    NotProperties,
}

/// Reads one of the four files of offsets by partition: `recovery-point-offset-checkpoint`,
/// `replication-offset-checkpoint` (high watermarks), `log-start-offset-checkpoint`,
/// `cleaner-offset-checkpoint`. An empty file has no entries.
pub fn parse_offsets(text: &str) -> Result<Vec<(TopicPartition, Offset)>, CheckpointError> {
    parse_entries(text, |line| {
        let [topic, partition, offset] = fields(line)?;
        let topic = TopicName::new(topic).ok()?;
        let partition = PartitionIndex(partition.parse().ok()?);
        Some((TopicPartition::new(topic, partition), Offset(offset.parse().ok()?)))
    })
}

/// The text of a file of offsets by partition.
pub fn format_offsets<'a>(entries: impl ExactSizeIterator<Item = (&'a TopicPartition, Offset)>) -> String {
    format_entries(
        entries.map(|(TopicPartition { topic, partition }, offset)| format!("{topic} {partition} {offset}")),
    )
}

/// Reads a partition's `leader-epoch-checkpoint`. An empty file has no entries.
///
/// It is not synced when it is written: a power loss may leave its beginning, up to the middle of the last number.
pub fn parse_leader_epochs(text: &str) -> Result<Vec<EpochEntry>, CheckpointError> {
    let is_whole = text.ends_with('\n') && text.lines().nth(1).is_some();
    ensure!(text.is_empty() || is_whole, CutOffSnafu);
    parse_entries(text, |line| {
        let [epoch, start_offset] = fields(line)?;
        Some(EpochEntry {
            epoch: LeaderEpoch(epoch.parse().ok()?),
            start_offset: Offset(start_offset.parse().ok()?),
        })
    })
}

/// The text of a partition's `leader-epoch-checkpoint`.
pub fn format_leader_epochs(entries: &[EpochEntry]) -> String {
    format_entries(entries.iter().map(|entry| format!("{} {}", entry.epoch, entry.start_offset)))
}

/// Version, count, then one entry a line.
fn parse_entries<T>(text: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, CheckpointError> {
    let mut lines = text.lines().zip(1usize..);
    let Some((version, _)) = lines.next() else {
        return Ok(Vec::new());
    };
    ensure!(version.trim() == "0", UnknownVersionSnafu { version });
    let Some((count, line)) = lines.next() else {
        return Ok(Vec::new());
    };
    let expected: usize = count.trim().parse().ok().context(MalformedLineSnafu { line, text: count })?;
    let entries = lines
        .map(|(entry, line)| parse(entry).context(MalformedLineSnafu { line, text: entry }))
        .collect::<Result<Vec<T>, _>>()?;
    ensure!(entries.len() == expected, WrongCountSnafu { expected, found: entries.len() });
    Ok(entries)
}

fn format_entries(entries: impl ExactSizeIterator<Item = String>) -> String {
    let mut text = format!("0\n{}\n", entries.len());
    for entry in entries {
        text.push_str(&entry);
        text.push('\n');
    }
    text
}

fn fields<const N: usize>(line: &str) -> Option<[&str; N]> {
    let mut words = line.split_whitespace();
    let mut fields = [""; N];
    for field in &mut fields {
        *field = words.next()?;
    }
    words.next().is_none().then_some(fields)
}

/// Reads a partition's `partition.metadata`: the id of the topic that the folder belongs to.
pub fn parse_partition_metadata(text: &str) -> Result<TopicId, CheckpointError> {
    let mut values = text.lines().map(|line| line.split_once(": ").unwrap_or((line, "")));
    let mut value = |key: &'static str| match values.next() {
        Some((found, value)) if found == key => Ok(value.trim_end()),
        _ => MissingKeySnafu { key }.fail(),
    };
    let version = value("version")?;
    ensure!(version == "0", UnknownVersionSnafu { version });
    let text = value("topic_id")?;
    let topic_id = TopicId::from_str(text).ok().filter(|topic_id| !topic_id.is_zero());
    topic_id.context(MalformedValueSnafu { key: "topic_id", value: text })
}

/// The text of a partition's `partition.metadata`.
pub fn format_partition_metadata(topic_id: TopicId) -> String {
    format!("version: 0\ntopic_id: {topic_id}")
}

/// A log directory's `meta.properties`: whose data it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaProperties {
    pub mode: ClusterMode,
    pub broker_id: Option<BrokerId>,
    pub cluster_id: Option<String>,
}

/// Where the cluster that a log directory belongs to keeps its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterMode {
    /// In ZooKeeper, or in a store of Barnabas: version 0 of the file.
    ZooKeeper,
    /// In `__cluster_metadata-0`: version 1, which also has a `directory.id`. Such a file names a broker and a cluster.
    KRaft,
}

impl ClusterMode {
    fn broker_id_key(self) -> &'static str {
        match self {
            ClusterMode::ZooKeeper => "broker.id",
            ClusterMode::KRaft => "node.id",
        }
    }
}

impl MetaProperties {
    pub fn parse(bytes: &[u8]) -> Result<MetaProperties, CheckpointError> {
        let properties = parse_properties(bytes).ok().context(NotPropertiesSnafu)?;
        let mode = match properties.get("version").context(MissingKeySnafu { key: "version" })?.trim() {
            "0" => ClusterMode::ZooKeeper,
            "1" => ClusterMode::KRaft,
            version => return UnknownVersionSnafu { version }.fail(),
        };
        let key = mode.broker_id_key();
        let broker_id = properties.get(key).map(|value| value.trim());
        let broker_id = broker_id
            .map(|value| value.parse().map(BrokerId).ok().context(MalformedValueSnafu { key, value }))
            .transpose()?;
        let cluster_id = properties.get("cluster.id").map(|id| id.trim().to_owned());
        if mode == ClusterMode::KRaft {
            ensure!(broker_id.is_some(), MissingKeySnafu { key });
            ensure!(cluster_id.is_some(), MissingKeySnafu { key: "cluster.id" });
        }
        Ok(MetaProperties { mode, broker_id, cluster_id })
    }

    /// Whether both are of one broker of one cluster.
    pub fn names_the_same(&self, other: &MetaProperties) -> bool {
        (self.broker_id, &self.cluster_id) == (other.broker_id, &other.cluster_id)
    }

    /// The text of a new file; a KRaft broker gives a directory its id itself.
    pub fn format(&self) -> String {
        let mut text = String::from("#\n");
        if let Some(broker_id) = self.broker_id {
            let _ = writeln!(text, "{}={broker_id}", self.mode.broker_id_key());
        }
        let version = match self.mode {
            ClusterMode::ZooKeeper => 0,
            ClusterMode::KRaft => 1,
        };
        let _ = writeln!(text, "version={version}");
        if let Some(cluster_id) = &self.cluster_id {
            let _ = writeln!(text, "cluster.id={cluster_id}");
        }
        text
    }
}

/// Reads `.kafka_cleanshutdown`, whose existence says that the logs need no recovery.
///
/// `None` when it names no epoch of its broker: old versions wrote an empty file.
pub fn parse_clean_shutdown(text: &str) -> Option<BrokerEpoch> {
    let (_, after) = text.split_once("\"brokerEpoch\"")?;
    let value = after.trim_start().strip_prefix(':')?.trim_start();
    let end = value.find(|c: char| c != '-' && !c.is_ascii_digit()).unwrap_or(value.len());
    value[..end].parse().map(BrokerEpoch).ok()
}

/// The text of `.kafka_cleanshutdown`; a broker in a ZooKeeper cluster has no epoch to keep there.
pub fn format_clean_shutdown(epoch: Option<BrokerEpoch>) -> String {
    format!("{{\"version\":0,\"brokerEpoch\":{}}}", epoch.unwrap_or(BrokerEpoch(-1)))
}

#[cfg(test)]
mod tests {
    use crate::records::kafka_folder;

    use super::*;

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn files_of_offsets_that_kafka_wrote_read_and_write_back_equal() {
        let mut count = 0;
        for (path, file) in kafka_folder::files_ending("-offset-checkpoint") {
            let entries = parse_offsets(text(file)).unwrap();
            let written = format_offsets(entries.iter().map(|(partition, offset)| (partition, *offset)));
            assert_eq!(written, text(file), "{path}");
            count += entries.len();
        }
        assert!(count > 60, "{count}");
    }

    #[test]
    fn leader_epochs_that_kafka_wrote_read_and_write_back_equal() {
        for (path, file) in kafka_folder::files_ending("leader-epoch-checkpoint") {
            assert_eq!(format_leader_epochs(&parse_leader_epochs(text(file)).unwrap()), text(file), "{path}");
        }
    }

    #[test]
    fn partition_metadata_that_kafka_wrote_reads_and_writes_back_equal() {
        for (path, file) in kafka_folder::files_ending("partition.metadata") {
            assert_eq!(
                format_partition_metadata(parse_partition_metadata(text(file)).unwrap()),
                text(file),
                "{path}"
            );
        }
    }

    #[test]
    fn the_small_files_of_a_log_directory_read_as_kafka_meant_them() {
        let meta = MetaProperties::parse(&kafka_folder::FILES["meta.properties"]).unwrap();
        let cluster_id = Some("VQCklX-2RYaiQCeEkPRGfw".to_owned());
        let mode = ClusterMode::ZooKeeper;
        assert_eq!(meta, MetaProperties { mode, broker_id: Some(BrokerId(1)), cluster_id });
        assert_eq!(MetaProperties::parse(meta.format().as_bytes()), Ok(meta));
        let clean = text(&kafka_folder::FILES[".kafka_cleanshutdown"]);
        assert_eq!(parse_clean_shutdown(clean), Some(BrokerEpoch(-1)));
        assert_eq!(format_clean_shutdown(None), clean);
        assert_eq!(parse_clean_shutdown(""), None);
        assert_eq!(parse_clean_shutdown("{ \"brokerEpoch\" : 17, \"version\": 0 }"), Some(BrokerEpoch(17)));
    }

    #[test]
    fn a_kraft_brokers_meta_properties_name_broker_and_cluster() {
        let text = "#\n#Mon Nov 30 11:00:00 UTC 2026\ncluster.id=AAAAAAAAQACAAAAAAAAAAQ\n\
                    directory.id=kqhnVp2fQBOaLzyvVvoFmQ\nnode.id=3\nversion=1\n";
        let meta = MetaProperties::parse(text.as_bytes()).unwrap();
        let cluster_id = Some("AAAAAAAAQACAAAAAAAAAAQ".to_owned());
        assert_eq!(
            meta,
            MetaProperties { mode: ClusterMode::KRaft, broker_id: Some(BrokerId(3)), cluster_id }
        );
        assert_eq!(MetaProperties::parse(meta.format().as_bytes()), Ok(meta));
    }

    #[track_caller]
    fn refuses(text: &str, expected: CheckpointError) {
        assert_eq!(parse_offsets(text), Err(expected));
    }

    #[test]
    fn malformed_files_of_offsets_are_refused_with_the_line() {
        use CheckpointError::*;
        assert_eq!(parse_offsets(""), Ok(Vec::new()));
        refuses("1\n0\n", UnknownVersion { version: "1".into() });
        refuses("0\nx\n", MalformedLine { line: 2, text: "x".into() });
        refuses("0\n2\na 0 1\n", WrongCount { expected: 2, found: 1 });
        refuses("0\n0\na 0 1\n", WrongCount { expected: 0, found: 1 });
        for line in ["a 0", "a 0 1 2", "a x 1", "a/b 0 1", "a 0 99999999999999999999", ""] {
            refuses(&format!("0\n1\n{line}\n"), MalformedLine { line: 3, text: line.into() });
        }
    }

    #[test]
    fn the_beginning_of_a_file_of_leader_epochs_is_refused() {
        let entry = |epoch, offset| EpochEntry { epoch: LeaderEpoch(epoch), start_offset: Offset(offset) };
        let whole = format_leader_epochs(&[entry(0, 0), entry(8, 377), entry(11, 453)]);
        for end in 1..whole.len() {
            assert!(parse_leader_epochs(&whole[..end]).is_err(), "{}", &whole[..end]);
        }
        assert_eq!(parse_leader_epochs("0\n0\n"), Ok(Vec::new()));
        assert_eq!(parse_leader_epochs(""), Ok(Vec::new()));
    }

    #[test]
    fn malformed_metadata_is_refused() {
        for text in
            ["", "version: 0", "version: 1\ntopic_id: x", "topic_id: 4LcLrWMvQ3WkgccowGIRXA\nversion: 0"]
        {
            assert!(parse_partition_metadata(text).is_err(), "{text}");
        }
        let zero = format_partition_metadata(TopicId::ZERO);
        assert!(parse_partition_metadata(&zero).is_err());
        for text in [
            "",
            "version=2\nnode.id=1",
            "version=1\nnode.id=1",
            "version=1\ncluster.id=c",
            "version=0\nbroker.id=x",
        ] {
            assert!(MetaProperties::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
