use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Why the broker is not ready to serve clients, by the part that is not; no reason = ready.
#[derive(Debug)]
pub struct Readiness {
    reasons: Mutex<BTreeMap<&'static str, String>>,
}

impl Readiness {
    /// Not ready, because the broker starts.
    pub fn starting() -> Readiness {
        Readiness { reasons: Mutex::new(BTreeMap::from([("broker", "starting".to_owned())])) }
    }

    /// Replaces the reason that `part` gives.
    pub fn refuse(&self, part: &'static str, reason: impl Into<String>) {
        self.reasons.lock().insert(part, reason.into());
    }

    /// Takes back the reason that `part` gave, if it did.
    pub fn allow(&self, part: &'static str) {
        self.reasons.lock().remove(part);
    }

    /// `part: reason`, in order of the part.
    pub fn reasons(&self) -> Vec<String> {
        self.reasons.lock().iter().map(|(part, reason)| format!("{part}: {reason}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_is_ready_when_every_part_is() {
        let readiness = Readiness::starting();
        readiness.refuse("log", "recovering 3 of 10 partitions");
        readiness.refuse("log", "recovering 4 of 10 partitions");
        assert_eq!(readiness.reasons(), ["broker: starting", "log: recovering 4 of 10 partitions"]);
        readiness.allow("log");
        readiness.allow("broker");
        assert!(readiness.reasons().is_empty());
    }
}
