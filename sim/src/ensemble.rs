//! ZooKeeper as a broker has it over a network that fails: calls travel, connections are lost with the outcome of their
//! calls unknown, and sessions expire at the ensemble while their broker still believes in them.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::Poll;
use std::time::Duration;

use barnabas::coordination::{
    BoxFuture, Create, Ensemble, MemoryEnsemble, MemoryStore, NodeData, Operation, OperationResult,
    SessionState, Stat, Store, StoreError, StoreEvent, Watcher,
};
use barnabas::runtime::net::MemoryNetwork;
use barnabas::runtime::{Process, Random};
use bytes::Bytes;
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use crate::trace::Trace;

/// The host that the ensemble is on the network.
pub const HOST: &str = "zk";

/// How often both sides of a session look whether the other one is there.
const HEARTBEAT: Duration = Duration::from_millis(200);

/// The sessions of one life of a broker.
pub struct SimEnsemble {
    pub tree: MemoryEnsemble,
    pub network: MemoryNetwork,
    /// The broker's host.
    pub host: String,
    pub process: Process,
    pub session_timeout: Duration,
    pub random: Random,
    pub trace: Trace,
    /// The session that the broker has now, for faults.
    pub sessions: SessionFaults,
}

/// How faults get at the sessions of a broker. Cheap to clone.
#[derive(Clone, Default)]
pub struct SessionFaults(Arc<Mutex<Option<SessionHandle>>>);

#[derive(Clone)]
struct SessionHandle {
    tree: MemoryEnsemble,
    id: i64,
    is_cut: Arc<AtomicBool>,
}

impl SessionFaults {
    /// The ensemble ends the session; the broker hears of it later.
    pub fn expire(&self) {
        if let Some(session) = self.0.lock().clone() {
            session.tree.expire_session(session.id);
        }
    }

    /// The connection breaks, with what is under way on it.
    pub fn cut(&self) {
        if let Some(session) = self.0.lock().clone() {
            session.is_cut.store(true, Ordering::Relaxed);
        }
    }
}

impl Ensemble for SimEnsemble {
    fn open_session(&self) -> BoxFuture<'_, Result<Arc<dyn Store>, StoreError>> {
        Box::pin(async move {
            let deadline = Instant::now() + self.session_timeout;
            loop {
                sleep(self.latency()).await;
                if is_reachable(&self.network, &self.host) {
                    return Ok(self.session());
                }
                if Instant::now() >= deadline {
                    return Err(StoreError::Failed { reason: "no server answers".to_owned() });
                }
                sleep(HEARTBEAT).await;
            }
        })
    }
}

impl SimEnsemble {
    fn latency(&self) -> Duration {
        Duration::from_millis(self.random.number(0..=3))
    }

    fn session(&self) -> Arc<dyn Store> {
        let server = self.tree.session();
        let id = server.session_id();
        let is_cut = Arc::new(AtomicBool::new(false));
        let handle = SessionHandle { tree: self.tree.clone(), id, is_cut: is_cut.clone() };
        *self.sessions.0.lock() = Some(handle);
        let status = Arc::new(Status(AtomicU8::new(CONNECTED)));
        let (calls, receiver) = mpsc::unbounded_channel();
        self.trace.note(format_args!("{} opens session {id}", self.host));
        let link = Link {
            tree: self.tree.clone(),
            network: self.network.clone(),
            host: self.host.clone(),
            process: self.process.clone(),
            session_timeout: self.session_timeout,
            random: self.random.clone(),
            trace: self.trace.clone(),
            is_cut,
            status: status.clone(),
            server: Server { store: server, watches: Vec::new() },
            calls: receiver,
            is_abandoned: false,
            upward: VecDeque::new(),
            downward: VecDeque::new(),
            heard: Instant::now(),
        };
        // Not one of the broker's tasks: the ensemble lives on when it dies.
        tokio::spawn(link.run());
        Arc::new(SimStore { id, status, calls })
    }
}

fn is_reachable(network: &MemoryNetwork, host: &str) -> bool {
    network.reaches(host, HOST) && network.reaches(HOST, host)
}

const CONNECTED: u8 = 0;
const DISCONNECTED: u8 = 1;
const EXPIRED: u8 = 2;

struct Status(AtomicU8);

impl Status {
    fn set(&self, state: u8) {
        self.0.store(state, Ordering::Relaxed);
    }

    fn state(&self) -> SessionState {
        match self.0.load(Ordering::Relaxed) {
            CONNECTED => SessionState::Connected,
            DISCONNECTED => SessionState::Disconnected,
            _ => SessionState::Expired,
        }
    }
}

/// The ensemble's side of a session.
struct Server {
    store: MemoryStore,
    watches: Vec<(Watcher, oneshot::Sender<StoreEvent>)>,
}

impl Server {
    fn watch(&mut self, watcher: Watcher) -> Watcher {
        let (told, tells) = oneshot::channel();
        self.watches.push((watcher, told));
        tells
    }
}

/// A call on its way, there or back.
trait Call: Send {
    fn apply(&mut self, server: &mut Server);
    fn answer(self: Box<Self>);
    /// The connection is gone: nobody knows whether it was applied.
    fn lose(self: Box<Self>, error: StoreError);
}

struct TypedCall<T, F> {
    call: Option<F>,
    outcome: Option<T>,
    lost: fn(StoreError) -> T,
    reply: oneshot::Sender<T>,
}

impl<T: Send, F: FnOnce(&mut Server) -> T + Send> Call for TypedCall<T, F> {
    fn apply(&mut self, server: &mut Server) {
        if let Some(call) = self.call.take() {
            self.outcome = Some(call(server));
        }
    }

    fn answer(self: Box<Self>) {
        if let Some(outcome) = self.outcome {
            let _ = self.reply.send(outcome);
        }
    }

    fn lose(self: Box<Self>, error: StoreError) {
        let _ = self.reply.send((self.lost)(error));
    }
}

enum Downward {
    Answer(Box<dyn Call>),
    Event(oneshot::Sender<StoreEvent>, StoreEvent),
}

fn lost() -> StoreError {
    StoreError::OutcomeUnknown { reason: "connection lost".to_owned() }
}

/// A session's connection, with both of its ends.
struct Link {
    tree: MemoryEnsemble,
    network: MemoryNetwork,
    host: String,
    process: Process,
    session_timeout: Duration,
    random: Random,
    trace: Trace,
    is_cut: Arc<AtomicBool>,
    status: Arc<Status>,
    server: Server,
    calls: mpsc::UnboundedReceiver<Box<dyn Call>>,
    /// The broker has let go of the session.
    is_abandoned: bool,
    upward: VecDeque<(Instant, Box<dyn Call>)>,
    downward: VecDeque<(Instant, Downward)>,
    /// When the two sides last heard of each other.
    heard: Instant,
}

impl Link {
    /// To the end of the session.
    async fn run(mut self) {
        loop {
            let next = self.next_arrival().min(Instant::now() + HEARTBEAT);
            let fired = fired(&mut self.server.watches);
            let call = tokio::select! {
                biased;
                fired = fired => {
                    self.tell(fired);
                    None
                }
                call = self.calls.recv(), if !self.is_abandoned => {
                    self.is_abandoned = call.is_none();
                    call
                }
                () = sleep_until(next) => None,
            };
            if let Some(call) = call {
                self.send(call);
            }
            if self.step() {
                return;
            }
        }
    }

    /// While nothing gets through, queues stand still.
    fn next_arrival(&self) -> Instant {
        let far = Instant::now() + HEARTBEAT;
        if !self.is_through() {
            return far;
        }
        let first = self.upward.front().map(|(at, _)| *at);
        first.into_iter().chain(self.downward.front().map(|(at, _)| *at)).min().unwrap_or(far)
    }

    fn is_through(&self) -> bool {
        !self.is_abandoned && !self.process.is_held() && is_reachable(&self.network, &self.host)
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(self.random.number(0..=3))
    }

    fn send(&mut self, call: Box<dyn Call>) {
        match self.status.state() {
            SessionState::Connected => {
                let at = Instant::now() + self.delay();
                let at = self.upward.back().map_or(at, |(last, _)| at.max(*last));
                self.upward.push_back((at, call));
            }
            SessionState::Disconnected => call.lose(lost()),
            SessionState::Expired => call.lose(StoreError::SessionExpired),
        }
    }

    fn tell(&mut self, fired: Vec<(oneshot::Sender<StoreEvent>, StoreEvent)>) {
        for (told, event) in fired {
            self.send_down(Downward::Event(told, event));
        }
    }

    fn send_down(&mut self, what: Downward) {
        let at = Instant::now() + self.delay();
        let at = self.downward.back().map_or(at, |(last, _)| at.max(*last));
        self.downward.push_back((at, what));
    }

    /// Moves what has arrived, and looks after the session. Whether it is over.
    fn step(&mut self) -> bool {
        let now = Instant::now();
        let is_through = self.is_through();
        if self.is_cut.swap(false, Ordering::Relaxed) {
            self.lose_connection();
        } else if is_through && self.status.state() == SessionState::Disconnected {
            return self.reconnect();
        }
        if is_through && self.status.state() == SessionState::Connected {
            self.heard = now;
            self.arrive(now);
            if self.has_expired() {
                self.lose_connection();
            }
        }
        if now - self.heard > self.session_timeout && !self.has_expired() {
            self.trace.note(format_args!("session {} of {} times out", self.id(), self.host));
            self.tree.expire_session(self.id());
        }
        if now - self.heard > self.session_timeout * 2 / 3 && self.status.state() == SessionState::Connected {
            self.lose_connection();
        }
        self.is_abandoned && self.has_expired()
    }

    fn id(&self) -> i64 {
        self.server.store.session_id()
    }

    fn has_expired(&self) -> bool {
        self.server.store.session_state() == SessionState::Expired
    }

    fn arrive(&mut self, now: Instant) {
        while self.upward.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, mut call)) = self.upward.pop_front() else { return };
            call.apply(&mut self.server);
            // A watch is told before a read of the same session can see the change.
            if let Some(fired) = fired(&mut self.server.watches).now_or_never() {
                self.tell(fired);
            }
            self.send_down(Downward::Answer(call));
        }
        while self.downward.front().is_some_and(|(at, _)| *at <= now) {
            match self.downward.pop_front() {
                Some((_, Downward::Answer(call))) => call.answer(),
                Some((_, Downward::Event(told, event))) => drop(told.send(event)),
                None => return,
            }
        }
    }

    /// Some of what is under way has arrived, in order, and some has not.
    fn lose_connection(&mut self) {
        if self.status.state() != SessionState::Connected {
            return;
        }
        self.status.set(DISCONNECTED);
        let arriving = self.random.number(0..=self.upward.len() as u64) as usize;
        for (at, (_, mut call)) in std::mem::take(&mut self.upward).into_iter().enumerate() {
            if at < arriving {
                call.apply(&mut self.server);
            }
            call.lose(lost());
        }
        for (at, what) in std::mem::take(&mut self.downward) {
            match what {
                Downward::Answer(call) => call.lose(lost()),
                event @ Downward::Event(..) => self.downward.push_back((at, event)),
            }
        }
    }

    /// Whether the session is over.
    fn reconnect(&mut self) -> bool {
        self.heard = Instant::now();
        let has_expired = self.has_expired();
        if let Some(fired) = fired(&mut self.server.watches).now_or_never() {
            self.tell(fired);
        }
        self.status.set(if has_expired { EXPIRED } else { CONNECTED });
        for (_, what) in std::mem::take(&mut self.downward) {
            if let Downward::Event(told, event) = what {
                let _ = told.send(event);
            }
        }
        if has_expired {
            self.trace.note(format_args!("{} hears that session {} is over", self.host, self.id()));
        }
        has_expired
    }
}

/// The watches that fire next, at least one.
fn fired(
    watches: &mut Vec<(Watcher, oneshot::Sender<StoreEvent>)>,
) -> impl Future<Output = Vec<(oneshot::Sender<StoreEvent>, StoreEvent)>> + '_ {
    poll_fn(move |context| {
        let mut found = Vec::new();
        for (mut watcher, told) in std::mem::take(watches) {
            match Pin::new(&mut watcher).poll(context) {
                Poll::Ready(Ok(event)) => found.push((told, event)),
                Poll::Ready(Err(_)) => {}
                Poll::Pending if told.is_closed() => {}
                Poll::Pending => watches.push((watcher, told)),
            }
        }
        if found.is_empty() { Poll::Pending } else { Poll::Ready(found) }
    })
}

/// One session, as the broker has it.
struct SimStore {
    id: i64,
    status: Arc<Status>,
    calls: mpsc::UnboundedSender<Box<dyn Call>>,
}

impl SimStore {
    /// Queues the call before it returns, so that calls keep their order.
    fn call<T: Send + 'static>(
        &self,
        lost: fn(StoreError) -> T,
        call: impl FnOnce(&mut Server) -> T + Send + 'static,
    ) -> BoxFuture<'static, T> {
        let (reply, answer) = oneshot::channel();
        let call = TypedCall { call: Some(call), outcome: None, lost, reply };
        let sent = self.calls.send(Box::new(call));
        Box::pin(async move {
            match sent {
                Ok(()) => answer.await.unwrap_or_else(|_| lost(StoreError::SessionExpired)),
                Err(_) => lost(StoreError::SessionExpired),
            }
        })
    }

    /// A call whose watch is told through the connection as well.
    fn watching_call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&MemoryStore) -> BoxFuture<'static, Result<(T, Watcher), StoreError>> + Send + 'static,
    ) -> BoxFuture<'static, Result<(T, Watcher), StoreError>> {
        self.call(Err, move |server| {
            let (seen, watcher) = now(call(&server.store))?;
            Ok((seen, server.watch(watcher)))
        })
    }
}

/// The in-memory store answers at once.
fn now<T>(answer: BoxFuture<'static, T>) -> T {
    answer.now_or_never().expect("nothing waits in memory")
}

impl Store for SimStore {
    fn create(&self, node: Create) -> BoxFuture<'static, Result<(String, Stat), StoreError>> {
        self.call(Err, move |server| now(server.store.create(node)))
    }

    fn delete(&self, path: &str, version: Option<i32>) -> BoxFuture<'static, Result<(), StoreError>> {
        let path = path.to_owned();
        self.call(Err, move |server| now(server.store.delete(&path, version)))
    }

    fn set(
        &self,
        path: &str,
        data: Option<Bytes>,
        version: Option<i32>,
    ) -> BoxFuture<'static, Result<Stat, StoreError>> {
        let path = path.to_owned();
        self.call(Err, move |server| now(server.store.set(&path, data, version)))
    }

    fn read(&self, path: &str) -> BoxFuture<'static, Result<NodeData, StoreError>> {
        let path = path.to_owned();
        self.call(Err, move |server| now(server.store.read(&path)))
    }

    fn exists(&self, path: &str) -> BoxFuture<'static, Result<Option<Stat>, StoreError>> {
        let path = path.to_owned();
        self.call(Err, move |server| now(server.store.exists(&path)))
    }

    fn children(&self, path: &str) -> BoxFuture<'static, Result<Vec<String>, StoreError>> {
        let path = path.to_owned();
        self.call(Err, move |server| now(server.store.children(&path)))
    }

    fn read_and_watch(&self, path: &str) -> BoxFuture<'static, Result<(NodeData, Watcher), StoreError>> {
        let path = path.to_owned();
        self.watching_call(move |store| store.read_and_watch(&path))
    }

    fn exists_and_watch(
        &self,
        path: &str,
    ) -> BoxFuture<'static, Result<(Option<Stat>, Watcher), StoreError>> {
        let path = path.to_owned();
        self.watching_call(move |store| store.exists_and_watch(&path))
    }

    fn children_and_watch(
        &self,
        path: &str,
    ) -> BoxFuture<'static, Result<(Vec<String>, Watcher), StoreError>> {
        let path = path.to_owned();
        self.watching_call(move |store| store.children_and_watch(&path))
    }

    fn multi(
        &self,
        operations: Vec<Operation>,
    ) -> BoxFuture<'static, Result<Vec<OperationResult>, (usize, StoreError)>> {
        self.call(|error| Err((0, error)), move |server| now(server.store.multi(operations)))
    }

    fn session_id(&self) -> i64 {
        self.id
    }

    fn session_state(&self) -> SessionState {
        self.status.state()
    }

    fn close(&self) -> BoxFuture<'static, Result<(), StoreError>> {
        self.call(Err, |server| now(server.store.close()))
    }
}
