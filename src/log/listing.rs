//! What lies in a partition's directory, after unfinished deletions and compactions were finished.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use tracing::warn;

use crate::model::Offset;
use crate::runtime::fs::OpenMode;

use super::directory::Place;
use super::error::LogError;
use super::index::Waiting;
use super::names::{
    FileKind, LEADER_EPOCH_CHECKPOINT, MOVE_MARK, PARTITION_METADATA, Stage, parse_file_name,
};
use super::scan::{HeaderScan, ScanError};

/// The live files of a partition.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Base offset → the kinds of files that are there; each has its records.
    pub(super) segments: BTreeMap<Offset, Vec<FileKind>>,
    pub(super) snapshots: BTreeSet<Offset>,
    pub(super) has_partition_metadata: bool,
    pub(super) has_leader_epochs: bool,
    /// Names were changed.
    pub(super) is_changed: bool,
}

impl Listing {
    /// Reads the directory. Removes files that were to be deleted and the output of compactions that did not
    /// finish, puts finished output in place, and removes indexes without records.
    pub(super) fn read(place: &Place) -> Result<Listing, LogError> {
        let mut files = Files::read(place)?;
        let mut is_changed = !files.leftovers.is_empty();
        for name in &files.leftovers {
            remove(place, name)?;
        }
        if !files.swaps.is_empty() {
            files.finish_swaps(place)?;
            is_changed = true;
        }
        let mut listing = Listing {
            has_partition_metadata: files.has_partition_metadata,
            has_leader_epochs: files.has_leader_epochs,
            is_changed,
            ..Listing::default()
        };
        for &(offset, kind) in &files.live {
            if kind == FileKind::ProducerSnapshot {
                listing.snapshots.insert(offset);
            } else if files.live.contains(&(offset, FileKind::Records)) {
                listing.segments.entry(offset).or_default().push(kind);
            } else {
                let name = kind.name(offset);
                warn!(file = %place.join(&name).display(), "removing an index without records");
                remove(place, &name)?;
                listing.is_changed = true;
            }
        }
        Ok(listing)
    }
}

/// Where the producer snapshots of a log that is open are. Touches nothing: what else lies there may be a compaction's,
/// which goes on, or wait for its deletion.
pub(super) fn snapshots(place: &Place) -> Result<BTreeSet<Offset>, LogError> {
    let live = Files::read(place)?.live.into_iter();
    Ok(live.filter(|(_, kind)| *kind == FileKind::ProducerSnapshot).map(|(offset, _)| offset).collect())
}

#[derive(Default)]
struct Files {
    live: BTreeSet<(Offset, FileKind)>,
    swaps: BTreeSet<(Offset, FileKind)>,
    leftovers: Vec<String>,
    has_partition_metadata: bool,
    has_leader_epochs: bool,
}

impl Files {
    fn read(place: &Place) -> Result<Files, LogError> {
        let path = place.path();
        let entries = place.check(place.fs().list(&path), "listing", &path)?;
        let mut files = Files::default();
        // Swap files from the first unfinished one on belong to a split that did not finish.
        let mut first_cleaned: Option<Offset> = None;
        for entry in entries.into_iter().filter(|entry| !entry.is_directory) {
            match parse_file_name(&entry.name) {
                Some((offset, kind, Stage::Live)) => {
                    files.live.insert((offset, kind));
                }
                Some((offset, kind, Stage::Swap)) => {
                    files.swaps.insert((offset, kind));
                }
                Some((offset, _, Stage::Cleaned)) => {
                    first_cleaned = Some(first_cleaned.map_or(offset, |first| first.min(offset)));
                    files.leftovers.push(entry.name);
                }
                Some((_, _, Stage::Deleted)) => files.leftovers.push(entry.name),
                None if entry.name.ends_with(".tmp") => files.leftovers.push(entry.name),
                // The other directory of the partition is gone, or this is the copy.
                None if entry.name == MOVE_MARK => files.leftovers.push(entry.name),
                None => {
                    files.has_partition_metadata |= entry.name == PARTITION_METADATA;
                    files.has_leader_epochs |= entry.name == LEADER_EPOCH_CHECKPOINT;
                }
            }
        }
        if let Some(first_cleaned) = first_cleaned {
            let unfinished = files.swaps.split_off(&(first_cleaned, FileKind::Records));
            files.leftovers.extend(unfinished.into_iter().map(swap_name));
        }
        Ok(files)
    }

    /// A compaction's output replaces the segments whose offsets it covers.
    fn finish_swaps(&mut self, place: &Place) -> Result<(), LogError> {
        let bases: Vec<Offset> = self
            .swaps
            .iter()
            .filter(|(_, kind)| *kind == FileKind::Records)
            .map(|&(offset, _)| offset)
            .collect();
        if let (Some(&first), Some(&last)) = (bases.first(), bases.last()) {
            let end = swapped_end(place, last)?;
            let replaced: Vec<(Offset, FileKind)> = self
                .live
                .iter()
                .copied()
                .filter(|&(offset, kind)| {
                    kind != FileKind::ProducerSnapshot && offset >= first && offset < end
                })
                .collect();
            for file in replaced {
                remove(place, &file.1.name(file.0))?;
                self.live.remove(&file);
            }
        }
        for &(offset, kind) in &self.swaps {
            let (from, to) = (place.join(&swap_name((offset, kind))), place.join(&kind.name(offset)));
            place.check(place.fs().rename(&from, &to), "renaming", &from)?;
            self.live.insert((offset, kind));
        }
        Ok(())
    }
}

/// The offset after the last batch of a swap file.
fn swapped_end(place: &Place, base_offset: Offset) -> Result<Offset, LogError> {
    let path = place.join(&swap_name((base_offset, FileKind::Records)));
    let file = place.check(place.fs().open(&path, OpenMode::Read), "opening", &path)?;
    let size_bytes = place.check(file.size_bytes(), "reading", &path)?;
    let mut scan = HeaderScan::new(file, 0, size_bytes as u32, Waiting::Allowed);
    let mut end = base_offset.plus(1);
    loop {
        match scan.next() {
            Ok(Some((_, header))) => end = header.next_offset(),
            Ok(None) => return Ok(end),
            Err(ScanError::Damaged(error)) => return Err(error.into()),
            Err(ScanError::Io(error)) => return place.check(Err(error), "reading", &path),
        }
    }
}

fn swap_name((offset, kind): (Offset, FileKind)) -> String {
    kind.name_in(Stage::Swap, offset)
}

/// Removes a file that may be missing.
pub(super) fn remove(place: &Place, name: &str) -> Result<(), LogError> {
    let path = place.join(name);
    match place.fs().remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => place.check(outcome, "removing", &path),
    }
}
