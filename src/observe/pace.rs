use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Lets one line of the log through in each interval, for what clients can cause as often as they like.
#[derive(Debug)]
pub struct Pace {
    interval: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    held_back: u64,
}

impl Pace {
    pub fn new(interval: Duration) -> Pace {
        Pace { interval, state: Mutex::default() }
    }

    /// `None` = not now. Otherwise how many lines were held back since the last one.
    pub fn admit(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        if state.last.is_some_and(|last| now.saturating_duration_since(last) < self.interval) {
            state.held_back += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_each_interval_tells_of_those_held_back() {
        let pace = Pace::new(Duration::from_secs(1));
        let start = Instant::now();
        assert_eq!(pace.admit(start), Some(0));
        assert_eq!(pace.admit(start), None);
        assert_eq!(pace.admit(start + Duration::from_millis(999)), None);
        assert_eq!(pace.admit(start + Duration::from_secs(1)), Some(2));
        assert_eq!(pace.admit(start + Duration::from_secs(9)), Some(0));
    }
}
