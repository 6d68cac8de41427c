//! Where tasks come from, and how all of them end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tracing::{debug, error};

use super::Process;

/// Starts a task whose panic ends only that task: a connection.
pub fn spawn<F>(name: &'static str, future: F) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    start(async move {
        let guard = PanicReport { name, ends_process: false };
        future.await;
        std::mem::forget(guard);
    })
}

/// Starts a task that owns state others rely on. Its panic ends the process: going on with half of the state
/// would be worse than a restart.
pub fn spawn_owner<F>(name: &'static str, future: F) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    start(async move {
        let guard = PanicReport { name, ends_process: true };
        future.await;
        std::mem::forget(guard);
    })
}

/// Runs work that may wait for the disk off the workers.
pub fn blocking<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> JoinHandle<R> {
    match Process::current() {
        Some(process) => process.spawn_blocking(work),
        None => tokio::task::spawn_blocking(work),
    }
}

fn start<F>(future: F) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    match Process::current() {
        Some(process) => process.spawn(future),
        None => tokio::spawn(future),
    }
}

/// A thread with a runtime of its own, for work that must not wait behind busy workers. Dropping it ends its
/// tasks where they are.
#[derive(Debug)]
pub struct Aside {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

impl Aside {
    pub fn start(name: &str) -> std::io::Result<Aside> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name(name).enable_all().build()?;
        Ok(Aside { runtime: Some(runtime) })
    }

    /// As [`spawn_owner`].
    pub fn spawn_owner<F>(&self, name: &'static str, future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if let Some(runtime) = &self.runtime {
            let _entered = runtime.enter();
            spawn_owner(name, future);
        }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // Waiting for the thread would block whoever drops this, which may be a worker.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Runs work that takes long in the middle of a task, whose next step needs its result, while another thread takes over
/// what waits for this one.
///
/// Without it a worker that is busy for seconds may keep every socket waiting: it is the one that hears of them, and
/// the others sleep until it calls.
pub fn hand_over_and<R>(work: impl FnOnce() -> R) -> R {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

struct PanicReport {
    name: &'static str,
    ends_process: bool,
}

impl Drop for PanicReport {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        error!(task = self.name, "a task panicked");
        if self.ends_process {
            std::process::abort();
        }
    }
}

/// Asks everything to stop; held by the broker.
pub struct ShutdownTrigger {
    requested: watch::Sender<bool>,
    guards: Arc<Guards>,
}

/// Tells that the broker stops. Cheap to clone.
#[derive(Clone)]
pub struct Shutdown {
    requested: watch::Receiver<bool>,
    guards: Arc<Guards>,
}

#[derive(Default)]
struct Guards {
    count: AtomicUsize,
    all_gone: Notify,
}

/// While one exists, [`ShutdownTrigger::drained`] waits.
pub struct DrainGuard {
    guards: Arc<Guards>,
}

impl ShutdownTrigger {
    pub fn new() -> (ShutdownTrigger, Shutdown) {
        let (sender, receiver) = watch::channel(false);
        let guards = Arc::new(Guards::default());
        let trigger = ShutdownTrigger { requested: sender, guards: Arc::clone(&guards) };
        (trigger, Shutdown { requested: receiver, guards })
    }

    pub fn request(&self) {
        self.requested.send_replace(true);
    }

    /// Resolves when every [`DrainGuard`] is gone, or after `limit`.
    pub async fn drained(&self, limit: Duration) {
        let all_gone = async {
            loop {
                let notified = self.guards.all_gone.notified();
                if self.guards.count.load(Ordering::Acquire) == 0 {
                    return;
                }
                notified.await;
            }
        };
        if tokio::time::timeout(limit, all_gone).await.is_err() {
            let left = self.guards.count.load(Ordering::Acquire);
            debug!(left, "stopping without waiting for the rest");
        }
    }
}

impl Shutdown {
    /// As [`requested`](Shutdown::requested): a trigger that is gone is a stop as well.
    pub fn is_requested(&self) -> bool {
        *self.requested.borrow() || self.requested.has_changed().is_err()
    }

    /// Resolves when the broker stops.
    pub fn requested(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut requested = self.requested.clone();
        Box::pin(async move {
            // An error means that the trigger is gone, which is a stop as well.
            let _ = requested.wait_for(|&is_requested| is_requested).await;
        })
    }

    /// A stop of one part, which comes with that of the whole at the latest. Guards count for the whole. Must be called
    /// within a tokio runtime.
    pub fn child(&self) -> (ShutdownTrigger, Shutdown) {
        let (sender, receiver) = watch::channel(false);
        let trigger = ShutdownTrigger { requested: sender.clone(), guards: Arc::clone(&self.guards) };
        let whole = self.requested();
        spawn("shutdown of a part", async move {
            tokio::select! {
                () = whole => drop(sender.send_replace(true)),
                () = sender.closed() => {}
            }
        });
        (trigger, Shutdown { requested: receiver, guards: Arc::clone(&self.guards) })
    }

    /// Keeps the broker from stopping before this work is done.
    pub fn drain_guard(&self) -> DrainGuard {
        self.guards.count.fetch_add(1, Ordering::AcqRel);
        DrainGuard { guards: Arc::clone(&self.guards) }
    }
}

impl Drop for DrainGuard {
    fn drop(&mut self) {
        if self.guards.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.guards.all_gone.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stop_waits_for_what_is_guarded() {
        let (trigger, shutdown) = ShutdownTrigger::new();
        let guard = shutdown.drain_guard();
        let work = tokio::spawn(async move {
            shutdown.requested().await;
            drop(guard);
        });
        trigger.request();
        trigger.drained(Duration::from_secs(60)).await;
        work.await.unwrap();
    }

    #[tokio::test]
    async fn a_trigger_that_is_gone_is_a_stop() {
        let (trigger, shutdown) = ShutdownTrigger::new();
        assert!(!shutdown.is_requested());
        drop(trigger);
        shutdown.requested().await;
        assert!(shutdown.is_requested());
    }

    #[tokio::test]
    async fn a_part_stops_alone_or_with_the_whole() {
        let (whole, shutdown) = ShutdownTrigger::new();
        let (part, stops_alone) = shutdown.child();
        let (_other, stops_with_all) = shutdown.child();
        part.request();
        stops_alone.requested().await;
        assert!(!shutdown.is_requested() && !stops_with_all.is_requested());
        whole.request();
        stops_with_all.requested().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_does_not_wait_for_ever() {
        let (trigger, shutdown) = ShutdownTrigger::new();
        let _guard = shutdown.drain_guard();
        trigger.request();
        trigger.drained(Duration::from_secs(5)).await;
        assert!(shutdown.is_requested());
    }
}
