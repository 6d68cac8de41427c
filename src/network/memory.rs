use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use parking_lot::Mutex;

/// The bytes that requests of all connections may hold together.
///
/// A connection reserves before it reads, step by step as bytes arrive, so that a peer which announces a large
/// frame and sends nothing costs nothing. While the budget is exhausted sockets are simply not read from.
pub struct RequestMemory {
    limit_bytes: u64,
    used_bytes: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
    /// Whether somebody may be waiting, readable without the lock: most releases find nobody.
    is_contended: AtomicBool,
}

impl RequestMemory {
    pub fn new(limit_bytes: u64) -> Arc<RequestMemory> {
        Arc::new(RequestMemory {
            limit_bytes,
            used_bytes: AtomicU64::new(0),
            waiting: Mutex::new(Vec::new()),
            is_contended: AtomicBool::new(false),
        })
    }

    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }

    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Takes `bytes`, or nothing and remembers `waker` for the next release. One reservation may overshoot an
    /// empty budget: a legal request larger than the budget must still be served.
    fn try_reserve(&self, bytes: u64, waker: &Waker) -> bool {
        if self.take(bytes) {
            return true;
        }
        self.waiting.lock().push(waker.clone());
        self.is_contended.store(true, Ordering::SeqCst);
        // A release between the failed take and the push would have woken nobody.
        self.take(bytes)
    }

    fn take(&self, bytes: u64) -> bool {
        let limit = self.limit_bytes;
        self.used_bytes
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |used| {
                (used == 0 || used.saturating_add(bytes) <= limit).then(|| used.saturating_add(bytes))
            })
            .is_ok()
    }

    fn release(&self, bytes: u64) {
        let before = self.used_bytes.fetch_sub(bytes, Ordering::SeqCst);
        assert!(before >= bytes, "request memory released twice: {before} < {bytes}");
        if self.is_contended.swap(false, Ordering::SeqCst) {
            for waker in std::mem::take(&mut *self.waiting.lock()) {
                waker.wake();
            }
        }
    }
}

/// A part of the budget; given back when dropped.
pub(super) struct Reservation {
    memory: Arc<RequestMemory>,
    bytes: u64,
}

impl Reservation {
    pub(super) fn empty(memory: &Arc<RequestMemory>) -> Reservation {
        Reservation { memory: Arc::clone(memory), bytes: 0 }
    }

    /// Raises the reservation to `bytes`. `false`: out of budget, the waker is woken when some is released.
    pub(super) fn raise_to(&mut self, bytes: u64, waker: &Waker) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        if more > 0 && !self.memory.try_reserve(more, waker) {
            return false;
        }
        self.bytes = self.bytes.max(bytes);
        true
    }

    /// Whether others wait for memory.
    pub(super) fn is_wanted(&self) -> bool {
        self.memory.is_contended.load(Ordering::SeqCst)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives back what goes beyond `bytes`.
    pub(super) fn lower_to(&mut self, bytes: u64) {
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        if less > 0 {
            self.memory.release(less);
        }
    }

    /// Cuts off a part of `bytes`, at most all.
    pub(super) fn split(&mut self, bytes: u64) -> Reservation {
        let part = Reservation { memory: Arc::clone(&self.memory), bytes: self.bytes.min(bytes) };
        self.bytes -= part.bytes;
        part
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.memory.release(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_shared_and_given_back() {
        let memory = RequestMemory::new(100);
        let mut first = Reservation::empty(&memory);
        let mut second = Reservation::empty(&memory);
        assert!(first.raise_to(60, Waker::noop()));
        assert!(!second.raise_to(50, Waker::noop()));
        assert!(second.raise_to(40, Waker::noop()));
        assert_eq!(memory.used_bytes(), 100);
        drop(first);
        assert!(second.raise_to(100, Waker::noop()));
        drop(second);
        assert_eq!(memory.used_bytes(), 0);
    }

    #[test]
    fn a_part_is_given_back() {
        let memory = RequestMemory::new(100);
        let mut reservation = Reservation::empty(&memory);
        assert!(reservation.raise_to(60, Waker::noop()));
        reservation.lower_to(80);
        assert_eq!(memory.used_bytes(), 60);
        reservation.lower_to(10);
        assert_eq!((memory.used_bytes(), reservation.bytes()), (10, 10));
        drop(reservation);
        assert_eq!(memory.used_bytes(), 0);
    }

    #[test]
    fn a_part_is_cut_off_and_given_back_alone() {
        let memory = RequestMemory::new(100);
        let mut reservation = Reservation::empty(&memory);
        assert!(reservation.raise_to(60, Waker::noop()));
        let part = reservation.split(20);
        assert_eq!((part.bytes(), reservation.bytes(), memory.used_bytes()), (20, 40, 60));
        drop(part);
        assert_eq!((reservation.split(100).bytes(), reservation.bytes()), (40, 0));
        assert_eq!(memory.used_bytes(), 0);
    }

    #[test]
    fn one_request_larger_than_the_budget_is_served_alone() {
        let memory = RequestMemory::new(10);
        let mut large = Reservation::empty(&memory);
        assert!(large.raise_to(1000, Waker::noop()));
        let mut next = Reservation::empty(&memory);
        assert!(!next.raise_to(1, Waker::noop()));
        large.lower_to(0);
        assert!(next.raise_to(1, Waker::noop()));
    }
}
