//! The topics' settings.

use super::Bounds::*;
use super::Kind::*;
use super::Support::*;
use super::{Key, Support, Update, default_text, is_internal};

const TIERED: Support = NotYet("tiered storage");

macro_rules! rows {
    ($($($internal:ident)? $name:literal, $kind:expr, $default:tt, $bounds:expr, $support:expr, $synonyms:expr, $documentation:literal;)*) => {
        &[$(Key {
            name: $name,
            kind: $kind,
            default: default_text!($default),
            bounds: $bounds,
            update: Update::ClusterWide,
            support: $support,
            synonyms: $synonyms,
            is_internal: is_internal!($($internal)?),
            documentation: $documentation,
        },)*]
    };
}

/// Every topic key of Kafka 3.9; 4.x has no further one that is meant for users.
#[rustfmt::skip]
pub const TOPIC: &[Key] = rows! {
    "cleanup.policy",                          List,    "delete",              OneOf(&["compact", "delete"]), Honoured,    &["log.cleanup.policy"],                  "What happens to old segments: delete, compact, or both.";
    "compression.gzip.level",                  Int,     "-1",                  GzipLevel,                Honoured,    &["compression.gzip.level"],              "Level where the broker itself compresses with gzip; -1 = the codec's default.";
    "compression.lz4.level",                   Int,     "9",                   Between(1, 17),           Honoured,    &["compression.lz4.level"],               "Level where the broker itself compresses with lz4; 9 = the fast compressor, any other = the high one.";
    "compression.type",                        Text,    "producer",            OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), Honoured,    &["compression.type"],                    "Codec of stored batches; producer = keep what the producer chose.";
    "compression.zstd.level",                  Int,     "3",                   Between(-131072, 22),     Honoured,    &["compression.zstd.level"],              "Level where the broker itself compresses with zstd.";
    "delete.retention.ms",                     Long,    "86400000",            AtLeast(0),               Honoured,    &["log.cleaner.delete.retention.ms"],     "Time a compacted log keeps tombstones.";
    "file.delete.delay.ms",                    Long,    "60000",               AtLeast(0),               Honoured,    &["log.segment.delete.delay.ms"],         "Time between renaming a deleted file and removing it.";
    "flush.messages",                          Long,    "9223372036854775807", AtLeast(1),               Honoured,    &["log.flush.interval.messages"],         "Records after which the log is forced to disk.";
    "flush.ms",                                Long,    "9223372036854775807", AtLeast(0),               Honoured,    &["log.flush.interval.ms", "log.flush.scheduler.interval.ms"], "Longest time a record stays unforced.";
    "follower.replication.throttled.replicas", List,    "",                    ThrottledReplicas,        Honoured,    &[],                                      "Followers whose fetching is throttled, as partition:broker,… or *.";
    "index.interval.bytes",                    Int,     "4096",                AtLeast(0),               Honoured,    &["log.index.interval.bytes"],            "Bytes of records between two index entries.";
    "leader.replication.throttled.replicas",   List,    "",                    ThrottledReplicas,        Honoured,    &[],                                      "Leaders whose replication is throttled, as partition:broker,… or *.";
    "local.retention.bytes",                   Long,    "-2",                  AtLeast(-2),              TIERED,      &["log.local.retention.bytes"],           "Bytes kept locally of a tiered log; -2 = the whole retention.";
    "local.retention.ms",                      Long,    "-2",                  AtLeast(-2),              TIERED,      &["log.local.retention.ms"],              "Time kept locally of a tiered log; -2 = the whole retention.";
    "max.compaction.lag.ms",                   Long,    "9223372036854775807", AtLeast(1),               Honoured,    &["log.cleaner.max.compaction.lag.ms"],   "Longest time a record may stay uncompacted.";
    "max.message.bytes",                       Int,     "1048588",             AtLeast(0),               Honoured,    &["message.max.bytes"],                   "Largest record batch that is accepted, as stored.";
    "message.downconversion.enable",           Boolean, "true",                Any,                      Honoured,    &["log.message.downconversion.enable"],   "Whether batches are converted for consumers that only read older formats.";
    "message.format.version",                  Text,    "3.0-IV1",             ProtocolVersion,          Honoured,    &["log.message.format.version"],          "Record format of new batches, by the release that brought it; has effect only while inter.broker.protocol.version is below 3.0.";
    "message.timestamp.after.max.ms",          Long,    "9223372036854775807", AtLeast(0),               Honoured,    &["log.message.timestamp.after.max.ms"],  "How far a record's create time may lie after the broker's clock.";
    "message.timestamp.before.max.ms",         Long,    "9223372036854775807", AtLeast(0),               Honoured,    &["log.message.timestamp.before.max.ms"], "How far a record's create time may lie before the broker's clock.";
    "message.timestamp.difference.max.ms",     Long,    "9223372036854775807", AtLeast(0),               Honoured,    &["log.message.timestamp.difference.max.ms"], "Older form of the two bounds above, used where those keep their default.";
    "message.timestamp.type",                  Text,    "CreateTime",          OneOf(&["CreateTime", "LogAppendTime"]), Honoured,    &["log.message.timestamp.type"],          "Whose clock stamps a record: the producer's (CreateTime) or the broker's (LogAppendTime).";
    "min.cleanable.dirty.ratio",               Double,  "0.5",                 Between(0, 1),            Honoured,    &["log.cleaner.min.cleanable.ratio"],     "Share of uncompacted bytes from which the log is compacted.";
    "min.compaction.lag.ms",                   Long,    "0",                   AtLeast(0),               Honoured,    &["log.cleaner.min.compaction.lag.ms"],   "Time a record is safe from compaction.";
    "min.insync.replicas",                     Int,     "1",                   AtLeast(1),               Honoured,    &["min.insync.replicas"],                 "In-sync replicas that a write with acks=all needs.";
    "preallocate",                             Boolean, "false",               Any,                      Honoured,    &["log.preallocate"],                     "Whether a new segment file is given its full size at once.";
    "remote.log.copy.disable",                 Boolean, "false",               Any,                      TIERED,      &[],                                      "Whether a tiered topic stops copying and becomes read-only remotely.";
    "remote.log.delete.on.disable",            Boolean, "false",               Any,                      TIERED,      &[],                                      "Whether remote data is deleted when tiering is switched off.";
    "remote.storage.enable",                   Boolean, "false",               Any,                      TIERED,      &[],                                      "Whether the topic is tiered.";
    "retention.bytes",                         Long,    "-1",                  Any,                      Honoured,    &["log.retention.bytes"],                 "Size of a partition from which its oldest segments are deleted; -1 = no bound.";
    "retention.ms",                            Long,    "604800000",           AtLeast(-1),              Honoured,    &["log.retention.ms", "log.retention.minutes", "log.retention.hours"], "Age from which segments are deleted; -1 = no bound.";
    "segment.bytes",                           Int,     "1073741824",          AtLeast(14),              Honoured,    &["log.segment.bytes"],                   "Size at which a new segment is begun.";
    "segment.index.bytes",                     Int,     "10485760",            AtLeast(4),               Honoured,    &["log.index.size.max.bytes"],            "Size at which an index is full and its segment rolls.";
    "segment.jitter.ms",                       Long,    "0",                   AtLeast(0),               Honoured,    &["log.roll.jitter.ms", "log.roll.jitter.hours"], "Up to this much, at random, is taken off the time of each roll.";
    "segment.ms",                              Long,    "604800000",           AtLeast(1),               Honoured,    &["log.roll.ms", "log.roll.hours"],       "Age at which a new segment is begun.";
    "unclean.leader.election.enable",          Boolean, "false",               Any,                      Honoured,    &["unclean.leader.election.enable"],      "Whether a replica outside the ISR may lead when no other can, losing records.";
};
