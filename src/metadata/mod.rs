//! What this broker knows of the cluster.
//!
//! [`control`] holds the three requests with which a controller tells brokers what to lead, follow, drop and
//! know, as domain values: the same whether they came over a socket or from the controller in this process.

pub mod control;
