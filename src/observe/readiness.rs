use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Why the broker is not ready for something, by the part that is not; no reason = ready.
pub struct Readiness {
    reasons: Mutex<BTreeMap<&'static str, String>>,
    checks: Mutex<Vec<(&'static str, Check)>>,
}

/// Looks for a reason each time somebody asks.
type Check = Box<dyn Fn() -> Option<String> + Send + Sync>;

impl Readiness {
    /// Not ready, because the broker starts.
    pub fn starting() -> Readiness {
        let reasons = BTreeMap::from([("broker", "starting".to_owned())]);
        Readiness { reasons: Mutex::new(reasons), checks: Mutex::default() }
    }

    /// Replaces the reason that `part` gives.
    pub fn refuse(&self, part: &'static str, reason: impl Into<String>) {
        self.reasons.lock().insert(part, reason.into());
    }

    /// Takes back the reason that `part` gave, if it did.
    pub fn allow(&self, part: &'static str) {
        self.reasons.lock().remove(part);
    }

    /// Asks `check` from now on whether `part` has a reason.
    pub fn add_check(&self, part: &'static str, check: impl Fn() -> Option<String> + Send + Sync + 'static) {
        self.checks.lock().push((part, Box::new(check)));
    }

    /// `part: reason`: those that were given, in order of the part, then those that are looked for.
    pub fn reasons(&self) -> Vec<String> {
        let tell = |part: &str, reason: &str| format!("{part}: {reason}");
        let mut reasons: Vec<String> =
            self.reasons.lock().iter().map(|(part, reason)| tell(part, reason)).collect();
        for (part, check) in self.checks.lock().iter() {
            reasons.extend(check().map(|reason| tell(part, &reason)));
        }
        reasons
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

    #[test]
    fn checks_are_made_when_somebody_asks() {
        let readiness = Readiness::starting();
        readiness.allow("broker");
        let lagging = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(2));
        let looked_at = std::sync::Arc::clone(&lagging);
        readiness.add_check("replication", move || {
            let lagging = looked_at.load(std::sync::atomic::Ordering::Relaxed);
            (lagging > 0).then(|| format!("{lagging} partitions"))
        });
        assert_eq!(readiness.reasons(), ["replication: 2 partitions"]);
        lagging.store(0, std::sync::atomic::Ordering::Relaxed);
        assert!(readiness.reasons().is_empty());
    }
}
