//! The randomness that libraries take from the system by themselves: the order of hash maps, tokio's choice among
//! branches that are ready. Here a seed decides it.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

static STATE: AtomicU64 = AtomicU64::new(0);

/// From now on the system's randomness follows from `seed`. Threads that have made a hash map keep the keys they have:
/// to be called before the thread of a simulation is started.
pub fn seed(seed: u64) {
    STATE.store(seed, Ordering::Relaxed);
}

/// splitmix64.
fn next() -> u64 {
    let state = STATE.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
    let mut mixed = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Takes the place of the C library's function, which the standard library looks up by its name so that it can be
/// replaced.
///
/// # Safety
/// `buffer` points to `length` bytes that may be written, as for the function it replaces.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    let mut bits = 0;
    for at in 0..length {
        if at % 8 == 0 {
            bits = next();
        }
        // SAFETY: `at` is below `length`, and the caller owns that many bytes. They are written, not read.
        unsafe { buffer.add(at).write((bits >> (at % 8 * 8)) as u8) };
    }
    isize::try_from(length).unwrap_or(isize::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    /// The order in which a thread's hash maps iterate.
    fn order() -> Vec<u32> {
        super::seed(7);
        let thread = std::thread::spawn(|| (0..100).collect::<HashSet<u32>>().into_iter().collect());
        thread.join().unwrap()
    }

    #[test]
    fn hash_maps_of_a_seed_iterate_in_one_order() {
        assert_eq!(order(), order());
    }
}
