//! The process around a broker: its threads and the signals that stop it.

use std::io;
use std::thread::available_parallelism;

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

/// The threads of a serving process.
pub struct Runtimes {
    /// Clients, logs, coordination.
    pub workers: Runtime,
    /// Metrics and the like: a burst of requests does not delay a probe, nor a scrape a request.
    pub aside: Runtime,
}

impl Runtimes {
    /// `None` = by the number of cores. Twice as many threads as cores keep all of them busy while some wait for
    /// the disk; more than 16 gained nothing when measured.
    pub fn start(worker_threads: Option<usize>) -> io::Result<Runtimes> {
        let cores = available_parallelism().map_or(1, |cores| cores.get());
        let worker_threads = worker_threads.unwrap_or((2 * cores).clamp(4, 16));
        Ok(Runtimes {
            workers: builder(worker_threads, "worker").build()?,
            aside: builder(1, "aside").build()?,
        })
    }
}

/// Allows this process as many open files as the system lets it ask for, as the JVM does for Kafka: a shell's usual soft
/// limit of 1,024 is fewer than the logs and connections of a small broker.
pub fn raise_open_files_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where that is refused, the old limit holds.
    let _ = setrlimit(Resource::Nofile, limit);
}

fn builder(threads: usize, name: &str) -> Builder {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).thread_name(name).enable_all();
    builder
}

/// Resolves with the name of the first SIGTERM, SIGINT or SIGHUP after this call. Must be called within a runtime.
///
/// Further ones are ignored, as Kafka ignores them: a terminal and a supervisor often both send one.
pub fn stop_signal() -> io::Result<impl Future<Output = &'static str>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
    Ok(async move {
        let hung_up = async {
            match &mut hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
            _ = hung_up => "SIGHUP",
        }
    })
}

/// Whether this process was started to outlive its terminal, as by nohup. Known on Linux only.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // Signal 1 is the lowest bit.
    ignored.is_some_and(|mask| mask & 1 == 1)
}
