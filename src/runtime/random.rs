use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use parking_lot::Mutex;

/// A source of random numbers that a seed repeats. Clones draw from one sequence.
///
/// Not for secrets: who sees some numbers can compute the next ones.
#[derive(Clone)]
pub struct Random(Arc<Mutex<fastrand::Rng>>);

impl Random {
    pub fn from_entropy() -> Random {
        Random(Arc::new(Mutex::new(fastrand::Rng::new())))
    }

    pub fn from_seed(seed: u64) -> Random {
        Random(Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    /// Evenly drawn from `range`.
    ///
    /// # Panics
    /// If the range is empty.
    pub fn number(&self, range: impl RangeBounds<u64>) -> u64 {
        self.0.lock().u64(range)
    }

    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.lock().fill(&mut bytes);
        bytes
    }

    pub fn shuffle<T>(&self, items: &mut [T]) {
        self.0.lock().shuffle(items);
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_sequence() {
        let draw = || {
            let random = Random::from_seed(7);
            (random.number(..), random.bytes::<16>(), random.number(0..10))
        };
        assert_eq!(draw(), draw());
    }
}
