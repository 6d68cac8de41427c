use std::fmt;

use crate::metadata::control::Endpoint;
use crate::model::BrokerId;

/// The line on stdout that tells scripts and tests that clients are accepted.
pub struct Ready<'a> {
    pub broker_id: BrokerId,
    pub cluster_id: &'a str,
    /// With the ports that were bound.
    pub listeners: &'a [Endpoint],
    pub log_dirs: &'a [String],
    /// `embedded`, or the ensemble.
    pub store: &'a str,
}

impl fmt::Display for Ready<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listeners: Vec<String> = self
            .listeners
            .iter()
            .map(|endpoint| format!("{}://{}:{}", endpoint.listener, endpoint.host, endpoint.port))
            .collect();
        write!(
            f,
            "barnabas ready broker_id={} cluster_id={} listeners={} log_dirs={} store={}",
            self.broker_id,
            self.cluster_id,
            listeners.join(","),
            self.log_dirs.join(","),
            self.store
        )
    }
}
