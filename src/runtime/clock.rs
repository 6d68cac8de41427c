use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::model::Timestamp;

/// Tells the wall-clock time: the machine's, or one that a test moves by hand. Clones show the same time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Manual(Arc<AtomicI64>),
}

impl Clock {
    pub fn system() -> Clock {
        Clock(Source::System)
    }

    /// A clock that stands at `start` until it is moved.
    pub fn manual(start: Timestamp) -> Clock {
        Clock(Source::Manual(Arc::new(AtomicI64::new(start.0))))
    }

    /// The machine's clock may jump: never subtract two readings to time a wait.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => {
                let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
            }
            Source::Manual(now) => Timestamp(now.load(Ordering::SeqCst)),
        }
    }

    /// Moves a manual clock forward.
    ///
    /// # Panics
    /// On the system clock, which nobody may move.
    pub fn advance_ms(&self, ms: i64) {
        match &self.0 {
            Source::System => panic!("the system clock cannot be moved"),
            Source::Manual(now) => {
                now.fetch_add(ms, Ordering::SeqCst);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_by_hand_and_for_all_clones() {
        let clock = Clock::manual(Timestamp(1_000));
        let seen_elsewhere = clock.clone();
        assert_eq!(seen_elsewhere.now(), Timestamp(1_000));
        clock.advance_ms(5);
        assert_eq!(seen_elsewhere.now(), Timestamp(1_005));
    }

    #[test]
    fn the_system_clock_is_past_2020() {
        assert!(Clock::system().now() > Timestamp(1_577_836_800_000));
    }
}
