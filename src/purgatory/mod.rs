//! Waiting for something to happen to partitions, without threads.
//!
//! A request that cannot be answered yet makes a [`Waiter`] and puts it into the [`WatchList`] of each
//! partition it waits for. Whoever changes a partition (an append, a high watermark that moves, a lost
//! leadership) wakes its list; the waiter then looks again, and waits again or answers. Deadlines are the
//! waiting task's own. A waiter leaves every list when it is dropped.

mod watch;

pub use watch::{Changes, Registration, Wait, Waiter, WatchList};
