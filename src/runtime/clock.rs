use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::model::Timestamp;

/// Tells the wall-clock time: the machine's, one that a test moves by hand, or one of a simulated machine. Clones show
/// the same time.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone)]
enum Source {
    System,
    Manual(Arc<AtomicI64>),
    Told(Arc<dyn Fn() -> Timestamp + Send + Sync>),
}

impl Clock {
    pub fn system() -> Clock {
        Clock(Source::System)
    }

    /// A clock that stands at `start` until it is moved.
    pub fn manual(start: Timestamp) -> Clock {
        Clock(Source::Manual(Arc::new(AtomicI64::new(start.0))))
    }

    /// A clock that asks `tell` for the time.
    pub fn told_by(tell: impl Fn() -> Timestamp + Send + Sync + 'static) -> Clock {
        Clock(Source::Told(Arc::new(tell)))
    }

    /// The machine's clock may jump: never subtract two readings to time a wait.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => {
                let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX))
            }
            Source::Manual(now) => Timestamp(now.load(Ordering::SeqCst)),
            Source::Told(tell) => tell(),
        }
    }

    /// Moves a manual clock forward.
    ///
    /// # Panics
    /// On a clock that is not manual, which nobody may move.
    pub fn advance_ms(&self, ms: i64) {
        match &self.0 {
            Source::System | Source::Told(_) => panic!("only a manual clock can be moved"),
            Source::Manual(now) => {
                now.fetch_add(ms, Ordering::SeqCst);
            }
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::System => "System",
            Source::Manual(_) => "Manual",
            Source::Told(_) => "Told",
        })
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
