//! Waiting for what the server does in its own time.

use std::thread;
use std::time::{Duration, Instant};

use wire::consumer_protocol_assignment::ConsumerProtocolAssignment;
use wire::describe_groups_request::DescribeGroupsRequest;
use wire::{Message, Reader};

use crate::Connection;

/// Much longer than anything takes on a slow machine: reaching it is a failure.
const LIMIT: Duration = Duration::from_secs(120);

/// Asks again and again until `reached` gives a value.
#[track_caller]
pub fn wait_for<T>(what: &str, reached: impl FnMut() -> Option<T>) -> T {
    wait_within(LIMIT, what, reached)
}

/// As [`wait_for`], for what other programs do in their own, longer time.
#[track_caller]
pub fn wait_within<T>(limit: Duration, what: &str, reached: impl FnMut() -> Option<T>) -> T {
    try_for(limit, reached).unwrap_or_else(|| panic!("waited {limit:?} for {what}"))
}

fn try_for<T>(limit: Duration, mut reached: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        let value = reached();
        if value.is_some() {
            return value;
        }
        // Only keeps the question from eating the processor; the condition decides.
        thread::sleep(Duration::from_millis(20));
    }
    None
}

/// Waits until a classic group is stable and its members, by client id in alphabetical order, own so many partitions.
#[track_caller]
pub fn wait_for_group(connection: &mut Connection, group: &str, owned: &[(&str, usize)]) {
    let request = DescribeGroupsRequest { groups: vec![group.into()], ..Default::default() };
    let mut last = String::new();
    let reached = try_for(LIMIT, || {
        let response = connection.call(3, &request);
        let described = response.groups.first()?;
        let mut found: Vec<(&str, usize)> = described
            .members
            .iter()
            .map(|member| (&*member.client_id, owned_partitions(&member.member_assignment)))
            .collect();
        found.sort_unstable();
        let reached = &*described.group_state == "Stable" && found == owned;
        last = format!("{} {found:?}", &*described.group_state);
        reached.then_some(())
    });
    assert!(reached.is_some(), "waited {LIMIT:?} for {group} to own {owned:?}; last seen: {last}");
}

fn owned_partitions(assignment: &bytes::Bytes) -> usize {
    let mut reader = Reader::new(assignment.clone());
    let Ok(version) = reader.i16() else { return 0 };
    // Newer versions only add fields behind these.
    let version = version.min(ConsumerProtocolAssignment::MAX_VERSION);
    ConsumerProtocolAssignment::decode(&mut reader, version)
        .map(|assignment| assignment.assigned_partitions.iter().map(|topic| topic.partitions.len()).sum())
        .unwrap_or(0)
}
