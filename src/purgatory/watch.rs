use std::collections::HashMap;
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
}

static NEXT_WAITER_ID: AtomicU64 = AtomicU64::new(0);

impl Waiter {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Waiter {
        Waiter {
            shared: Arc::new(Shared {
                id: NEXT_WAITER_ID.fetch_add(1, Ordering::Relaxed),
                is_woken: AtomicBool::new(false),
                waker: Mutex::new(None),
            }),
        }
    }

    /// Resolves at the next wake-up, at once when there was one since the last wait.
    pub fn wait(&self) -> Wait<'_> {
        Wait { waiter: self }
    }

    fn wake(&self) {
        self.shared.is_woken.store(true, Ordering::Release);
        if let Some(waker) = self.shared.waker.lock().take() {
            waker.wake();
        }
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
    waiters: Mutex<HashMap<u64, Waiter, foldhash::fast::FixedState>>,
    /// How many wait, readable without the lock: most appends find nobody waiting.
    count: AtomicUsize,
}

impl WatchList {
    /// Adds the waiter until the registration is dropped. Register first, then look at the partition: a change
    /// after the look then wakes.
    pub fn register(list: &Arc<WatchList>, waiter: &Waiter) -> Registration {
        let mut waiters = list.waiters.lock();
        waiters.insert(waiter.shared.id, waiter.clone());
        list.count.store(waiters.len(), Ordering::Relaxed);
        drop(waiters);
        // Pairs with the fence in `wake_all`: either the change sees this waiter, or the look that follows
        // sees the change.
        fence(Ordering::SeqCst);
        Registration { list: Arc::clone(list), waiter_id: waiter.shared.id }
    }

    /// Wakes everybody who waits. They stay on the list until they leave it.
    pub fn wake_all(&self) {
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        for waiter in self.waiters.lock().values() {
            waiter.wake();
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
        let _registration = WatchList::register(&list, &waiter);
        list.wake_all();
        assert_eq!(poll(&waiter), Poll::Ready(()));
        assert_eq!(poll(&waiter), Poll::Pending);
    }

    #[test]
    fn one_waiter_watches_many_partitions() {
        let lists = [Arc::new(WatchList::default()), Arc::new(WatchList::default())];
        let waiter = Waiter::new();
        let _registrations: Vec<_> = lists.iter().map(|list| WatchList::register(list, &waiter)).collect();
        assert_eq!(poll(&waiter), Poll::Pending);
        lists[1].wake_all();
        assert_eq!(poll(&waiter), Poll::Ready(()));
    }

    #[test]
    fn a_dropped_registration_leaves_the_list() {
        let list = Arc::new(WatchList::default());
        let waiter = Waiter::new();
        let registration = WatchList::register(&list, &waiter);
        assert_eq!(list.len(), 1);
        drop(registration);
        assert!(list.is_empty());
        list.wake_all();
        assert_eq!(poll(&waiter), Poll::Pending);
    }
}
