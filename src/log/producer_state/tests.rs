use proptest::prelude::*;

use crate::log::{decode_snapshot, encode_snapshot};
use crate::model::LeaderEpoch;
use crate::records::{Attributes, batches, kafka_folder};

use super::*;

const CLIENT: ProducerRules = ProducerRules {
    origin: AppendOrigin::Client,
    needs_verification: false,
    guard: None,
    marker: MarkerRule::AnyEpoch,
};
const COORDINATOR: ProducerRules = ProducerRules { origin: AppendOrigin::Coordinator, ..CLIENT };
const REPLICATION: ProducerRules = ProducerRules { origin: AppendOrigin::Replication, ..CLIENT };

/// A batch of `count` records of producer `id`.
fn data(id: i64, epoch: i16, sequence: i32, base_offset: i64, count: i32) -> BatchHeader {
    BatchHeader {
        base_offset: Offset(base_offset),
        batch_length: 100,
        leader_epoch: LeaderEpoch(0),
        magic: 2,
        crc: 0,
        attributes: Attributes::default(),
        last_offset_delta: count - 1,
        base_timestamp: Timestamp(1000),
        max_timestamp: Timestamp(1000 + base_offset),
        producer_id: ProducerId(id),
        producer_epoch: ProducerEpoch(epoch),
        base_sequence: sequence,
        record_count: count,
    }
}

fn transactional(batch: BatchHeader) -> BatchHeader {
    BatchHeader { attributes: batch.attributes.with_transactional(true), ..batch }
}

fn marker(id: i64, epoch: i16, offset: i64) -> BatchHeader {
    let batch = transactional(data(id, epoch, -1, offset, 1));
    BatchHeader { attributes: batch.attributes.with_control(true), ..batch }
}

fn end(marker: TransactionMarker, coordinator_epoch: i32) -> Option<EndTransaction> {
    Some(EndTransaction { marker, coordinator_epoch })
}

impl ProducerState {
    fn append_one(
        &mut self,
        batch: BatchHeader,
        end: Option<EndTransaction>,
        rules: &ProducerRules,
    ) -> Result<(Checked, Vec<CompletedTransaction>), ProducerError> {
        let mut append = ProducerAppend::default();
        let checked = self.check(&mut append, &batch, end, rules)?;
        let completed = if checked == Checked::Accepted { self.apply(append) } else { Vec::new() };
        Ok((checked, completed))
    }

    #[track_caller]
    fn accept(&mut self, batch: BatchHeader) {
        assert_eq!(self.append_one(batch, None, &CLIENT).unwrap().0, Checked::Accepted);
    }

    #[track_caller]
    fn finish(&mut self, batch: BatchHeader, how: TransactionMarker) -> Vec<CompletedTransaction> {
        self.append_one(batch, end(how, 0), &COORDINATOR).unwrap().1
    }

    #[track_caller]
    fn refuse(&mut self, batch: BatchHeader) -> ProducerError {
        self.append_one(batch, None, &CLIENT).unwrap_err()
    }

    fn unstable(&self) -> Option<i64> {
        self.first_unstable_offset().map(|offset| offset.0)
    }
}

#[test]
fn sequences_follow_one_another() {
    let mut state = ProducerState::default();
    // An unknown producer may begin anywhere: it may have expired.
    state.accept(data(1, 0, 7, 0, 3));
    state.accept(data(1, 0, 10, 3, 1));
    assert!(matches!(
        state.refuse(data(1, 0, 12, 4, 1)),
        ProducerError::OutOfOrderSequence { sequence: 12, last_sequence: 10, .. }
    ));
    assert!(matches!(state.refuse(data(1, 0, 9, 4, 1)), ProducerError::OutOfOrderSequence { .. }));
    assert_eq!(state.end_offset(), Offset(4));
}

#[test]
fn sequences_wrap_to_zero() {
    let mut state = ProducerState::default();
    state.accept(data(1, 0, i32::MAX - 1, 0, 2));
    state.accept(data(1, 0, 0, 2, 1));
    let mut across = ProducerState::default();
    across.accept(data(1, 0, i32::MAX, 0, 3));
    assert_eq!(across.producer(ProducerId(1)).unwrap().last_sequence(), 1);
    let retried = across.append_one(data(1, 0, i32::MAX, 9, 3), None, &CLIENT).unwrap().0;
    assert!(matches!(retried, Checked::Duplicate(batch) if batch.first_offset() == Offset(0)));
    across.accept(data(1, 0, 2, 3, 1));
}

#[test]
fn the_last_five_batches_are_recognised_when_they_come_again() {
    let mut state = ProducerState::default();
    for index in 0..6 {
        state.accept(data(1, 0, 2 * index, 10 * i64::from(index), 2));
    }
    for index in 1..6 {
        let again = state.append_one(data(1, 0, 2 * index, 99, 2), None, &CLIENT).unwrap().0;
        let Checked::Duplicate(batch) = again else { panic!("{again:?}") };
        let base = 10 * i64::from(index);
        assert_eq!((batch.first_offset(), batch.last_offset), (Offset(base), Offset(base + 1)));
        assert_eq!(batch.timestamp, Timestamp(1000 + base));
    }
    assert!(matches!(state.refuse(data(1, 0, 0, 99, 2)), ProducerError::OutOfOrderSequence { .. }));
    // The same first sequence with another length is not the same batch.
    assert!(matches!(state.refuse(data(1, 0, 8, 99, 1)), ProducerError::OutOfOrderSequence { .. }));
}

#[test]
fn an_epoch_fences_earlier_ones_and_begins_at_zero() {
    let mut state = ProducerState::default();
    state.accept(data(1, 3, 0, 0, 5));
    assert!(matches!(state.refuse(data(1, 2, 5, 5, 1)), ProducerError::InvalidProducerEpoch { .. }));
    assert!(matches!(state.refuse(data(1, 4, 5, 5, 1)), ProducerError::NewEpochNotAtZero { .. }));
    state.accept(data(1, 4, 0, 5, 1));
    // Batches of the earlier epoch are forgotten, not duplicates.
    assert!(matches!(state.refuse(data(1, 3, 0, 6, 5)), ProducerError::InvalidProducerEpoch { .. }));
}

#[test]
fn followers_take_what_their_leader_took() {
    let mut state = ProducerState::default();
    for batch in [data(1, 3, 0, 0, 5), data(1, 3, 50, 5, 1), data(1, 2, 9, 6, 1)] {
        assert_eq!(state.append_one(batch, None, &REPLICATION).unwrap().0, Checked::Accepted);
    }
    assert_eq!(state.producer(ProducerId(1)).unwrap().epoch, ProducerEpoch(2));
    let commit = end(TransactionMarker::Commit, 9);
    state.append_one(marker(1, 2, 7), commit, &REPLICATION).unwrap();
    state.append_one(marker(1, 1, 8), end(TransactionMarker::Commit, 2), &REPLICATION).unwrap();
    assert_eq!(state.producer(ProducerId(1)).unwrap().coordinator_epoch, 2);
}

#[test]
fn nothing_is_kept_of_an_append_that_was_not_applied() {
    let mut state = ProducerState::default();
    state.accept(data(1, 0, 0, 0, 1));
    let mut append = ProducerAppend::default();
    state.check(&mut append, &transactional(data(1, 0, 1, 1, 1)), None, &CLIENT).unwrap();
    drop(append);
    assert_eq!(state.unstable(), None);
    state.accept(data(1, 0, 1, 1, 1));
}

#[test]
fn batches_of_one_append_see_those_before_them() {
    let mut state = ProducerState::default();
    let mut append = ProducerAppend::default();
    let mut check = |batch| state.check(&mut append, &batch, None, &CLIENT);
    assert_eq!(check(data(1, 0, 0, 0, 2)), Ok(Checked::Accepted));
    assert!(matches!(check(data(1, 0, 0, 2, 2)), Ok(Checked::Duplicate(_))));
    assert!(check(data(1, 0, 5, 2, 1)).is_err());
    assert_eq!(check(data(1, 0, 2, 2, 1)), Ok(Checked::Accepted));
    assert_eq!(check(data(-1, -1, -1, 3, 1)), Ok(Checked::Accepted));
    assert!(state.apply(append).is_empty());
    assert_eq!(state.producer(ProducerId(1)).unwrap().batches().count(), 2);
    assert_eq!(state.end_offset(), Offset(4));
    assert_eq!(state.producer_count(), 1);
}

#[test]
fn open_and_unreplicated_transactions_hold_the_stable_offset_back() {
    let mut state = ProducerState::default();
    state.accept(transactional(data(1, 0, 0, 0, 2)));
    state.accept(transactional(data(2, 0, 0, 2, 2)));
    state.accept(transactional(data(1, 0, 2, 4, 2)));
    assert_eq!(state.unstable(), Some(0));
    let ended = state.finish(marker(1, 0, 6), TransactionMarker::Abort);
    assert_eq!(
        ended,
        [CompletedTransaction {
            producer_id: ProducerId(1),
            first_offset: Offset(0),
            last_offset: Offset(6),
            is_aborted: true,
            last_stable_offset: Offset(2),
        }]
    );
    // The marker may still be lost with this leader.
    state.advance_high_watermark(Offset(6));
    assert_eq!(state.unstable(), Some(0));
    state.advance_high_watermark(Offset(7));
    assert_eq!(state.unstable(), Some(2));
    let ended = state.finish(marker(2, 0, 7), TransactionMarker::Commit);
    assert_eq!((ended[0].is_aborted, ended[0].last_stable_offset), (false, Offset(8)));
    state.advance_high_watermark(Offset(8));
    assert_eq!(state.unstable(), None);
    // A marker without a transaction ends none.
    assert!(state.finish(marker(2, 0, 8), TransactionMarker::Commit).is_empty());
}

#[test]
fn a_marker_keeps_the_sequences_of_its_epoch() {
    let mut state = ProducerState::default();
    state.accept(transactional(data(1, 0, 0, 0, 2)));
    state.finish(marker(1, 0, 2), TransactionMarker::Commit);
    assert!(matches!(
        state.append_one(transactional(data(1, 0, 0, 3, 2)), None, &CLIENT),
        Ok((Checked::Duplicate(_), _))
    ));
    state.accept(transactional(data(1, 0, 2, 3, 1)));
    // An abort by the coordinator bumps the epoch: the producer must begin anew.
    state.finish(marker(1, 1, 4), TransactionMarker::Abort);
    assert!(matches!(state.refuse(data(1, 0, 3, 5, 1)), ProducerError::InvalidProducerEpoch { .. }));
    assert!(matches!(state.refuse(data(1, 1, 3, 5, 1)), ProducerError::OutOfOrderSequence { .. }));
    state.accept(data(1, 1, 0, 5, 1));
}

#[test]
fn writes_outside_the_open_transaction_are_refused() {
    let mut state = ProducerState::default();
    state.accept(transactional(data(1, 0, 0, 0, 1)));
    assert!(matches!(state.refuse(data(1, 0, 1, 1, 1)), ProducerError::NotTransactional { .. }));
}

#[test]
fn an_earlier_coordinator_is_fenced() {
    let mut state = ProducerState::default();
    state.accept(transactional(data(1, 0, 0, 0, 1)));
    let abort = |epoch| end(TransactionMarker::Abort, epoch);
    state.append_one(marker(1, 0, 1), abort(5), &COORDINATOR).unwrap();
    let error = state.append_one(marker(1, 0, 2), abort(4), &COORDINATOR).unwrap_err();
    assert!(matches!(error, ProducerError::CoordinatorFenced { epoch: 4, known: 5, .. }));
    state.append_one(marker(1, 0, 2), abort(5), &COORDINATOR).unwrap();
    state.accept(data(1, 1, 0, 3, 1));
    let error = state.append_one(marker(1, 0, 4), abort(6), &COORDINATOR).unwrap_err();
    assert!(matches!(error, ProducerError::InvalidProducerEpoch { .. }));
}

#[test]
fn a_transaction_is_opened_only_with_its_guard() {
    let mut state = ProducerState::default();
    let rules = |guard| ProducerRules { needs_verification: true, guard, ..CLIENT };
    let first = transactional(data(1, 0, 0, 0, 1));
    let unverified = state.append_one(first, None, &rules(None)).unwrap_err();
    assert!(matches!(unverified, ProducerError::NotVerified { .. }));
    let guard = state.begin_verification(ProducerId(1), ProducerEpoch(0), 0, Timestamp(5));
    assert_eq!(state.begin_verification(ProducerId(1), ProducerEpoch(0), 1, Timestamp(6)), guard);
    // A later batch of the producer may not come before the one that waits.
    let late = transactional(data(1, 0, 1, 0, 1));
    let error = state.append_one(late, None, &rules(guard)).unwrap_err();
    assert!(matches!(error, ProducerError::OutOfOrderSequence { .. }));
    state.append_one(first, None, &rules(guard)).unwrap();
    // The transaction is open: no guard is needed any more, and the old one is void after its end.
    assert_eq!(state.begin_verification(ProducerId(1), ProducerEpoch(0), 1, Timestamp(7)), None);
    state.append_one(transactional(data(1, 0, 1, 1, 1)), None, &rules(None)).unwrap();
    state.finish(marker(1, 0, 2), TransactionMarker::Commit);
    let stale = state.append_one(transactional(data(1, 0, 2, 3, 1)), None, &rules(guard)).unwrap_err();
    assert!(matches!(stale, ProducerError::NotVerified { .. }));
}

#[test]
fn what_an_earlier_epoch_has_open_is_another_transaction() {
    let mut state = ProducerState::default();
    let rules = |guard| ProducerRules { needs_verification: true, guard, ..CLIENT };
    state.accept(transactional(data(1, 0, 0, 0, 1)));
    let next = transactional(data(1, 1, 0, 1, 1));
    let error = state.append_one(next, None, &rules(None)).unwrap_err();
    assert!(matches!(error, ProducerError::NotVerified { .. }));
    assert!(state.begin_verification(ProducerId(1), ProducerEpoch(1), 0, Timestamp(5)).is_some());
    assert_eq!(state.begin_verification(ProducerId(1), ProducerEpoch(0), 1, Timestamp(5)), None);
}

#[test]
fn a_marker_is_repeated_only_where_its_transaction_is_open() {
    let mut state = ProducerState::default();
    let may_repeat = ProducerRules { marker: MarkerRule::MayRepeat, ..COORDINATOR };
    let abort = end(TransactionMarker::Abort, 1);
    state.accept(transactional(data(1, 0, 0, 0, 1)));
    let (checked, completed) = state.append_one(marker(1, 0, 1), abort, &may_repeat).unwrap();
    assert_eq!((checked, completed.len()), (Checked::Accepted, 1));
    let (checked, _) = state.append_one(marker(1, 0, 2), abort, &may_repeat).unwrap();
    assert_eq!(checked, Checked::AlreadyEnded);
    // A fence is a marker of a later epoch, and an unknown producer may have to be fenced.
    assert_eq!(state.append_one(marker(1, 1, 2), abort, &may_repeat).unwrap().0, Checked::Accepted);
    assert_eq!(state.append_one(marker(2, 0, 3), abort, &may_repeat).unwrap().0, Checked::Accepted);
}

#[test]
fn where_ends_have_epochs_of_their_own_a_marker_of_the_open_epoch_is_refused() {
    let mut state = ProducerState::default();
    let new_epoch = ProducerRules { marker: MarkerRule::NewEpoch, ..COORDINATOR };
    let commit = end(TransactionMarker::Commit, 1);
    state.accept(transactional(data(1, 4, 0, 0, 1)));
    let error = state.append_one(marker(1, 4, 1), commit, &new_epoch).unwrap_err();
    assert!(matches!(error, ProducerError::InvalidProducerEpoch { .. }));
    assert_eq!(state.append_one(marker(1, 5, 1), commit, &new_epoch).unwrap().0, Checked::Accepted);
    assert_eq!(state.append_one(marker(1, 5, 2), commit, &new_epoch).unwrap().0, Checked::AlreadyEnded);
}

#[test]
fn a_marker_of_a_new_epoch_leaves_the_guard_of_the_next_transaction() {
    let mut state = ProducerState::default();
    let new_epoch = ProducerRules { marker: MarkerRule::NewEpoch, ..COORDINATOR };
    let rules = |guard| ProducerRules { needs_verification: true, guard, ..CLIENT };
    let commit = end(TransactionMarker::Commit, 1);
    state.accept(transactional(data(1, 0, 0, 0, 1)));
    // The client has the answer to its end, and writes on before the marker is there.
    let guard = state.begin_verification(ProducerId(1), ProducerEpoch(1), 0, Timestamp(5));
    state.append_one(marker(1, 1, 1), commit, &new_epoch).unwrap();
    state.append_one(transactional(data(1, 1, 0, 2, 1)), None, &rules(guard)).unwrap();
    // A guard of the epoch that ends is void.
    let stale = state.begin_verification(ProducerId(2), ProducerEpoch(0), 0, Timestamp(5));
    state.append_one(marker(2, 1, 3), commit, &new_epoch).unwrap();
    assert!(state.append_one(transactional(data(2, 0, 0, 4, 1)), None, &rules(stale)).is_err());
}

/// The checkers of transactions found it: the first try of a batch, late because the network stood still.
#[test]
fn a_late_batch_of_an_earlier_epoch_does_not_hold_back_the_producer() {
    let mut state = ProducerState::default();
    let rules = |guard| ProducerRules { needs_verification: true, guard, ..CLIENT };
    let guard = state.begin_verification(ProducerId(1), ProducerEpoch(1), 0, Timestamp(5));
    state.append_one(transactional(data(1, 1, 0, 0, 2)), None, &rules(guard)).unwrap();
    let late = state.begin_verification(ProducerId(1), ProducerEpoch(0), 0, Timestamp(6));
    state.append_one(transactional(data(1, 1, 2, 2, 1)), None, &rules(None)).unwrap();
    let refused = state.append_one(transactional(data(1, 0, 0, 3, 1)), None, &rules(late)).unwrap_err();
    assert!(matches!(refused, ProducerError::InvalidProducerEpoch { .. }));
}

#[test]
fn silent_producers_expire_unless_their_transaction_is_open() {
    let mut state = ProducerState::default();
    state.accept(data(1, 0, 0, 0, 1));
    state.accept(transactional(data(2, 0, 0, 1, 1)));
    state.begin_verification(ProducerId(3), ProducerEpoch(0), 0, Timestamp(1000));
    // The batches are of the times 1000 and 1001.
    assert_eq!(state.remove_expired(Timestamp(1099), 100), 0);
    assert_eq!(state.remove_expired(Timestamp(1100), 100), 1);
    assert!(state.verifications.is_empty());
    assert!(state.producer(ProducerId(2)).is_some());
    let oldest = OpenTransaction {
        producer_id: ProducerId(2),
        producer_epoch: ProducerEpoch(0),
        first_offset: Offset(1),
        last_timestamp: Timestamp(1001),
    };
    assert_eq!(state.oldest_transaction(), Some(oldest));
    // It goes on where it was, though nothing is known of it any more.
    state.accept(data(1, 0, 7, 2, 1));
}

#[test]
fn an_idle_producer_is_known_as_after_a_restart() {
    let mut state = ProducerState::default();
    for sequence in 0..3 {
        state.accept(data(1, 0, sequence, sequence.into(), 1));
    }
    state.accept(transactional(data(2, 0, 0, 3, 1)));
    state.accept(transactional(data(2, 0, 1, 4, 1)));
    let again =
        |state: &mut ProducerState, batch| state.append_one(batch, None, &CLIENT).map(|found| found.0);
    // It wrote a moment ago.
    state.settle();
    assert!(matches!(again(&mut state, data(1, 0, 1, 9, 1)), Ok(Checked::Duplicate(_))));
    state.settle();
    assert!(again(&mut state, data(1, 0, 1, 9, 1)).is_err());
    assert!(matches!(again(&mut state, data(1, 0, 2, 9, 1)), Ok(Checked::Duplicate(_))));
    // Not while its transaction is open.
    assert!(matches!(again(&mut state, transactional(data(2, 0, 0, 9, 1))), Ok(Checked::Duplicate(_))));
    assert_eq!(state.unstable(), Some(3));
    let restarted = decode_snapshot(&encode_snapshot(&state)).unwrap();
    assert_eq!(state.producer(ProducerId(1)), restarted.iter().find(|(id, _)| id.0 == 1).map(|(_, of)| of));
}

#[test]
fn the_time_of_a_batch_is_known_behind_its_marker() {
    let mut state = ProducerState::default();
    state.accept(transactional(data(1, 0, 0, 0, 1)));
    let marker = BatchHeader { max_timestamp: Timestamp(7_777), ..marker(1, 0, 1) };
    state.finish(marker, TransactionMarker::Commit);
    let entry = state.producer(ProducerId(1)).unwrap();
    assert_eq!(entry.last_timestamp, Timestamp(7_777));
    assert_eq!(entry.last_batch().map(|batch| batch.timestamp), Some(Timestamp(1_000)));
}

#[test]
fn a_log_that_starts_later_keeps_its_producers() {
    let mut state = ProducerState::default();
    state.accept(transactional(data(1, 0, 0, 0, 5)));
    state.finish(marker(1, 0, 5), TransactionMarker::Commit);
    state.advance_log_start(Offset(20));
    assert_eq!((state.unstable(), state.end_offset()), (None, Offset(20)));
    state.accept(data(1, 0, 5, 20, 1));
    state.reset(Offset(50));
    assert_eq!((state.producer_count(), state.end_offset()), (0, Offset(50)));
}

#[test]
fn replaying_kafkas_logs_gives_kafkas_snapshots() {
    let mut compared = 0;
    for (path, snapshot) in kafka_folder::files_ending(".snapshot") {
        let (directory, name) = path.split_once('/').unwrap();
        let end_offset: i64 = name.trim_end_matches(".snapshot").parse().unwrap();
        let mut state = ProducerState::default();
        for (path, log) in kafka_folder::files_ending(".log") {
            if path.split_once('/').unwrap().0 != directory {
                continue;
            }
            for batch in batches(log).map(Result::unwrap) {
                if batch.header.last_offset() < Offset(end_offset) {
                    let end = batch.end_transaction().ok().flatten();
                    state.append_one(batch.header, end, &REPLICATION).unwrap();
                }
            }
        }
        assert_eq!(encode_snapshot(&state), snapshot[..], "{path}");
        compared += usize::from(state.producer_count() > 0);
    }
    assert!(compared >= 6, "{compared}");
}

/// Everything that was accepted, in order, and nothing derived from it.
#[derive(Default)]
struct Naive {
    events: Vec<Event>,
    high_watermark: i64,
    end: i64,
}

#[derive(Clone, Copy)]
struct Event {
    batch: BatchHeader,
    is_marker: bool,
}

#[derive(Debug, PartialEq)]
enum Verdict {
    Accepted,
    Duplicate(i64),
    Epoch,
    Sequence,
    Transaction,
}

impl Naive {
    fn of(&self, id: i64) -> impl DoubleEndedIterator<Item = &Event> {
        self.events.iter().filter(move |event| event.batch.producer_id.0 == id)
    }

    fn epoch(&self, id: i64) -> Option<i16> {
        self.of(id).next_back().map(|event| event.batch.producer_epoch.0)
    }

    fn open_transaction(&self, id: i64) -> Option<i64> {
        let since_marker = self.of(id).rev().take_while(|event| !event.is_marker);
        since_marker
            .filter(|event| event.batch.attributes.is_transactional())
            .last()
            .map(|event| event.batch.base_offset.0)
    }

    /// `kept`: how many batches a producer is recognised by.
    fn judge(&self, batch: &BatchHeader, is_marker: bool, kept: usize) -> Verdict {
        let id = batch.producer_id.0;
        let epoch = batch.producer_epoch.0;
        let in_epoch = self.of(id).rev().take_while(|event| event.batch.producer_epoch.0 == epoch);
        let recent: Vec<&Event> = in_epoch.filter(|event| !event.is_marker).take(kept).collect();
        if !is_marker {
            let same = recent.iter().find(|event| {
                (event.batch.base_sequence, event.batch.record_count)
                    == (batch.base_sequence, batch.record_count)
            });
            if let Some(same) = same {
                return Verdict::Duplicate(same.batch.base_offset.0);
            }
        }
        let Some(known) = self.epoch(id) else { return Verdict::Accepted };
        if epoch < known {
            return Verdict::Epoch;
        }
        if is_marker {
            return Verdict::Accepted;
        }
        let next = recent.first().map_or(0, |event| event.batch.base_sequence + event.batch.record_count);
        if batch.base_sequence != if epoch > known { 0 } else { next } {
            return Verdict::Sequence;
        }
        if self.open_transaction(id).is_some() && !batch.attributes.is_transactional() {
            return Verdict::Transaction;
        }
        Verdict::Accepted
    }

    fn first_unstable(&self) -> Option<i64> {
        let mut firsts = Vec::new();
        for id in 1..=3 {
            let mut open = None;
            for event in self.of(id) {
                match (event.is_marker, open) {
                    (true, Some(first)) => {
                        if event.batch.base_offset.0 >= self.high_watermark {
                            firsts.push(first);
                        }
                        open = None;
                    }
                    (true, None) => {}
                    (false, _) if event.batch.attributes.is_transactional() => {
                        open = open.or(Some(event.batch.base_offset.0));
                    }
                    (false, _) => {}
                }
            }
            firsts.extend(open);
        }
        firsts.into_iter().min()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Data { id: i64, epoch_change: i16, sequence_change: i32, count: i32, is_transactional: bool },
    Retry { id: i64, back: usize },
    Marker { id: i64, epoch_change: i16, is_abort: bool },
    Replicate { up_to: prop::sample::Index },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let rarely = |values: [i16; 2]| prop_oneof![8 => Just(0), 1 => Just(values[0]), 1 => Just(values[1])];
    prop_oneof![
        8 => (1..=3i64, rarely([1, -1]), rarely([1, -2]), 1..4i32, any::<bool>()).prop_map(
            |(id, epoch_change, sequence_change, count, is_transactional)| Step::Data {
                id, epoch_change, sequence_change: sequence_change.into(), count, is_transactional
            }
        ),
        3 => (1..=3i64, 0..7usize).prop_map(|(id, back)| Step::Retry { id, back }),
        3 => (1..=3i64, rarely([1, -1]), any::<bool>())
            .prop_map(|(id, epoch_change, is_abort)| Step::Marker { id, epoch_change, is_abort }),
        2 => any::<prop::sample::Index>().prop_map(|up_to| Step::Replicate { up_to }),
        1 => Just(Step::Restart),
    ]
}

fn verdict(result: Result<Checked, ProducerError>) -> Verdict {
    match result {
        Ok(Checked::Accepted) => Verdict::Accepted,
        Ok(Checked::Duplicate(batch)) => Verdict::Duplicate(batch.first_offset().0),
        Ok(Checked::AlreadyEnded) => panic!("no marker of this history may be repeated"),
        Err(ProducerError::InvalidProducerEpoch { .. }) => Verdict::Epoch,
        Err(ProducerError::OutOfOrderSequence { .. } | ProducerError::NewEpochNotAtZero { .. }) => {
            Verdict::Sequence
        }
        Err(ProducerError::NotTransactional { .. } | ProducerError::NotVerified { .. }) => {
            Verdict::Transaction
        }
        Err(error @ ProducerError::CoordinatorFenced { .. }) => panic!("{error}"),
    }
}

struct Run {
    state: ProducerState,
    naive: Naive,
}

impl Run {
    fn append(&mut self, batch: BatchHeader, marker: Option<TransactionMarker>) -> Result<(), TestCaseError> {
        let rules = if marker.is_some() { COORDINATOR } else { CLIENT };
        let mut append = ProducerAppend::default();
        let end = marker.and_then(|marker| end(marker, 0));
        let found = verdict(self.state.check(&mut append, &batch, end, &rules));
        let expected = self.naive.judge(&batch, marker.is_some(), 5);
        prop_assert_eq!(&found, &expected);
        if found == Verdict::Accepted {
            self.state.apply(append);
            self.naive.events.push(Event { batch, is_marker: marker.is_some() });
            self.naive.end = batch.next_offset().0;
        }
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Data { id, epoch_change, sequence_change, count, is_transactional } => {
                let epoch = (self.naive.epoch(id).unwrap_or(0) + epoch_change).max(0);
                let last = self.naive.of(id).rev().take_while(|event| event.batch.producer_epoch.0 == epoch);
                let last = last.filter(|event| !event.is_marker).map(|event| event.batch).next();
                let next = last.map_or(0, |batch| batch.base_sequence + batch.record_count);
                let batch = data(id, epoch, (next + sequence_change).max(0), self.naive.end, count);
                self.append(if is_transactional { transactional(batch) } else { batch }, None)
            }
            Step::Retry { id, back } => {
                let earlier = self.naive.of(id).filter(|event| !event.is_marker).nth_back(back);
                let Some(batch) = earlier.map(|event| event.batch) else { return Ok(()) };
                self.append(BatchHeader { base_offset: Offset(self.naive.end), ..batch }, None)
            }
            Step::Marker { id, epoch_change, is_abort } => {
                let epoch = (self.naive.epoch(id).unwrap_or(0) + epoch_change).max(0);
                let how = if is_abort { TransactionMarker::Abort } else { TransactionMarker::Commit };
                self.append(marker(id, epoch, self.naive.end), Some(how))
            }
            Step::Replicate { up_to } => {
                let up_to = up_to.index(self.naive.end as usize + 1) as i64;
                self.naive.high_watermark = self.naive.high_watermark.max(up_to);
                self.state.advance_high_watermark(Offset(self.naive.high_watermark));
                Ok(())
            }
            Step::Restart => self.restart(),
        }
    }

    /// A snapshot keeps open transactions and each producer's last batch.
    fn restart(&mut self) -> Result<(), TestCaseError> {
        let snapshot = encode_snapshot(&self.state);
        let entries = decode_snapshot(&snapshot).unwrap();
        let loaded = ProducerState::load(entries, self.state.end_offset(), Timestamp(0), i64::MAX);
        prop_assert_eq!(&loaded.ongoing, &self.state.ongoing);
        for (producer_id, entry) in self.state.producers() {
            let kept = loaded.producer(producer_id).unwrap();
            prop_assert_eq!(
                kept.last_batch().map(|batch| batch.last_offset),
                entry.last_batch().map(|batch| batch.last_offset)
            );
            prop_assert_eq!((kept.epoch, kept.last_timestamp), (entry.epoch, entry.last_timestamp));
        }
        prop_assert_eq!(encode_snapshot(&loaded), snapshot);
        Ok(())
    }
}

proptest! {
    #[test]
    fn random_histories_are_judged_as_by_a_naive_model(steps in proptest::collection::vec(step(), 1..60)) {
        let mut run = Run { state: ProducerState::default(), naive: Naive::default() };
        for step in steps {
            run.step(step)?;
            prop_assert_eq!(run.state.unstable(), run.naive.first_unstable());
        }
    }
}
