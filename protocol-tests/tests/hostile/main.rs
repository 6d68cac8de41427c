//! Input that no client of good faith sends: each is refused as Kafka refuses it, and the broker goes on as if
//! nothing had been, with a clean log and no more memory.

mod bombs;
mod frames;
mod produce;
mod sockets;

use std::time::Duration;

use frames::works;
use protocol_tests::Broker;

/// `socket.request.max.bytes`; small, so that a frame of exactly this size is quickly sent.
const REQUEST_BYTES_MAX: usize = 2 * 1024 * 1024;
/// How much the broker may have grown at its peak. All that is announced here is a hundred times as much.
const GROWTH_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// How long a connection that is to be closed may stay open.
const CLOSE_LIMIT: Duration = Duration::from_secs(60);

#[test]
fn hostile_input_harms_nobody_but_its_sender() {
    let broker = Broker::start(&[("socket.request.max.bytes", &REQUEST_BYTES_MAX.to_string())]);
    let address = broker.address();
    produce::create_topic(&address);
    let before = broker.memory_bytes("VmRSS:");
    for step in frames::STEPS.iter().chain(produce::STEPS) {
        step(&address);
        works(&address);
    }
    if broker.server().is_barnabas() {
        let growth = broker.memory_bytes("VmHWM:").saturating_sub(before);
        assert!(growth < GROWTH_BYTES_MAX, "the broker grew by {growth} bytes");
    }
}
