//! What an operator sees from outside: metrics, health, logs.
//!
//! [`Metrics`] is written on hot paths by relaxed atomic additions and read by `/metrics`; its table is the
//! one list of what is measured. [`Readiness`] holds the reasons why the broker is not ready.

pub mod http;
mod instrument;
mod label;
mod loggers;
pub mod logging;
mod metrics;
mod pace;
mod process;
mod readiness;
mod reference;
mod sample;

pub use instrument::{Counter, Family, Histogram, Named};
pub use label::{Api, Closed, ControllerEvent, Error, Listener, Names, Refused};
pub use loggers::{LevelChange, LoggerError, Loggers};
pub use metrics::{Metric, MetricKind, Metrics, metrics_table};
pub use pace::Pace;
pub use readiness::Readiness;
pub use reference::metrics_reference;
pub use sample::{Sampled, Samples};
