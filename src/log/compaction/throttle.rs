use std::time::Duration;

use crate::model::Timestamp;

/// Bounds how many bytes all cleanings together read and write in a second.
#[derive(Debug)]
pub struct Throttle {
    bytes_per_second: f64,
    /// When all bytes so far are paid for, in milliseconds.
    paid_at: f64,
}

impl Throttle {
    /// `log.cleaner.io.max.bytes.per.second`
    pub fn new(bytes_per_second: f64) -> Throttle {
        Throttle { bytes_per_second, paid_at: f64::MIN }
    }

    pub fn change(&mut self, bytes_per_second: f64) {
        self.bytes_per_second = bytes_per_second;
    }

    /// Takes note of bytes that were read or written; answers how long to wait before the next ones.
    pub fn took(&mut self, bytes: u64, now: Timestamp) -> Duration {
        /// Nothing waits longer at once, so that a higher limit is soon felt.
        const WAIT_MS_MAX: f64 = 1_000.0;
        let now_ms = now.0 as f64;
        let cost_ms = bytes as f64 * 1_000.0 / self.bytes_per_second.max(1.0);
        self.paid_at = (self.paid_at.max(now_ms) + cost_ms).min(now_ms + 100.0 * WAIT_MS_MAX);
        let wait_ms = (self.paid_at - now_ms).clamp(0.0, WAIT_MS_MAX);
        // Waits below a timer's grain add up until they are worth one.
        if wait_ms < 1.0 { Duration::ZERO } else { Duration::from_secs_f64(wait_ms / 1_000.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_flow_is_held_to_the_limit() {
        let mut throttle = Throttle::new(1_000_000.0);
        let mut now = Timestamp(1_000);
        for _ in 0..100 {
            now = now.plus_ms(throttle.took(50_000, now).as_millis() as i64);
        }
        assert!((4_900..=5_100).contains(&now.since_ms(Timestamp(1_000))), "{now}");
    }

    #[test]
    fn without_a_limit_nobody_waits_and_time_unused_is_not_saved_up() {
        let mut throttle = Throttle::new(f64::MAX);
        assert_eq!(throttle.took(1 << 40, Timestamp(5)), Duration::ZERO);
        throttle.change(1_000.0);
        assert_eq!(throttle.took(500, Timestamp(1_000_000)), Duration::from_millis(500));
        assert_eq!(throttle.took(500, Timestamp(1_000_000)), Duration::from_millis(1_000));
    }
}
