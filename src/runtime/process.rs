use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::Random;

tokio::task_local! {
    static CURRENT: Process;
}

/// One broker's tasks among those of other brokers on the same thread, in a simulation.
///
/// A task that a task of this process starts through [`task`](super::task) belongs to it too. All of them can be held
/// up as by a stop signal, or ended between two awaits as by a kill. Work for the blocking pool becomes a task as well,
/// so that a seed decides when it runs. Where nobody makes a `Process`, none of this happens.
#[derive(Clone)]
pub struct Process(Arc<Mutex<State>>);

type Action = Box<dyn FnOnce() + Send>;

struct State {
    is_killed: bool,
    is_paused: bool,
    /// How often tasks were polled so far.
    polls: u64,
    next_task: u64,
    /// Of the tasks that live, by number.
    wakers: BTreeMap<u64, Option<Waker>>,
    /// With the count of polls at which it is done.
    action: Option<(u64, Action)>,
    random: Random,
    disk_delay_us_max: u64,
}

enum Admission {
    Runs,
    Paused,
    Killed,
}

impl Process {
    /// `random` draws how long work on the disk waits.
    pub fn new(random: Random) -> Process {
        Process(Arc::new(Mutex::new(State {
            is_killed: false,
            is_paused: false,
            polls: 0,
            next_task: 0,
            wakers: BTreeMap::new(),
            action: None,
            random,
            disk_delay_us_max: 0,
        })))
    }

    /// The process that the running task belongs to.
    pub(super) fn current() -> Option<Process> {
        CURRENT.try_with(Process::clone).ok()
    }

    /// Starts a task of this process. Its handle never resolves once the process is killed.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        let id = {
            let mut state = self.0.lock();
            state.next_task += 1;
            let id = state.next_task;
            state.wakers.insert(id, None);
            id
        };
        tokio::spawn(Member { process: self.clone(), id, future: Some(Box::pin(future)) })
    }

    pub(super) fn spawn_blocking<R: Send + 'static>(
        &self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> JoinHandle<R> {
        let delay = {
            let state = self.0.lock();
            Duration::from_micros(state.random.number(0..=state.disk_delay_us_max))
        };
        self.spawn(async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            work()
        })
    }

    /// Ends all tasks where they stand: none runs on, and what they hold is dropped.
    pub fn kill(&self) {
        let mut state = self.0.lock();
        state.is_killed = true;
        state.wake_all();
    }

    pub fn is_killed(&self) -> bool {
        self.0.lock().is_killed
    }

    /// Killed or paused.
    pub fn is_held(&self) -> bool {
        let state = self.0.lock();
        state.is_killed || state.is_paused
    }

    /// No task runs until [`resume`](Self::resume).
    pub fn pause(&self) {
        self.0.lock().is_paused = true;
    }

    pub fn resume(&self) {
        let mut state = self.0.lock();
        state.is_paused = false;
        state.wake_all();
    }

    /// Does something before the task that is polled as the `polls`th from now on: between any two awaits, that is. Takes
    /// the place of what was planned before.
    pub fn after_polls(&self, polls: u64, action: impl FnOnce() + Send + 'static) {
        let mut state = self.0.lock();
        let at = state.polls + polls;
        state.action = Some((at, Box::new(action)));
    }

    /// Takes back what [`after_polls`](Self::after_polls) planned and was not done yet.
    pub fn forget_action(&self) {
        self.0.lock().action = None;
    }

    /// Work for the blocking pool begins after up to so long.
    pub fn set_disk_delay_us_max(&self, disk_delay_us_max: u64) {
        self.0.lock().disk_delay_us_max = disk_delay_us_max;
    }

    fn admit(&self, id: u64, waker: &Waker) -> Admission {
        let due = {
            let mut state = self.0.lock();
            state.polls += 1;
            let polls = state.polls;
            state.action.take_if(|(at, _)| *at <= polls)
        };
        // Outside of the lock: it may kill this very process.
        if let Some((_, action)) = due {
            action();
        }
        let mut state = self.0.lock();
        if state.is_killed {
            state.wakers.remove(&id);
            return Admission::Killed;
        }
        state.wakers.insert(id, Some(waker.clone()));
        if state.is_paused { Admission::Paused } else { Admission::Runs }
    }
}

impl State {
    fn wake_all(&self) {
        self.wakers.values().flatten().for_each(Waker::wake_by_ref);
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Process")
    }
}

/// A task of a process.
struct Member<F> {
    process: Process,
    id: u64,
    /// `None` once it is killed.
    future: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for Member<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let process = self.process.clone();
        match process.admit(self.id, context.waker()) {
            Admission::Killed => {
                self.future = None;
                Poll::Pending
            }
            Admission::Paused => Poll::Pending,
            Admission::Runs => match &mut self.future {
                Some(future) => CURRENT.sync_scope(process, || future.as_mut().poll(context)),
                None => Poll::Pending,
            },
        }
    }
}

impl<F> Drop for Member<F> {
    fn drop(&mut self) {
        self.process.0.lock().wakers.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::super::task;
    use super::*;

    async fn settle() {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }

    fn process() -> Process {
        Process::new(Random::from_seed(1))
    }

    /// A task, and one that it starts, each counting its steps.
    fn count(process: &Process) -> Arc<AtomicU32> {
        let counted = Arc::new(AtomicU32::new(0));
        let counting = |counted: Arc<AtomicU32>| async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        };
        let (mine, child) = (counting(counted.clone()), counting(counted.clone()));
        process.spawn(async move {
            task::spawn("child", child);
            mine.await;
        });
        counted
    }

    #[tokio::test]
    async fn a_kill_ends_a_task_and_those_it_started() {
        let process = process();
        let counted = count(&process);
        settle().await;
        process.kill();
        let before = counted.load(Ordering::Relaxed);
        assert!(before > 10);
        settle().await;
        assert_eq!(counted.load(Ordering::Relaxed), before);
        // What the tasks held is dropped.
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    #[tokio::test]
    async fn a_pause_holds_all_tasks_up() {
        let process = process();
        let counted = count(&process);
        settle().await;
        process.pause();
        let before = counted.load(Ordering::Relaxed);
        settle().await;
        assert_eq!(counted.load(Ordering::Relaxed), before);
        process.resume();
        settle().await;
        assert!(counted.load(Ordering::Relaxed) > before);
    }

    #[tokio::test]
    async fn an_action_comes_before_the_poll_it_was_planned_for() {
        let process = process();
        let counted = count(&process);
        let killed = process.clone();
        process.after_polls(5, move || killed.kill());
        settle().await;
        assert_eq!(counted.load(Ordering::Relaxed), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn blocking_work_runs_as_a_task_after_the_disk_s_delay() {
        let process = process();
        process.set_disk_delay_us_max(1_000_000);
        let worked = process.spawn(async { task::blocking(|| 7).await.unwrap() });
        assert_eq!(worked.await.unwrap(), 7);
    }
}
