//! What clients fetch again and again, so that they need not say it each time (KIP-227). Pure.
//!
//! A follower's session has thousands of partitions, of which few change between two fetches. It watches them, and a fetch
//! looks at those alone that are named in it or changed. From time to time a fetch looks at all: what no watch tells, such
//! as a log start that retention raised, is told then, and the leader sees that the follower still asks for all of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use indexmap::IndexMap;
use parking_lot::Mutex;
use snafu::Snafu;

use crate::model::{LeaderEpoch, Offset, PartitionIndex, Timestamp, TopicId, TopicName};
use crate::purgatory::{Changes, Registration, Waiter, WatchList};

/// A topic as the client names it: by id from Fetch v13 on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TopicRef {
    Name(TopicName),
    /// A name that no topic can have; answered with its own error.
    IllegalName(String),
    Id(TopicId),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartitionKey {
    pub topic: TopicRef,
    pub partition: PartitionIndex,
}

/// What a client wants of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    pub fetch_offset: Offset,
    pub bytes_max: i32,
    /// `-1` skips fencing.
    pub current_leader_epoch: LeaderEpoch,
    /// Epoch of the last record the client has; `-1` = none, no divergence check.
    pub last_fetched_epoch: LeaderEpoch,
    /// A follower's log start offset; `-1` from consumers.
    pub log_start_offset: Offset,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Snafu)]
pub enum FetchSessionError {
    #[snafu(display("no such fetch session"))]
    IdNotFound,
    #[snafu(display("the fetch session is at another epoch"))]
    InvalidEpoch,
    #[snafu(display("the fetch session names topics the other way"))]
    TopicIdUse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchSessionOptions {
    /// `max.incremental.fetch.session.cache.slots`.
    pub slots_max: usize,
    /// A session unused for so long may be evicted for a new one.
    pub eviction_ms: i64,
    /// After so long a follower's fetch looks at all partitions again. Well below `replica.lag.time.max.ms`, as an idle
    /// follower is seen to live by it.
    pub look_at_all_ms: i64,
}

impl Default for FetchSessionOptions {
    fn default() -> Self {
        FetchSessionOptions { slots_max: 1000, eviction_ms: 120_000, look_at_all_ms: 3_000 }
    }
}

/// How one fetch relates to a session.
#[derive(Debug)]
pub enum FetchKind {
    /// No session, or the end of one.
    Sessionless,
    /// Everything is named and everything is answered; a session may start with the answer.
    Full,
    /// Only changes are named, only changes are answered.
    Incremental(Arc<Mutex<Session>>),
}

/// One fetch: the partitions that it has to look at, in the order in which they are served.
#[derive(Debug)]
pub struct FetchContext {
    pub kind: FetchKind,
    pub partitions: Vec<(PartitionKey, FetchPartition)>,
    uses_topic_ids: bool,
    is_follower: bool,
}

/// What the answer to one partition would say, as far as an incremental answer depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionChange {
    pub has_records: bool,
    pub has_error: bool,
    /// Diverging epoch or preferred replica: must be said.
    pub has_news: bool,
    /// The next fetch has to look at it again: there is more than the client has, or it is a follower out of sync.
    pub is_behind: bool,
    pub high_watermark: Offset,
    pub log_start_offset: Offset,
}

/// All fetch sessions of this broker.
pub struct FetchSessions {
    options: FetchSessionOptions,
    sessions: Mutex<HashMap<i32, Arc<Mutex<Session>>>>,
}

/// What one client fetches.
#[derive(Debug)]
pub struct Session {
    id: i32,
    epoch: i32,
    uses_topic_ids: bool,
    is_follower: bool,
    created: Timestamp,
    last_used: Timestamp,
    partitions: IndexMap<PartitionKey, Cached>,
    /// `Some` for followers.
    watched: Option<Watched>,
}

/// The partitions of a session by slots, which they keep as long as they are in it.
#[derive(Debug)]
struct Watched {
    waiter: Waiter,
    /// `None` = free.
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    /// Behind the one that gave records last: the others get their turn.
    next: u32,
    looked_at_all: Option<Timestamp>,
}

#[derive(Debug)]
struct Slot {
    key: PartitionKey,
    /// `None` = its partition has not been found yet.
    registration: Option<Registration>,
}

#[derive(Clone, Copy, Debug)]
struct Cached {
    wanted: FetchPartition,
    /// Unused where the session watches nothing.
    slot: u32,
    /// As last told to the client; `-1` = tell it again.
    high_watermark: Offset,
    log_start_offset: Offset,
    /// Its place among those that gave records to the answer being made; 0 = gave none.
    served: u32,
}

pub const INITIAL_EPOCH: i32 = 0;
pub const FINAL_EPOCH: i32 = -1;
pub const NO_SESSION: i32 = 0;

impl FetchSessions {
    pub fn new(options: FetchSessionOptions) -> FetchSessions {
        FetchSessions { options, sessions: Mutex::new(HashMap::new()) }
    }

    pub fn len(&self) -> usize {
        self.sessions.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What all sessions together remember of partitions.
    pub fn memory_bytes(&self) -> usize {
        let sessions: Vec<_> = self.sessions.lock().values().cloned().collect();
        let partitions: usize = sessions.iter().map(|session| session.lock().partitions.len()).sum();
        let each = size_of::<(PartitionKey, Cached)>() + size_of::<Slot>();
        sessions.len() * size_of::<Session>() + partitions * each
    }

    /// Finds what a fetch with this session id and epoch means.
    #[allow(clippy::too_many_arguments)]
    pub fn begin(
        &self,
        session_id: i32,
        epoch: i32,
        uses_topic_ids: bool,
        is_follower: bool,
        partitions: Vec<(PartitionKey, FetchPartition)>,
        forgotten: &[PartitionKey],
        now: Timestamp,
    ) -> Result<FetchContext, FetchSessionError> {
        if epoch == INITIAL_EPOCH || epoch == FINAL_EPOCH {
            if session_id != NO_SESSION {
                self.sessions.lock().remove(&session_id);
            }
            let kind = if epoch == FINAL_EPOCH { FetchKind::Sessionless } else { FetchKind::Full };
            return Ok(FetchContext { kind, partitions, uses_topic_ids, is_follower });
        }
        let session = self.sessions.lock().get(&session_id).cloned().ok_or(FetchSessionError::IdNotFound)?;
        let mut locked = session.lock();
        if locked.epoch != epoch {
            return Err(FetchSessionError::InvalidEpoch);
        }
        if locked.uses_topic_ids != uses_topic_ids {
            return Err(FetchSessionError::TopicIdUse);
        }
        locked.update(partitions, forgotten, now);
        if locked.partitions.is_empty() {
            drop(locked);
            self.sessions.lock().remove(&session_id);
            return Ok(FetchContext {
                kind: FetchKind::Sessionless,
                partitions: Vec::new(),
                uses_topic_ids,
                is_follower,
            });
        }
        locked.epoch = next_epoch(epoch);
        let partitions = locked.take_due(now, self.options.look_at_all_ms);
        drop(locked);
        Ok(FetchContext { kind: FetchKind::Incremental(session), partitions, uses_topic_ids, is_follower })
    }

    /// The session id that goes into the answer to a full fetch; a new session where the cache has room.
    /// `random` proposes ids.
    pub fn finish_full(
        &self,
        context: &FetchContext,
        changes: &[PartitionChange],
        now: Timestamp,
        mut random: impl FnMut() -> u32,
    ) -> i32 {
        if !matches!(context.kind, FetchKind::Full) || context.partitions.is_empty() {
            return NO_SESSION;
        }
        let mut sessions = self.sessions.lock();
        if sessions.len() >= self.options.slots_max {
            match self.evictable(&sessions, context, now) {
                Some(id) => sessions.remove(&id),
                None => return NO_SESSION,
            };
        }
        let id = loop {
            let id = (random() & 0x7fff_ffff) as i32;
            if id != NO_SESSION && !sessions.contains_key(&id) {
                break id;
            }
        };
        let mut session = Session {
            id,
            epoch: next_epoch(INITIAL_EPOCH),
            uses_topic_ids: context.uses_topic_ids,
            is_follower: context.is_follower,
            created: now,
            last_used: now,
            partitions: IndexMap::with_capacity(context.partitions.len()),
            watched: context.is_follower.then(Watched::new),
        };
        for ((key, wanted), change) in context.partitions.iter().zip(changes) {
            session.set(key.clone(), *wanted);
            if let Some(cached) = session.partitions.get_mut(key) {
                cached.note(change);
            }
        }
        sessions.insert(id, Arc::new(Mutex::new(session)));
        id
    }

    /// Which session gives way to a new one: a stale one; a consumer's for a follower's; a smaller one that has
    /// had its time.
    fn evictable(
        &self,
        sessions: &HashMap<i32, Arc<Mutex<Session>>>,
        context: &FetchContext,
        now: Timestamp,
    ) -> Option<i32> {
        let mut oldest: Option<(Timestamp, i32)> = None;
        let mut least: Option<(bool, usize, i32)> = None;
        for session in sessions.values() {
            let session = session.lock();
            if oldest.is_none_or(|(last_used, _)| session.last_used < last_used) {
                oldest = Some((session.last_used, session.id));
            }
            let size = session.partitions.len();
            let is_lower = context.is_follower && !session.is_follower;
            let is_smaller = context.is_follower == session.is_follower
                && size < context.partitions.len()
                && now.since_ms(session.created) > self.options.eviction_ms;
            let candidate = (session.is_follower, size, session.id);
            if (is_lower || is_smaller) && least.is_none_or(|least| candidate < least) {
                least = Some(candidate);
            }
        }
        match oldest {
            Some((last_used, id)) if now.since_ms(last_used) > self.options.eviction_ms => Some(id),
            _ => least.map(|(_, _, id)| id),
        }
    }
}

fn next_epoch(epoch: i32) -> i32 {
    if epoch == i32::MAX { 1 } else { epoch + 1 }
}

impl Session {
    pub fn id(&self) -> i32 {
        self.id
    }

    fn update(
        &mut self,
        partitions: Vec<(PartitionKey, FetchPartition)>,
        forgotten: &[PartitionKey],
        now: Timestamp,
    ) {
        for (key, wanted) in partitions {
            self.set(key, wanted);
        }
        self.forget(forgotten);
        self.last_used = now;
    }

    fn set(&mut self, key: PartitionKey, wanted: FetchPartition) {
        match self.partitions.get_mut(&key) {
            Some(cached) => cached.wanted = wanted,
            None => {
                let slot = self.watched.as_mut().map_or(0, |watched| watched.add(key.clone()));
                self.partitions.insert(key.clone(), Cached::new(wanted, slot));
            }
        }
        if let (Some(watched), Some(cached)) = (&self.watched, self.partitions.get(&key)) {
            watched.waiter.note(cached.slot);
        }
    }

    fn forget(&mut self, forgotten: &[PartitionKey]) {
        if forgotten.is_empty() {
            return;
        }
        let forgotten: HashSet<&PartitionKey> = forgotten.iter().collect();
        let watched = &mut self.watched;
        // In one pass: a leader that lost its partitions is asked for none of them any more.
        self.partitions.retain(|key, cached| {
            let is_kept = !forgotten.contains(key);
            if let Some(watched) = watched.as_mut().filter(|_| !is_kept) {
                watched.remove(cached.slot);
            }
            is_kept
        });
    }

    /// How many partitions the client fetches.
    pub fn len(&self) -> usize {
        self.partitions.len()
    }

    pub fn is_empty(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Who is woken when a partition of the session has something to read; `None` where nothing is watched.
    pub fn waiter(&self) -> Option<Waiter> {
        self.watched.as_ref().map(|watched| watched.waiter.clone())
    }

    /// Watches the partition that was found for a key, unless it is watched already.
    pub fn watch(&mut self, key: &PartitionKey, list: &Arc<WatchList>) {
        let (Some(watched), Some(cached)) = (&mut self.watched, self.partitions.get(key)) else { return };
        let Some(Some(slot)) = watched.slots.get_mut(cached.slot as usize) else { return };
        if slot.registration.as_ref().is_none_or(|registration| !registration.is_on(list)) {
            let registered = WatchList::register_slot(list, &watched.waiter, Changes::LOG_END, cached.slot);
            slot.registration = Some(registered);
        }
    }

    /// What a fetch has to look at: all, or what was named or has changed since the last one.
    fn take_due(&mut self, now: Timestamp, look_at_all_ms: i64) -> Vec<(PartitionKey, FetchPartition)> {
        let Some(watched) = &mut self.watched else {
            return self.partitions.iter().map(|(key, cached)| (key.clone(), cached.wanted)).collect();
        };
        let is_recent = |at: Timestamp| (0..look_at_all_ms).contains(&now.since_ms(at));
        if watched.looked_at_all.is_some_and(is_recent) {
            return self.take_noted();
        }
        watched.looked_at_all = Some(now);
        watched.waiter.take_noted();
        let all = (0..watched.slots.len() as u32).collect();
        self.in_slots(all)
    }

    /// What has changed since it was last looked at; nothing where nothing is watched.
    pub fn take_noted(&mut self) -> Vec<(PartitionKey, FetchPartition)> {
        let noted = self.watched.as_ref().map_or(Vec::new(), |watched| watched.waiter.take_noted());
        self.in_slots(noted)
    }

    /// What is in these slots, beginning with the one whose turn it is.
    fn in_slots(&self, mut slots: Vec<u32>) -> Vec<(PartitionKey, FetchPartition)> {
        let Some(watched) = &self.watched else { return Vec::new() };
        let first = slots.partition_point(|&slot| slot < watched.next);
        slots.rotate_left(first);
        let used = slots.into_iter().filter_map(|slot| watched.slots.get(slot as usize)?.as_ref());
        used.filter_map(|slot| Some((slot.key.clone(), self.partitions.get(&slot.key)?.wanted))).collect()
    }

    /// Which of these partitions must be in an incremental answer. Remembers what is told, and puts partitions
    /// that gave records last, so that the others get their turn.
    pub fn respond<'a>(
        &mut self,
        answers: impl IntoIterator<Item = (&'a PartitionKey, &'a PartitionChange)>,
    ) -> Vec<bool> {
        let mut served = 0;
        let answers = answers.into_iter().map(|(key, change)| {
            let Some(cached) = self.partitions.get_mut(key) else { return true };
            let must = cached.must_respond(change);
            cached.note(change);
            if let Some(watched) = &mut self.watched {
                watched.answered(cached.slot, change);
            } else if change.has_records {
                served += 1;
                cached.served = served;
            }
            must
        });
        let must = answers.collect();
        if served > 0 {
            // One stable pass: moving them one by one would cost a pass each.
            self.partitions.sort_by(|_, one, _, other| one.served.cmp(&other.served));
            self.partitions.values_mut().for_each(|cached| cached.served = 0);
        }
        must
    }
}

impl Watched {
    fn new() -> Watched {
        Watched { waiter: Waiter::new(), slots: Vec::new(), free: Vec::new(), next: 0, looked_at_all: None }
    }

    fn add(&mut self, key: PartitionKey) -> u32 {
        let slot = Some(Slot { key, registration: None });
        match self.free.pop() {
            Some(free) => {
                self.slots[free as usize] = slot;
                free
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        }
    }

    fn answered(&mut self, slot: u32, change: &PartitionChange) {
        if change.is_behind || change.has_error || change.has_news {
            self.waiter.note(slot);
        }
        if change.has_records {
            self.next = slot + 1;
        }
    }

    fn remove(&mut self, slot: u32) {
        if self.slots.get_mut(slot as usize).is_some_and(|slot| slot.take().is_some()) {
            self.free.push(slot);
        }
    }
}

impl Cached {
    fn new(wanted: FetchPartition, slot: u32) -> Cached {
        Cached { wanted, slot, high_watermark: Offset::NONE, log_start_offset: Offset::NONE, served: 0 }
    }

    fn must_respond(&self, change: &PartitionChange) -> bool {
        change.has_records
            || change.has_error
            || change.has_news
            || self.high_watermark != change.high_watermark
            || self.log_start_offset != change.log_start_offset
    }

    fn note(&mut self, change: &PartitionChange) {
        // After an error everything is told anew.
        self.high_watermark = if change.has_error { Offset::NONE } else { change.high_watermark };
        self.log_start_offset = if change.has_error { Offset::NONE } else { change.log_start_offset };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn key(partition: i32) -> PartitionKey {
        PartitionKey {
            topic: TopicRef::Name(TopicName::new("t").unwrap()),
            partition: PartitionIndex(partition),
        }
    }

    fn wanted(offset: i64) -> FetchPartition {
        FetchPartition {
            fetch_offset: Offset(offset),
            bytes_max: 1024,
            current_leader_epoch: LeaderEpoch::UNKNOWN,
            last_fetched_epoch: LeaderEpoch::UNKNOWN,
            log_start_offset: Offset::NONE,
        }
    }

    fn quiet(high_watermark: i64) -> PartitionChange {
        PartitionChange {
            has_records: false,
            has_error: false,
            has_news: false,
            is_behind: false,
            high_watermark: Offset(high_watermark),
            log_start_offset: Offset(0),
        }
    }

    fn open(sessions: &FetchSessions, partitions: i32, now: Timestamp) -> i32 {
        let wanted = (0..partitions).map(|partition| (key(partition), wanted(0))).collect();
        let context = sessions.begin(0, INITIAL_EPOCH, false, false, wanted, &[], now).unwrap();
        let changes = vec![quiet(0); partitions as usize];
        let mut next = sessions.len() as u32;
        sessions.finish_full(&context, &changes, now, || {
            next += 1;
            next
        })
    }

    fn incremental(sessions: &FetchSessions, id: i32, epoch: i32) -> FetchContext {
        sessions.begin(id, epoch, false, false, Vec::new(), &[], NOW).unwrap()
    }

    #[track_caller]
    fn check_error(sessions: &FetchSessions, id: i32, epoch: i32, ids: bool, expected: FetchSessionError) {
        let error = sessions.begin(id, epoch, ids, false, Vec::new(), &[], NOW).unwrap_err();
        assert_eq!(error, expected);
    }

    #[test]
    fn an_incremental_fetch_repeats_what_the_session_holds() {
        let sessions = FetchSessions::new(FetchSessionOptions::default());
        let id = open(&sessions, 3, NOW);
        let context = incremental(&sessions, id, 1);
        assert_eq!(context.partitions.len(), 3);
        assert_eq!(incremental(&sessions, id, 2).partitions.len(), 3);
    }

    #[test]
    fn wrong_ids_and_epochs_are_refused() {
        let sessions = FetchSessions::new(FetchSessionOptions::default());
        let id = open(&sessions, 1, NOW);
        check_error(&sessions, id + 1, 1, false, FetchSessionError::IdNotFound);
        check_error(&sessions, id, 7, false, FetchSessionError::InvalidEpoch);
        check_error(&sessions, id, 1, true, FetchSessionError::TopicIdUse);
    }

    #[test]
    fn a_final_epoch_ends_the_session() {
        let sessions = FetchSessions::new(FetchSessionOptions::default());
        let id = open(&sessions, 1, NOW);
        sessions.begin(id, FINAL_EPOCH, false, false, Vec::new(), &[], NOW).unwrap();
        check_error(&sessions, id, 1, false, FetchSessionError::IdNotFound);
    }

    #[test]
    fn only_changes_are_answered() {
        let sessions = FetchSessions::new(FetchSessionOptions::default());
        let id = open(&sessions, 2, NOW);
        let FetchKind::Incremental(session) = incremental(&sessions, id, 1).kind else {
            panic!("no session")
        };
        let mut session = session.lock();
        let mut respond = |partition, change| session.respond([(&key(partition), &change)]) == [true];
        assert!(!respond(0, quiet(0)));
        assert!(respond(0, quiet(5)));
        assert!(!respond(0, quiet(5)));
        assert!(respond(1, PartitionChange { has_error: true, ..quiet(0) }));
        assert!(respond(1, quiet(0)), "told again after an error");
    }

    #[test]
    fn partitions_that_gave_records_go_last() {
        let sessions = FetchSessions::new(FetchSessionOptions::default());
        let id = open(&sessions, 5, NOW);
        let FetchKind::Incremental(session) = incremental(&sessions, id, 1).kind else {
            panic!("no session")
        };
        let served = PartitionChange { has_records: true, ..quiet(1) };
        for (epoch, answered, expected) in [(2, [0, 2], [1, 3, 4, 0, 2]), (3, [3, 1], [4, 0, 2, 3, 1])] {
            let keys = answered.map(key);
            session.lock().respond(keys.iter().map(|key| (key, &served)));
            let order: Vec<i32> =
                incremental(&sessions, id, epoch).partitions.iter().map(|(key, _)| key.partition.0).collect();
            assert_eq!(order, expected);
        }
    }

    #[test]
    fn a_full_cache_refuses_and_evicts_only_the_stale() {
        let options = FetchSessionOptions { slots_max: 1, eviction_ms: 1000, ..Default::default() };
        let sessions = FetchSessions::new(options);
        let first = open(&sessions, 1, NOW);
        assert_ne!(first, NO_SESSION);
        assert_eq!(open(&sessions, 1, NOW), NO_SESSION);
        let second = open(&sessions, 1, NOW.plus_ms(1001));
        assert_ne!(second, NO_SESSION);
        assert_eq!(sessions.len(), 1);
    }

    #[test]
    fn forgotten_partitions_leave_and_an_empty_session_ends() {
        let sessions = FetchSessions::new(FetchSessionOptions::default());
        let id = open(&sessions, 2, NOW);
        let left = sessions.begin(id, 1, false, false, Vec::new(), &[key(0)], NOW).unwrap();
        assert_eq!(left.partitions.len(), 1);
        let none = sessions.begin(id, 2, false, false, Vec::new(), &[key(1)], NOW).unwrap();
        assert!(matches!(none.kind, FetchKind::Sessionless));
        assert!(sessions.is_empty());
    }

    #[test]
    fn epochs_wrap_past_the_initial_one() {
        assert_eq!(next_epoch(i32::MAX), 1);
    }

    fn followed(sessions: &FetchSessions, id: i32, epoch: i32, named: &[i32], now: Timestamp) -> Vec<i32> {
        let named = named.iter().map(|&partition| (key(partition), wanted(0))).collect();
        let context = sessions.begin(id, epoch, false, true, named, &[], now).unwrap();
        context.partitions.iter().map(|(key, _)| key.partition.0).collect()
    }

    #[test]
    fn a_followers_fetch_looks_at_what_was_named_or_has_changed() {
        let sessions = FetchSessions::new(FetchSessionOptions::default());
        let all = (0..4).map(|partition| (key(partition), wanted(0))).collect();
        let context = sessions.begin(0, INITIAL_EPOCH, false, true, all, &[], NOW).unwrap();
        let id = sessions.finish_full(&context, &[quiet(0); 4], NOW, || 7);
        assert_eq!(followed(&sessions, id, 1, &[], NOW), [0, 1, 2, 3]);

        let session = Arc::clone(&sessions.sessions.lock()[&id]);
        let lists: Vec<Arc<WatchList>> = (0..4).map(|_| Arc::default()).collect();
        for (partition, list) in lists.iter().enumerate() {
            session.lock().watch(&key(partition as i32), list);
        }
        let soon = NOW.plus_ms(1);
        assert!(followed(&sessions, id, 2, &[], soon).is_empty());
        lists[3].wake(Changes::HIGH_WATERMARK);
        assert_eq!(followed(&sessions, id, 3, &[1], soon), [1, 3]);
        assert!(followed(&sessions, id, 4, &[], soon).is_empty());

        let behind = PartitionChange { has_records: true, is_behind: true, ..quiet(1) };
        assert_eq!(session.lock().respond([(&key(1), &behind)]), [true]);
        lists[0].wake(Changes::LOG_END);
        lists[2].wake(Changes::LOG_END);
        assert_eq!(followed(&sessions, id, 5, &[], soon), [2, 0, 1], "who gave records is last");
        let later = NOW.plus_ms(FetchSessionOptions::default().look_at_all_ms);
        assert_eq!(followed(&sessions, id, 6, &[], later), [2, 3, 0, 1]);
        sessions.begin(id, 7, false, true, Vec::new(), &[key(2)], soon).unwrap();
        assert!(lists[2].is_empty());
    }
}
