use snafu::{OptionExt, Snafu, ensure};

use crate::model::{Offset, ProducerEpoch, ProducerId, Timestamp};

use super::producer_entry::{ProducerEntry, SequencedBatch};
use super::producer_state::ProducerState;

/// Why the bytes are not a producer snapshot. The file is then deleted and an earlier one is read.
#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
pub enum CorruptSnapshot {
    #[snafu(display("the snapshot is cut short"))]
    Cut,
    #[snafu(display("snapshot version {version} is not known"))]
    Version { version: i16 },
    #[snafu(display("the snapshot's CRC is {stored}, its content's {computed}"))]
    Crc { stored: u32, computed: u32 },
    #[snafu(display("the snapshot declares {count} entries and holds {held}"))]
    Count { count: i32, held: usize },
}

const VERSION: i16 = 1;
/// Version and CRC, which the CRC does not cover.
const UNCOVERED: usize = 6;
const HEADER: usize = 10;
const ENTRY: usize = 46;

/// The `.snapshot` file that stands for the state: the last batch of each producer, by producer id.
pub fn encode_snapshot(state: &ProducerState) -> Vec<u8> {
    let count = state.producer_count();
    let mut bytes = Vec::with_capacity(HEADER + count * ENTRY);
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&(count as i32).to_be_bytes());
    for (producer_id, entry) in state.producers() {
        encode_entry(producer_id, entry, &mut bytes);
    }
    let crc = crc32c::crc32c(&bytes[UNCOVERED..]);
    bytes[2..UNCOVERED].copy_from_slice(&crc.to_be_bytes());
    bytes
}

fn encode_entry(producer_id: ProducerId, entry: &ProducerEntry, into: &mut Vec<u8>) {
    let last = entry.last_batch();
    into.extend_from_slice(&producer_id.0.to_be_bytes());
    into.extend_from_slice(&entry.epoch.0.to_be_bytes());
    into.extend_from_slice(&entry.last_sequence().to_be_bytes());
    into.extend_from_slice(&last.as_ref().map_or(Offset::NONE, |batch| batch.last_offset).0.to_be_bytes());
    into.extend_from_slice(&last.map_or(0, |batch| batch.offset_delta).to_be_bytes());
    into.extend_from_slice(&entry.last_timestamp.0.to_be_bytes());
    into.extend_from_slice(&entry.coordinator_epoch.to_be_bytes());
    into.extend_from_slice(&entry.transaction_first_offset().0.to_be_bytes());
}

/// The entries of a `.snapshot` file, for [`ProducerState::load`].
pub fn decode_snapshot(bytes: &[u8]) -> Result<Vec<(ProducerId, ProducerEntry)>, CorruptSnapshot> {
    let (version, rest) = bytes.split_first_chunk().context(CutSnafu)?;
    let version = i16::from_be_bytes(*version);
    ensure!(version == VERSION, VersionSnafu { version });
    let (stored, covered) = rest.split_first_chunk().context(CutSnafu)?;
    let (stored, computed) = (u32::from_be_bytes(*stored), crc32c::crc32c(covered));
    ensure!(stored == computed, CrcSnafu { stored, computed });
    let (count, entries) = covered.split_first_chunk().context(CutSnafu)?;
    let count = i32::from_be_bytes(*count);
    let (entries, rest) = entries.as_chunks::<ENTRY>();
    let is_whole = usize::try_from(count) == Ok(entries.len()) && rest.is_empty();
    ensure!(is_whole, CountSnafu { count, held: entries.len() });
    Ok(entries.iter().map(decode_entry).collect())
}

fn decode_entry(entry: &[u8; ENTRY]) -> (ProducerId, ProducerEntry) {
    let mut rest = &entry[..];
    let producer_id = ProducerId(i64::from_be_bytes(take(&mut rest)));
    let epoch = ProducerEpoch(i16::from_be_bytes(take(&mut rest)));
    let last_sequence = i32::from_be_bytes(take(&mut rest));
    let last_offset = Offset(i64::from_be_bytes(take(&mut rest)));
    let offset_delta = i32::from_be_bytes(take(&mut rest));
    let timestamp = Timestamp(i64::from_be_bytes(take(&mut rest)));
    let coordinator_epoch = i32::from_be_bytes(take(&mut rest));
    let first_offset = Offset(i64::from_be_bytes(take(&mut rest)));
    let last_batch = (last_offset >= Offset::ZERO).then_some(SequencedBatch {
        last_sequence,
        last_offset,
        offset_delta,
        timestamp,
    });
    let first_offset = first_offset.max(Offset::NONE);
    (producer_id, ProducerEntry::new(epoch, coordinator_epoch, timestamp, first_offset, last_batch))
}

fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let (field, after) = rest.split_first_chunk().expect("an entry has room for its fields");
    *rest = after;
    *field
}

#[cfg(test)]
mod tests {
    use crate::records::kafka_folder;

    use super::*;

    fn load(bytes: &[u8]) -> ProducerState {
        ProducerState::load(decode_snapshot(bytes).unwrap(), Offset::ZERO, Timestamp(0), i64::MAX)
    }

    #[test]
    fn snapshots_that_kafka_wrote_read_and_write_back_equal() {
        let (mut files, mut producers) = (0, 0);
        for (path, snapshot) in kafka_folder::files_ending(".snapshot") {
            let state = load(snapshot);
            assert_eq!(encode_snapshot(&state), snapshot[..], "{path}");
            files += 1;
            producers += state.producer_count();
        }
        assert!(files > 20 && producers >= 8, "{files} {producers}");
    }

    #[test]
    fn damage_is_found() {
        let whole = encode_snapshot(&load(&kafka_folder::FILES["txn-0/00000000000000000019.snapshot"]));
        for cut in 0..whole.len() {
            assert!(decode_snapshot(&whole[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x10;
            assert!(decode_snapshot(&flipped).is_err(), "flipped at {at}");
        }
        let mut lying = whole.clone();
        lying[9] += 1;
        let crc = crc32c::crc32c(&lying[UNCOVERED..]);
        lying[2..UNCOVERED].copy_from_slice(&crc.to_be_bytes());
        assert!(matches!(decode_snapshot(&lying), Err(CorruptSnapshot::Count { .. })));
    }
}
