//! Choices that a seed makes.

use barnabas::runtime::Random;

/// True once in so many times.
pub fn one_in(random: &Random, count: u64) -> bool {
    random.number(0..count) == 0
}

/// One of the items, of which there is at least one.
pub fn any<'a, T>(random: &Random, items: &'a [T]) -> &'a T {
    &items[random.number(0..items.len() as u64) as usize]
}
