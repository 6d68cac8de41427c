//! What the kernel knows of this process, under the names that Prometheus' own clients use.

use std::fs;

use super::sample::{Sampled, Samples};

/// Leaves out what cannot be read, as on systems without `/proc`.
pub(super) fn sample(samples: &mut Samples) {
    samples.push(Sampled::BuildInfo, &[env!("CARGO_PKG_VERSION")], 1);
    if let Some(status) = Status::read() {
        samples.push(Sampled::ProcessCpuSeconds, &[], status.cpu_seconds);
        samples.push(Sampled::ProcessResidentBytes, &[], status.resident_bytes);
        if let Some(boot) = boot_seconds() {
            samples.push(Sampled::ProcessStart, &[], boot + status.start_seconds);
        }
    }
    if let Ok(files) = fs::read_dir("/proc/self/fd") {
        samples.push(Sampled::ProcessOpenFiles, &[], files.count());
    }
}

struct Status {
    cpu_seconds: f64,
    resident_bytes: u64,
    /// After the machine's boot.
    start_seconds: f64,
}

impl Status {
    fn read() -> Option<Status> {
        Self::parse(
            &fs::read_to_string("/proc/self/stat").ok()?,
            rustix::param::clock_ticks_per_second(),
            u64::try_from(rustix::param::page_size()).ok()?,
        )
    }

    /// The fields are numbered as in proc(5); the second one is a name in parentheses that may hold anything.
    fn parse(stat: &str, ticks_per_second: u64, page_bytes: u64) -> Option<Status> {
        let (_, after_name) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let seconds = |ticks: u64| ticks as f64 / ticks_per_second as f64;
        Some(Status {
            cpu_seconds: seconds(field(14)? + field(15)?),
            start_seconds: seconds(field(22)?),
            resident_bytes: field(24)? * page_bytes,
        })
    }
}

fn boot_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_process_may_hold_anything() {
        let stat = "12 (a) b (c) S 1 1 1 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 9 0 5000 9000000 77 1";
        let status = Status::parse(stat, 100, 4096).unwrap();
        assert_eq!((status.cpu_seconds, status.start_seconds, status.resident_bytes), (2.0, 50.0, 77 * 4096));
    }
}
