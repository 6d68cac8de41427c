use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a server, or one of its connections, has done. For the four-letter words.
#[derive(Debug)]
pub(super) struct Counters {
    received: AtomicU64,
    sent: AtomicU64,
    latency_ms_sum: AtomicU64,
    latency_ms_min: AtomicU64,
    latency_ms_max: AtomicU64,
    /// Of the server that the connection belongs to.
    above: Option<std::sync::Arc<Counters>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub received: u64,
    pub sent: u64,
    pub latency_ms_min: u64,
    pub latency_ms_avg: f64,
    pub latency_ms_max: u64,
}

impl Counters {
    pub(super) fn new(above: Option<std::sync::Arc<Counters>>) -> Counters {
        Counters {
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            latency_ms_sum: AtomicU64::new(0),
            latency_ms_min: AtomicU64::new(u64::MAX),
            latency_ms_max: AtomicU64::new(0),
            above,
        }
    }

    pub(super) fn received(&self) {
        self.received.fetch_add(1, Ordering::Relaxed);
        if let Some(above) = &self.above {
            above.received();
        }
    }

    pub(super) fn sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        if let Some(above) = &self.above {
            above.sent();
        }
    }

    pub(super) fn answered(&self, after: Duration) {
        let ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.latency_ms_sum.fetch_add(ms, Ordering::Relaxed);
        self.latency_ms_min.fetch_min(ms, Ordering::Relaxed);
        self.latency_ms_max.fetch_max(ms, Ordering::Relaxed);
        if let Some(above) = &self.above {
            above.answered(after);
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let sent = self.sent.load(Ordering::Relaxed);
        let min = self.latency_ms_min.load(Ordering::Relaxed);
        Counts {
            received: self.received.load(Ordering::Relaxed),
            sent,
            latency_ms_min: if min == u64::MAX { 0 } else { min },
            latency_ms_avg: self.latency_ms_sum.load(Ordering::Relaxed) as f64 / sent.max(1) as f64,
            latency_ms_max: self.latency_ms_max.load(Ordering::Relaxed),
        }
    }
}
