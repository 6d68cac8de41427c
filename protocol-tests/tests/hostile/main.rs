//! Input that no client of good faith sends: each is refused as Kafka refuses it, and the broker goes on as if
//! nothing had been, with a clean log and no more memory.

mod frames;
mod produce;

use std::time::Duration;

use frames::{closes, works};
use protocol_tests::Broker;

/// `socket.request.max.bytes`; small, so that a frame of exactly this size is quickly sent.
const REQUEST_BYTES_MAX: usize = 2 * 1024 * 1024;
/// How much the broker may have grown at its peak. All that is announced here is a hundred times as much.
const GROWTH_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// How long a connection that is to be closed may stay open.
const CLOSE_LIMIT: Duration = Duration::from_secs(20);

#[test]
fn hostile_input_harms_nobody_but_its_sender() {
    let broker = Broker::start(&[("socket.request.max.bytes", &REQUEST_BYTES_MAX.to_string())]);
    let address = broker.address();
    produce::create_topic(&address);
    let before = memory_bytes(&broker, "VmRSS:");
    for step in frames::STEPS.iter().chain(produce::STEPS) {
        step(&address);
        works(&address);
    }
    if broker.server().is_barnabas() {
        let growth = memory_bytes(&broker, "VmHWM:").saturating_sub(before);
        assert!(growth < GROWTH_BYTES_MAX, "the broker grew by {growth} bytes");
    }
}

/// R06
#[test]
fn a_silent_connection_is_closed_when_it_has_been_idle_for_too_long() {
    let broker = Broker::start(&[("connections.max.idle.ms", "300")]);
    let address = broker.address();
    closes(&address, "nothing at all", &[]);
    closes(&address, "half of the size", &[0, 0]);
    closes(&address, "half of a request", &[0, 0, 0, 20, 0, 3, 0, 1]);
    works(&address);
}

/// A line of `/proc/PID/status`: `VmRSS:` is the memory in use, `VmHWM:` its peak.
fn memory_bytes(broker: &Broker, line: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", broker.pid())).unwrap_or_default();
    let text = status.lines().find_map(|found| found.strip_prefix(line)).unwrap_or_default();
    let kibibytes: u64 = text.trim().trim_end_matches(" kB").parse().unwrap_or(0);
    kibibytes * 1024
}
