use std::collections::BTreeMap;
use std::fmt::Write;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::label::{Label, Names, OpenLabel};
use super::metrics::MetricKind;

/// Something that is measured: written without locks or allocations, printed for Prometheus.
pub(super) trait Instrument {
    const KIND: MetricKind;
    const LABELS: &'static [&'static str];

    fn new(names: &Names) -> Self;

    /// Appends the sample lines. `labels` is what stands between the braces, empty or ending in a comma.
    fn print(&self, name: &str, labels: &str, out: &mut String);

    /// Nothing was measured yet; such members of a family are not printed.
    fn is_untouched(&self) -> bool;
}

/// Only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn increment(&self) {
        self.add(1);
    }

    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds in nanoseconds; a last bucket without a bound follows.
const BOUNDS_NS: [u64; 17] = [
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// How long something took: from 50 µs to 10 s in steps of 2 to 2.5.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS_NS.len() + 1],
    sum_ns: AtomicU64,
}

impl Histogram {
    pub fn observe(&self, took: Duration) {
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_NS.partition_point(|&bound_ns| bound_ns < took_ns);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_ns.fetch_add(took_ns, Ordering::Relaxed);
    }

    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }
}

/// One instrument for each value of a label; the values are fixed when the broker starts.
#[derive(Debug)]
pub struct Family<L, I> {
    members: Vec<(String, I)>,
    label: PhantomData<fn(L)>,
}

#[expect(private_bounds, reason = "the labels and instruments of this room are the only ones")]
impl<L: Label, I> Family<L, I> {
    pub fn at(&self, label: L) -> &I {
        let position = label.position().min(self.members.len() - 1);
        &self.members[position].1
    }
}

impl<L: Label, I: Instrument> Instrument for Family<L, I> {
    const KIND: MetricKind = I::KIND;
    const LABELS: &'static [&'static str] = &[L::NAME];

    /// # Panics
    /// If the label has no values.
    fn new(names: &Names) -> Self {
        let members: Vec<(String, I)> =
            L::values(names).into_iter().map(|value| (value, I::new(names))).collect();
        assert!(!members.is_empty(), "the label {} has values", L::NAME);
        Family { members, label: PhantomData }
    }

    fn print(&self, name: &str, _: &str, out: &mut String) {
        for (value, member) in &self.members {
            if !member.is_untouched() {
                member.print(name, &format!("{}=\"{}\",", L::NAME, Escaped(value)), out);
            }
        }
    }

    fn is_untouched(&self) -> bool {
        self.members.iter().all(|(_, member)| member.is_untouched())
    }
}

/// A counter for each value of a label that is known only when it is met. For what happens seldom: a write takes a
/// lock.
#[derive(Debug, Default)]
pub struct Named<L> {
    members: Mutex<BTreeMap<String, u64>>,
    label: PhantomData<fn(L)>,
}

/// Values beyond so many are counted together, so that clients cannot fill the memory with names.
const NAMES_MAX: usize = 1_000;
const OTHER_NAMES: &str = "other";

#[expect(private_bounds, reason = "the labels of this room are the only ones")]
impl<L: OpenLabel> Named<L> {
    pub fn increment(&self, value: &str) {
        let mut members = self.members.lock();
        let name = if members.len() < NAMES_MAX || members.contains_key(value) { value } else { OTHER_NAMES };
        match members.get_mut(name) {
            Some(count) => *count += 1,
            None => {
                members.insert(name.to_owned(), 1);
            }
        }
    }
}

impl<L: OpenLabel> Instrument for Named<L> {
    const KIND: MetricKind = MetricKind::Counter;
    const LABELS: &'static [&'static str] = &[L::NAME];

    fn new(_: &Names) -> Self {
        Named { members: Mutex::default(), label: PhantomData }
    }

    fn print(&self, name: &str, _: &str, out: &mut String) {
        for (value, count) in &*self.members.lock() {
            print_line(name, &format!("{}=\"{}\",", L::NAME, Escaped(value)), count, out);
        }
    }

    fn is_untouched(&self) -> bool {
        self.members.lock().is_empty()
    }
}

impl Instrument for Counter {
    const KIND: MetricKind = MetricKind::Counter;
    const LABELS: &'static [&'static str] = &[];

    fn new(_: &Names) -> Self {
        Counter::default()
    }

    fn print(&self, name: &str, labels: &str, out: &mut String) {
        print_line(name, labels, self.value(), out);
    }

    fn is_untouched(&self) -> bool {
        self.value() == 0
    }
}

impl Instrument for Histogram {
    const KIND: MetricKind = MetricKind::Histogram;
    const LABELS: &'static [&'static str] = &[];

    fn new(_: &Names) -> Self {
        Histogram::default()
    }

    fn print(&self, name: &str, labels: &str, out: &mut String) {
        let mut count = 0;
        let bucket_name = format!("{name}_bucket");
        for (at, bucket) in self.buckets.iter().enumerate() {
            count += bucket.load(Ordering::Relaxed);
            let bound = match BOUNDS_NS.get(at) {
                Some(&bound_ns) => seconds(bound_ns).to_string(),
                None => "+Inf".to_owned(),
            };
            print_line(&bucket_name, &format!("{labels}le=\"{bound}\","), count, out);
        }
        print_line(&format!("{name}_sum"), labels, seconds(self.sum_ns.load(Ordering::Relaxed)), out);
        print_line(&format!("{name}_count"), labels, count, out);
    }

    fn is_untouched(&self) -> bool {
        self.count() == 0
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

pub(super) fn print_line(name: &str, labels: &str, value: impl std::fmt::Display, out: &mut String) {
    let written = match labels.trim_end_matches(',') {
        "" => writeln!(out, "{name} {value}"),
        labels => writeln!(out, "{name}{{{labels}}} {value}"),
    };
    written.expect("a string takes any text");
}

/// A label's value as Prometheus wants it between quotes.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for character in self.0.chars() {
            match character {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(instrument: &impl Instrument) -> String {
        let mut out = String::new();
        instrument.print("x", "", &mut out);
        out
    }

    #[test]
    fn buckets_count_everything_up_to_their_bound() {
        let histogram = Histogram::default();
        for micros in [10, 50, 51, 20_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let text = printed(&histogram);
        assert!(text.contains("x_bucket{le=\"0.00005\"} 2\n"), "{text}");
        assert!(text.contains("x_bucket{le=\"0.0001\"} 3\n"), "{text}");
        assert!(text.contains("x_bucket{le=\"10\"} 3\n"), "{text}");
        assert!(text.contains("x_bucket{le=\"+Inf\"} 4\n"), "{text}");
        assert!(text.contains("x_sum 20.000111\nx_count 4\n"), "{text}");
    }

    #[test]
    fn names_beyond_the_limit_are_counted_together() {
        let named = Named::<super::super::label::Principal>::new(&Names::default());
        for at in 0..NAMES_MAX + 5 {
            named.increment(&format!("User:{at:04}"));
        }
        named.increment("User:0000");
        let text = printed(&named);
        assert!(text.starts_with("x{principal=\"User:0000\"} 2\n"), "{text}");
        assert!(text.ends_with("x{principal=\"other\"} 5\n"), "{text}");
    }

    #[test]
    fn members_without_a_measurement_are_not_printed() {
        let names = Names { apis: vec!["Produce".to_owned(), "Fe\"tch".to_owned()], ..Names::default() };
        let family = Family::<super::super::label::Api, Counter>::new(&names);
        family.at(1.into()).add(3);
        family.at(99.into()).increment();
        assert_eq!(printed(&family), "x{api=\"Fe\\\"tch\"} 3\nx{api=\"unknown\"} 1\n");
    }
}
