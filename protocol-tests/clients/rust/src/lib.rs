//! The walk's records and events, as clients/README.md tells them.

use std::collections::HashSet;

pub const PARTITIONS: i32 = 4;
pub const COUNT: usize = 40;
pub const PHASES: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

pub struct Record {
    pub partition: i32,
    pub key: String,
    pub value: String,
    pub headers: [(&'static str, String); 2],
}

pub fn records(phase: &str) -> Vec<Record> {
    let record = |i: usize| {
        let key = format!("{phase}-{i}");
        let value = format!("{key}:{}", "0123456789".repeat(20));
        let headers = [("phase", phase.to_owned()), ("number", i.to_string())];
        Record { partition: i as i32 % PARTITIONS, key, value, headers }
    };
    (0..COUNT).map(record).collect()
}

/// Bootstrap, topic, group.
pub fn arguments() -> [String; 3] {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    arguments.try_into().expect("three arguments: BOOTSTRAP TOPIC GROUP")
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the walk's records are text")
}

pub fn print_read(
    by: &str,
    partition: i32,
    offset: i64,
    key: &[u8],
    value: &[u8],
    headers: Vec<(String, String)>,
) {
    let headers: Vec<String> = headers.iter().map(|(name, value)| format!("{name}={value}")).collect();
    println!("read\t{by}\t{partition}\t{offset}\t{}\t{}\t{}", text(key), text(value), headers.join(","));
}

pub fn restart() {
    println!("restart");
    let mut line = String::new();
    let length = std::io::stdin().read_line(&mut line).expect("read stdin");
    assert!(length > 0, "stdin ended instead of telling of the restart");
}

/// The keys that were read so far.
#[derive(Default)]
pub struct Seen(pub HashSet<String>);

impl Seen {
    pub fn has(&self, phases: &[&str]) -> bool {
        phases.iter().all(|phase| (0..COUNT).all(|i| self.0.contains(&format!("{phase}-{i}"))))
    }
}
