//! Simulated time, and what happened at which time.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use barnabas::model::Timestamp;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::Instant;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// When the wall clocks of all hosts begin, in milliseconds since 1970.
const FIRST_MS: i64 = 1_700_000_000_000;

/// Milliseconds since the simulation began, readable also from threads that know no runtime.
static NOW_MS: AtomicU64 = AtomicU64::new(0);

/// The time in one simulation. Cheap to clone.
#[derive(Clone)]
pub struct SimTime {
    began: Instant,
}

impl SimTime {
    /// Begins now. Within the runtime only.
    pub fn begin() -> SimTime {
        NOW_MS.store(0, Ordering::Relaxed);
        SimTime { began: Instant::now() }
    }

    /// What a clock shows that nobody has set.
    pub fn wall(&self) -> Timestamp {
        Timestamp(FIRST_MS + self.now_ms() as i64)
    }

    pub fn now_ms(&self) -> u64 {
        // A thread that helps a task waits with it: time stands still meanwhile.
        if Handle::try_current().is_ok() {
            let elapsed = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
            NOW_MS.store(elapsed, Ordering::Relaxed);
        }
        NOW_MS.load(Ordering::Relaxed)
    }
}

/// What happened, line by line. Cheap to clone.
#[derive(Clone)]
pub struct Trace {
    time: SimTime,
    lines: Arc<Mutex<Vec<String>>>,
    is_shown: bool,
}

impl Trace {
    /// `is_shown`: each line goes to stderr as well.
    pub fn new(time: SimTime, is_shown: bool) -> Trace {
        Trace { time, lines: Arc::default(), is_shown }
    }

    pub fn note(&self, what: impl fmt::Display) {
        let ms = self.time.now_ms();
        let line = format!("{:>4}.{:03} {what}", ms / 1000, ms % 1000);
        if self.is_shown {
            eprintln!("{line}");
        }
        self.lines.lock().push(line);
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }
}

/// Log lines carry the simulation's time.
pub struct LogTime;

impl FormatTime for LogTime {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let ms = NOW_MS.load(Ordering::Relaxed);
        write!(writer, "{:>4}.{:03}", ms / 1000, ms % 1000)
    }
}
