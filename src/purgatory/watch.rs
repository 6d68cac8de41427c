use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// Something that waits for partitions to change. Cheap to clone; all clones are one waiter.
#[derive(Clone)]
pub struct Waiter {
    shared: Arc<Shared>,
}

struct Shared {
    id: u64,
    /// Set by a wake-up, cleared when the waiter has seen it. A wake-up between a look at the partitions and
    /// the wait is therefore not lost.
    is_woken: AtomicBool,
    waker: Mutex<Option<Waker>>,
    noted: Mutex<Slots>,
}

/// What changed of a partition, or what of it somebody waits for. [`WatchList::wake_all`] stands for all that has no name
/// here: its role, above all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changes(u8);

/// A set of small numbers.
#[derive(Default)]
struct Slots(Vec<u64>);

static NEXT_WAITER_ID: AtomicU64 = AtomicU64::new(0);

impl Changes {
    pub const LOG_END: Changes = Changes(1);
    /// The last stable offset moves with it.
    pub const HIGH_WATERMARK: Changes = Changes(2);
    /// The leader's, or a follower's.
    pub const LOG_START: Changes = Changes(4);

    pub fn and(self, other: Changes) -> Changes {
        Changes(self.0 | other.0)
    }

    fn meets(self, other: Changes) -> bool {
        self.0 & other.0 != 0
    }
}

impl Slots {
    fn add(&mut self, slot: u32) {
        let (word, bit) = (slot as usize / 64, slot % 64);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << bit;
    }

    fn take(&mut self) -> Vec<u32> {
        let mut taken = Vec::new();
        for (word, bits) in self.0.iter_mut().enumerate() {
            while *bits != 0 {
                taken.push(word as u32 * 64 + bits.trailing_zeros());
                *bits &= *bits - 1;
            }
        }
        taken
    }
}

impl Waiter {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Waiter {
        Waiter {
            shared: Arc::new(Shared {
                id: NEXT_WAITER_ID.fetch_add(1, Ordering::Relaxed),
                is_woken: AtomicBool::new(false),
                waker: Mutex::new(None),
                noted: Mutex::default(),
            }),
        }
    }

    /// Resolves at the next wake-up, at once when there was one since the last wait.
    pub fn wait(&self) -> Wait<'_> {
        Wait { waiter: self }
    }

    /// The slots whose partitions changed in any way since the last call, in order; see [`WatchList::register_slot`].
    pub fn take_noted(&self) -> Vec<u32> {
        self.shared.noted.lock().take()
    }

    /// As if the slot's partition had changed, without a wake-up.
    pub fn note(&self, slot: u32) {
        self.shared.noted.lock().add(slot);
    }

    fn wake(&self) {
        self.shared.is_woken.store(true, Ordering::Release);
        if let Some(waker) = self.shared.waker.lock().take() {
            waker.wake();
        }
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("id", &self.shared.id).finish_non_exhaustive()
    }
}

/// See [`Waiter::wait`].
pub struct Wait<'a> {
    waiter: &'a Waiter,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let shared = &self.waiter.shared;
        if shared.is_woken.swap(false, Ordering::Acquire) {
            return Poll::Ready(());
        }
        *shared.waker.lock() = Some(context.waker().clone());
        // A wake-up may have come between the look and storing the waker.
        if shared.is_woken.swap(false, Ordering::Acquire) {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

/// Who waits for one partition.
#[derive(Default)]
pub struct WatchList {
    waiters: Mutex<HashMap<u64, Entry, foldhash::fast::FixedState>>,
    /// How many wait, readable without the lock: most appends find nobody waiting.
    count: AtomicUsize,
}

struct Entry {
    waiter: Waiter,
    /// What it is woken for.
    wants: Changes,
    /// What is noted whenever anything changes.
    slot: Option<u32>,
}

impl WatchList {
    /// Adds the waiter until the registration is dropped, to be woken for these changes. Register first, then look at the
    /// partition: a change after the look then wakes.
    pub fn register(list: &Arc<WatchList>, waiter: &Waiter, wants: Changes) -> Registration {
        WatchList::enter(list, Entry { waiter: waiter.clone(), wants, slot: None })
    }

    /// As [`WatchList::register`]. Besides, any change notes the slot, so that a waiter with thousands of partitions need
    /// look at those alone that changed.
    pub fn register_slot(list: &Arc<WatchList>, waiter: &Waiter, wants: Changes, slot: u32) -> Registration {
        WatchList::enter(list, Entry { waiter: waiter.clone(), wants, slot: Some(slot) })
    }

    fn enter(list: &Arc<WatchList>, entry: Entry) -> Registration {
        let waiter_id = entry.waiter.shared.id;
        let mut waiters = list.waiters.lock();
        waiters.insert(waiter_id, entry);
        list.count.store(waiters.len(), Ordering::Relaxed);
        drop(waiters);
        // Pairs with the fence in `wake_if`: either the change sees this waiter, or the look that follows
        // sees the change.
        fence(Ordering::SeqCst);
        Registration { list: Arc::clone(list), waiter_id }
    }

    /// Wakes those who wait for one of these changes. They stay on the list until they leave it.
    pub fn wake(&self, changes: Changes) {
        self.wake_if(|entry| entry.wants.meets(changes));
    }

    /// Wakes everybody who waits, as [`WatchList::wake`].
    pub fn wake_all(&self) {
        self.wake_if(|_| true);
    }

    fn wake_if(&self, is_wanted: impl Fn(&Entry) -> bool) {
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        for entry in self.waiters.lock().values() {
            if let Some(slot) = entry.slot {
                entry.waiter.note(slot);
            }
            if is_wanted(entry) {
                entry.waiter.wake();
            }
        }
    }

    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Keeps a waiter on a list; dropping it leaves the list.
pub struct Registration {
    list: Arc<WatchList>,
    waiter_id: u64,
}

impl Registration {
    pub fn is_on(&self, list: &Arc<WatchList>) -> bool {
        Arc::ptr_eq(&self.list, list)
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("waiter_id", &self.waiter_id).finish_non_exhaustive()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut waiters = self.list.waiters.lock();
        waiters.remove(&self.waiter_id);
        if waiters.is_empty() {
            // Idle partitions keep no table: there may be ten thousands of them.
            *waiters = HashMap::default();
        }
        self.list.count.store(waiters.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(waiter: &Waiter) -> Poll<()> {
        let mut wait = waiter.wait();
        Pin::new(&mut wait).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_change_between_look_and_wait_is_not_lost() {
        let list = Arc::new(WatchList::default());
        let waiter = Waiter::new();
        let _registration = WatchList::register(&list, &waiter, Changes::LOG_END);
        list.wake(Changes::LOG_END);
        assert_eq!(poll(&waiter), Poll::Ready(()));
        assert_eq!(poll(&waiter), Poll::Pending);
    }

    #[test]
    fn one_waiter_watches_many_partitions() {
        let lists = [Arc::new(WatchList::default()), Arc::new(WatchList::default())];
        let waiter = Waiter::new();
        let _registrations: Vec<_> =
            lists.iter().map(|list| WatchList::register(list, &waiter, Changes::LOG_END)).collect();
        assert_eq!(poll(&waiter), Poll::Pending);
        lists[1].wake_all();
        assert_eq!(poll(&waiter), Poll::Ready(()));
    }

    #[test]
    fn a_dropped_registration_leaves_the_list() {
        let list = Arc::new(WatchList::default());
        let waiter = Waiter::new();
        let registration = WatchList::register(&list, &waiter, Changes::LOG_END);
        assert_eq!(list.len(), 1);
        drop(registration);
        assert!(list.is_empty());
        list.wake_all();
        assert_eq!(poll(&waiter), Poll::Pending);
    }

    #[test]
    fn a_waiter_is_woken_for_what_it_waits_for_and_for_what_has_no_name() {
        let list = Arc::new(WatchList::default());
        let waiter = Waiter::new();
        let _registration = WatchList::register(&list, &waiter, Changes::HIGH_WATERMARK);
        list.wake(Changes::LOG_END.and(Changes::LOG_START));
        assert_eq!(poll(&waiter), Poll::Pending);
        list.wake(Changes::LOG_END.and(Changes::HIGH_WATERMARK));
        assert_eq!(poll(&waiter), Poll::Ready(()));
        list.wake_all();
        assert_eq!(poll(&waiter), Poll::Ready(()));
    }

    #[test]
    fn any_change_is_noted_once() {
        let lists = [Arc::new(WatchList::default()), Arc::new(WatchList::default())];
        let waiter = Waiter::new();
        let slots = [3, 200];
        let _registrations: Vec<_> = lists
            .iter()
            .zip(slots)
            .map(|(list, slot)| WatchList::register_slot(list, &waiter, Changes::LOG_END, slot))
            .collect();
        assert!(waiter.take_noted().is_empty());
        lists[1].wake(Changes::HIGH_WATERMARK);
        lists[1].wake(Changes::HIGH_WATERMARK);
        assert_eq!(poll(&waiter), Poll::Pending);
        lists[0].wake(Changes::LOG_END);
        assert_eq!(poll(&waiter), Poll::Ready(()));
        assert_eq!(waiter.take_noted(), slots);
        assert!(waiter.take_noted().is_empty());
    }
}
