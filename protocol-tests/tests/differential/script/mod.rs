//! The script: what is asked of every server. Cases that only read share the topics of [`prepare`]; the others make
//! their own.

mod cluster;
mod configs;
mod fetch;
mod groups;
mod offsets;
mod produce;
mod topics;

use crate::session::{Case, Session};

/// Four partitions, always empty.
const EMPTY: &str = "empty";
/// One partition, 20 records in batches of five.
const FILLED: &str = "filled";
/// Does not exist, and is never made.
const MISSING: &str = "missing";
/// Compacted.
const COMPACT: &str = "compact";

pub fn prepare(session: &mut Session) {
    session.topic(EMPTY, 4, &[]);
    session.filled_topic(FILLED);
    session.topic(COMPACT, 1, &[("cleanup.policy", "compact")]);
    session.offsets_topic();
}

pub fn cases() -> Vec<Case> {
    [
        cluster::CASES,
        topics::CASES,
        configs::CASES,
        produce::CASES,
        fetch::CASES,
        offsets::CASES,
        groups::CASES,
    ]
    .into_iter()
    .flatten()
    .map(|case| Case { name: case.name, api: case.api, versions: case.versions.clone(), run: case.run })
    .collect()
}
