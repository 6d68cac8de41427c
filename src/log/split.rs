//! Segments whose offsets reach further than their indexes can express: broken compactions of Kafka before 1.1.1 left
//! them (KAFKA-6264).

use snafu::ensure;

use crate::model::Offset;
use crate::records::BatchHeader;
use crate::runtime::fs::OpenMode;

use super::cleaner::{CleanedSegment, Output};
use super::directory::Place;
use super::error::{DamagedSnafu, LogError};
use super::listing::remove;
use super::names::{FileKind, Stage};
use super::scan::{BatchScan, ScanError};
use super::transaction_index::{AbortedTransaction, decode_index};

/// Puts several segments in the place of one, each as long as its indexes allow. Durable when it returns.
///
/// The order of renames is Kafka's, and a restart finishes or drops what is half done. The last of the new segments
/// gets its `.swap` name first: as long as there is a `.cleaned` one, the old segment is the one that counts.
///
/// What is torn at or behind the recovery point is left out. Errors: [`LogError::Damaged`] for what is below.
pub(super) fn split_overflowed(
    place: &Place,
    base_offset: Offset,
    recovery_point: Offset,
    index_interval_bytes: u32,
) -> Result<(), LogError> {
    let parts = write_parts(place, base_offset, recovery_point, index_interval_bytes)?;
    place.sync()?;
    for part in parts.iter().rev() {
        rename(place, part, Stage::Cleaned, Stage::Swap)?;
        place.sync()?;
    }
    if parts.first().is_some_and(|first| !first.has_transaction_index) {
        remove(place, &FileKind::TransactionIndex.name(base_offset))?;
    }
    for part in &parts {
        rename(place, part, Stage::Swap, Stage::Live)?;
        place.sync()?;
    }
    Ok(())
}

fn write_parts(
    place: &Place,
    base_offset: Offset,
    recovery_point: Offset,
    index_interval_bytes: u32,
) -> Result<Vec<CleanedSegment>, LogError> {
    let path = place.join(&FileKind::Records.name(base_offset));
    let modified = place.check(place.fs().metadata(&path), "reading", &path)?.modified;
    let file = place.check(place.fs().open(&path, OpenMode::Read), "opening", &path)?;
    let size_bytes = place.check(file.size_bytes(), "reading", &path)?;
    let mut aborted = read_aborted(place, base_offset)?;
    let mut scan = BatchScan::new(file, 0, u32::try_from(size_bytes).unwrap_or(u32::MAX));
    let mut output = Output::create(place, base_offset, index_interval_bytes)?;
    let (mut parts, mut next_offset) = (Vec::new(), base_offset);
    loop {
        let batch = match scan.next() {
            Ok(Some(batch)) => batch,
            Ok(None) => break,
            Err(ScanError::Io(error)) => return place.check(Err(error), "reading", &path),
            Err(ScanError::Damaged(error)) => {
                let damage = format!("after offset {next_offset}: {error}");
                ensure!(next_offset >= recovery_point, DamagedSnafu { path, damage });
                break;
            }
        };
        if batch.header.last_offset().since(output.base_offset()) > i64::from(i32::MAX) {
            let base_offset = base_of(&batch.header, next_offset);
            let next = Output::create(place, base_offset, index_interval_bytes)?;
            let ended = std::mem::replace(&mut output, next);
            parts.push(ended.finish(place, &take_below(&mut aborted, base_offset), modified)?);
        }
        next_offset = batch.header.next_offset();
        output.append(place, &batch.header, batch.bytes)?;
    }
    parts.push(output.finish(place, &aborted, modified)?);
    Ok(parts)
}

/// Where a segment begins whose first batch this is. Where old messages begin that are compressed together is not
/// told: it begins as early as it may.
fn base_of(header: &BatchHeader, next_offset: Offset) -> Offset {
    match header.magic {
        0 | 1 => header.last_offset().plus(-i64::from(i32::MAX)).max(next_offset),
        _ => header.base_offset,
    }
}

fn read_aborted(place: &Place, base_offset: Offset) -> Result<Vec<AbortedTransaction>, LogError> {
    let index = place.read(&FileKind::TransactionIndex.name(base_offset))?.unwrap_or_default();
    Ok(decode_index(&index).map_while(Result::ok).collect())
}

/// A transaction index names the transactions that end in its segment.
fn take_below(aborted: &mut Vec<AbortedTransaction>, offset: Offset) -> Vec<AbortedTransaction> {
    let count = aborted.partition_point(|aborted| aborted.last_offset < offset);
    aborted.drain(..count).collect()
}

fn rename(place: &Place, part: &CleanedSegment, from: Stage, to: Stage) -> Result<(), LogError> {
    let has = |kind: &FileKind| *kind != FileKind::TransactionIndex || part.has_transaction_index;
    for kind in FileKind::OF_SEGMENT.into_iter().filter(has) {
        let from = place.join(&kind.name_in(from, part.base_offset));
        let to = place.join(&kind.name_in(to, part.base_offset));
        place.check(place.fs().rename(&from, &to), "renaming", &from)?;
    }
    Ok(())
}
