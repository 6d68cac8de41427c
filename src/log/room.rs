//! The room on the volume of a log directory: how much of it records may take.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use tracing::{error, info};

use super::directory::LogDirectory;
use super::error::{DiskFullSnafu, LogError};

/// Keeps a part of the volume free, so that retention, compaction and checkpoints can work, and make room, when
/// records have taken all the rest.
///
/// The file system is asked only now and then: appends take from what it said last, and the closer the end is, the
/// sooner it is asked again. Other writers on the volume are seen at the next question. Appends that come together may
/// take a little more than there is; the reserve is there for that too.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// `barnabas.log.dirs.reserved.bytes`; 0 = none.
    reserve_bytes_max: AtomicU64,
    /// What may be taken before the file system is asked.
    granted_bytes: AtomicI64,
    /// Records were refused, or would be.
    is_short: AtomicBool,
    /// The largest that were refused since then: as long as they would be again, room is short.
    refused_bytes: AtomicI64,
}

/// What bytes are taken for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claim {
    /// Records of clients, or of the leader that is followed.
    Records,
    /// What coordinators write: it may take half of the reserve.
    State,
}

/// No more than this part of a small volume is kept free.
const RESERVE_PART: u64 = 20;
/// The part of the free room that is granted at once: other directories may lie on the same volume.
const GRANTED_PART: i64 = 16;

impl LogDirectory {
    /// Keeps this much of the volume free of records, or a twentieth of it if that is less.
    pub(super) fn keep_free(&self, reserve_bytes_max: u64) {
        self.room.reserve_bytes_max.store(reserve_bytes_max, Ordering::Relaxed);
        self.room.granted_bytes.store(0, Ordering::Relaxed);
    }

    /// Whether records have no room left.
    pub fn is_short_of_room(&self) -> bool {
        self.room.is_short.load(Ordering::Relaxed)
    }

    /// Takes room for records to append.
    ///
    /// Errors: [`LogError::DiskFull`] if it would cut into the reserve.
    pub(super) fn take_room(&self, size_bytes: u64, claim: Claim) -> Result<(), LogError> {
        if self.room.reserve_bytes_max.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let wanted = i64::try_from(size_bytes).unwrap_or(i64::MAX);
        let before = self.room.granted_bytes.fetch_sub(wanted, Ordering::Relaxed);
        if before >= wanted { Ok(()) } else { self.ask_for_room(wanted, claim) }
    }

    fn ask_for_room(&self, wanted: i64, claim: Claim) -> Result<(), LogError> {
        let Some(Free { bytes, reserve_bytes }) = self.free() else { return Ok(()) };
        let left = bytes.saturating_sub(wanted);
        self.room.granted_bytes.store((left / GRANTED_PART).max(0), Ordering::Relaxed);
        if left >= 0 {
            self.note_room(left);
            return Ok(());
        }
        if claim == Claim::State && left + reserve_bytes / 2 >= 0 {
            return Ok(());
        }
        self.note_full(wanted);
        DiskFullSnafu { doing: "appending to logs in", path: self.path() }.fail()
    }

    /// Looks whether there is room again, or none any more.
    pub(super) fn look_for_room(&self) {
        let is_asked = self.is_short_of_room() || self.room.reserve_bytes_max.load(Ordering::Relaxed) > 0;
        match is_asked.then(|| self.free()).flatten() {
            Some(free) if free.bytes > 0 => self.note_room(free.bytes),
            Some(_) => self.note_full(0),
            None => {}
        }
    }

    /// What records may take; negative when the reserve is used. `None` if the file system does not say.
    fn free(&self) -> Option<Free> {
        let space = self.fs.space(self.path()).ok()?;
        let reserve_bytes_max = self.room.reserve_bytes_max.load(Ordering::Relaxed);
        let reserve_bytes = reserve_bytes_max.min(space.total_bytes / RESERVE_PART);
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let (usable_bytes, reserve_bytes) = (signed(space.usable_bytes), signed(reserve_bytes));
        Some(Free { bytes: usable_bytes - reserve_bytes, reserve_bytes })
    }

    /// The volume took no more, or so many bytes of records had to leave it its reserve. Told once.
    pub(super) fn note_full(&self, refused_bytes: i64) {
        self.room.refused_bytes.fetch_max(refused_bytes, Ordering::Relaxed);
        if !self.room.is_short.swap(true, Ordering::Relaxed) {
            let directory = self.path().display();
            error!(%directory, "no room left: records are refused until there is, reads go on");
        }
    }

    /// There is this much for records.
    fn note_room(&self, free_bytes: i64) {
        let is_enough = free_bytes >= self.room.refused_bytes.load(Ordering::Relaxed);
        if is_enough && self.room.is_short.swap(false, Ordering::Relaxed) {
            self.room.refused_bytes.store(0, Ordering::Relaxed);
            info!(directory = %self.path().display(), "there is room for records again");
        }
    }
}

struct Free {
    bytes: i64,
    reserve_bytes: i64,
}
