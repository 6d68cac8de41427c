//! The classic group protocol: one group's state machine.
//!
//! ```text
//! Empty ──join──▶ PreparingRebalance ──all joined──▶ CompletingRebalance ──leader synced──▶ Stable
//!   ▲                  │        ▲                          │                                  │
//!   └────nobody left───┘        └───── join, leave, lost session, missing sync ───────────────┘
//! ```
//!
//! Any state ends in Dead when the group is removed. The group is a value: each function gets the moment and
//! leaves replies, writes and events in the outcome.

mod commit;
mod group;
mod join;
mod rebalance;
mod session;
mod sync;

pub(super) use group::{Group, Step};
pub(super) use join::StaticReplacement;
