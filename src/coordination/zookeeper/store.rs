use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tracing::info;

use super::acl::AclPolicy;
use super::connect_string::ConnectString;
use super::peer::Peer;
use super::protocol::{self, Answer, Request};
use super::sasl::SaslIdentity;
use super::session::{Call, CallError, Opened, Reply, SessionTask, Status, Watch};
use super::watch_table::WatchTarget;
use crate::coordination::path;
use crate::coordination::store::{
    BoxFuture, Create, CreateMode, Ensemble, NodeData, Operation, OperationResult, SessionState, Stat, Store,
    StoreError, Watcher,
};
use crate::runtime::Random;
use crate::runtime::task::Aside;
use crate::runtime::tls::TlsClient;

/// An Apache ZooKeeper ensemble, 3.5 or later, from which sessions are opened.
#[derive(Debug)]
pub struct ZooKeeperEnsemble {
    options: Arc<ZooKeeperOptions>,
    /// Busy workers must not keep a session from saying that it lives.
    aside: Arc<Aside>,
    #[cfg(test)]
    passwords: parking_lot::Mutex<std::collections::HashMap<i64, Bytes>>,
}

#[derive(Clone, Debug)]
pub struct ZooKeeperOptions {
    pub connect: ConnectString,
    /// What is asked for; the ensemble has bounds of its own.
    pub session_timeout: Duration,
    /// The longest wait for a session to open.
    pub connection_timeout: Duration,
    /// Calls that are sent without waiting for the answers of earlier ones; at least 1.
    pub in_flight_max: usize,
    /// What the ensemble's servers take as one request, their `jute.maxbuffer`. They answer a larger one by closing the
    /// connection, and everything under way is lost.
    pub request_bytes_max: usize,
    pub acl: AclPolicy,
    /// Schemes and identities to authenticate with on each connection: `("digest", "user:password")`.
    pub auth: Vec<(String, Bytes)>,
    /// Authenticates each connection before its first call.
    pub sasl: Option<SaslIdentity>,
    /// What the servers' secure ports are spoken to with; `None` = no TLS.
    pub tls: Option<TlsClient>,
    pub random: Random,
}

/// One session with a [`ZooKeeperEnsemble`].
#[derive(Debug)]
pub struct ZooKeeperStore {
    options: Arc<ZooKeeperOptions>,
    calls: mpsc::UnboundedSender<Call>,
    status: Arc<Status>,
    session: i64,
    _aside: Arc<Aside>,
}

const REQUEST_HEADER_BYTES: usize = 8;

impl ZooKeeperEnsemble {
    /// Connects to nobody yet. Fails when no thread can be started.
    pub fn new(options: ZooKeeperOptions) -> std::io::Result<ZooKeeperEnsemble> {
        Ok(ZooKeeperEnsemble {
            options: Arc::new(options),
            aside: Arc::new(Aside::start("zookeeper")?),
            #[cfg(test)]
            passwords: Default::default(),
        })
    }

    pub async fn session(&self) -> Result<ZooKeeperStore, StoreError> {
        self.open(Peer::new(Arc::clone(&self.options))).await
    }

    /// Makes sure of the chroot, through a session without one.
    pub async fn create_chroot(&self) -> Result<(), StoreError> {
        let chroot = &self.options.connect.chroot;
        if chroot.is_empty() {
            return Ok(());
        }
        let mut options = ZooKeeperOptions::clone(&self.options);
        options.connect.chroot = String::new();
        let session = self.open(Peer::new(Arc::new(options))).await?;
        if session.exists(chroot).await?.is_none() {
            let ends = chroot.match_indices('/').map(|(at, _)| at).skip(1).chain([chroot.len()]);
            for path in ends.filter_map(|end| chroot.get(..end)) {
                let node = Create { path: path.to_owned(), data: None, mode: CreateMode::Persistent };
                match session.create(node).await {
                    Ok(_) => info!(path, "created the chroot"),
                    Err(StoreError::NodeExists { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        session.close().await
    }

    /// Ends a session from outside, as its timeout does: who knows its password may close it. Its own client
    /// takes it back meanwhile, so it may need more than one attempt.
    #[cfg(test)]
    pub(in crate::coordination) async fn expire_session(&self, session: i64) {
        loop {
            let mut peer = Peer::new(Arc::clone(&self.options));
            peer.session = session;
            peer.password = self.passwords.lock().get(&session).cloned().unwrap_or_default();
            let Ok(taken) = self.open(peer).await else { return };
            let _ = taken.close().await;
        }
    }

    async fn open(&self, peer: Peer) -> Result<ZooKeeperStore, StoreError> {
        let (calls, receiver) = mpsc::unbounded_channel();
        let status = Arc::new(Status::new());
        let options = Arc::clone(peer.options());
        let task = SessionTask { peer, status: Arc::clone(&status), calls: receiver };
        let (opened, session) = oneshot::channel();
        self.aside.spawn_owner("zookeeper session", task.run(opened));
        let Opened { session, password: _password } =
            session.await.unwrap_or(Err(StoreError::SessionExpired))?;
        #[cfg(test)]
        self.passwords.lock().insert(session, _password);
        Ok(ZooKeeperStore { options, calls, status, session, _aside: Arc::clone(&self.aside) })
    }
}

impl Ensemble for ZooKeeperEnsemble {
    fn open_session(&self) -> BoxFuture<'_, Result<Arc<dyn Store>, StoreError>> {
        Box::pin(async move {
            let session: Arc<dyn Store> = Arc::new(self.session().await?);
            Ok(session)
        })
    }
}

impl ZooKeeperStore {
    /// Queues the call before it returns, so that calls keep their order. `path` is for its refusal.
    fn call(
        &self,
        path: &str,
        request: Request,
        watch: Option<Watch>,
    ) -> impl Future<Output = Result<(Answer, Option<Watcher>), StoreError>> + Send + use<> {
        let path = path.to_owned();
        let sent = self.send(&path, request, watch);
        async move {
            match sent?.await {
                Ok(Ok(answered)) => Ok(answered),
                Ok(Err(CallError::Code(code))) => Err(protocol::refusal(code, &path)),
                Ok(Err(CallError::Store(error))) => Err(error),
                Err(_) => Err(StoreError::SessionExpired),
            }
        }
    }

    fn send(
        &self,
        path: &str,
        request: Request,
        watch: Option<Watch>,
    ) -> Result<oneshot::Receiver<Reply>, StoreError> {
        let encoded = request.encode(&self.options.connect.chroot, self.options.acl);
        let size_bytes = encoded.body.len() + REQUEST_HEADER_BYTES;
        if size_bytes > self.options.request_bytes_max {
            return Err(StoreError::TooLarge { path: path.to_owned(), size_bytes });
        }
        let (reply, answer) = oneshot::channel();
        self.calls.send(Call { encoded, watch, reply }).map_err(|_| StoreError::SessionExpired)?;
        Ok(answer)
    }

    fn write_one(&self, operation: Operation) -> Result<WriteCall, StoreError> {
        let path = path_of(&operation).to_owned();
        self.check(&operation)?;
        Ok(Box::pin(self.call(&path, Request::One(operation), None)))
    }

    /// What ZooKeeper would refuse, told without asking it.
    fn check(&self, operation: &Operation) -> Result<(), StoreError> {
        match operation {
            Operation::Create(Create { path, mode, .. }) if mode.is_sequential() => {
                path::validate_sequential(path)
            }
            // Behind a chroot the root is a node like any other to the ensemble.
            Operation::Delete { path, .. } if path == path::ROOT => {
                Err(StoreError::BadArguments { path: path.clone() })
            }
            other => path::validate(path_of(other)),
        }
    }

    fn read_call(
        &self,
        path: &str,
        request: impl FnOnce(String) -> Request,
        target: Option<Option<WatchTarget>>,
    ) -> Result<WriteCall, StoreError> {
        path::validate(path)?;
        let watch = target.map(|target| Watch { target, path: path.to_owned() });
        Ok(Box::pin(self.call(path, request(path.to_owned()), watch)))
    }
}

type WriteCall = BoxFuture<'static, Result<(Answer, Option<Watcher>), StoreError>>;

fn path_of(operation: &Operation) -> &str {
    match operation {
        Operation::Create(Create { path, .. })
        | Operation::Set { path, .. }
        | Operation::Delete { path, .. }
        | Operation::Check { path, .. } => path,
    }
}

/// Awaits a call and takes the answer that its kind promises.
fn answered<T: 'static>(
    call: Result<WriteCall, StoreError>,
    take: fn(Answer, Option<Watcher>) -> Option<T>,
) -> BoxFuture<'static, Result<T, StoreError>> {
    Box::pin(async move {
        let (answer, watcher) = call?.await?;
        // The answer was decoded as its call asked for.
        Ok(take(answer, watcher).expect("an answer has the kind of its call"))
    })
}

fn node(answer: Answer) -> Option<NodeData> {
    match answer {
        Answer::Data(node) => Some(node),
        _ => None,
    }
}

fn stat(answer: Answer) -> Option<Option<Stat>> {
    match answer {
        Answer::Stat(stat) => Some(Some(stat)),
        Answer::Absent => Some(None),
        _ => None,
    }
}

fn names(answer: Answer) -> Option<Vec<String>> {
    match answer {
        Answer::Children(mut names) => {
            names.sort_unstable();
            Some(names)
        }
        _ => None,
    }
}

impl Store for ZooKeeperStore {
    fn create(&self, node: Create) -> BoxFuture<'static, Result<(String, Stat), StoreError>> {
        answered(self.write_one(Operation::Create(node)), |answer, _| match answer {
            Answer::Created(path, stat) => Some((path, stat)),
            _ => None,
        })
    }

    fn delete(&self, path: &str, version: Option<i32>) -> BoxFuture<'static, Result<(), StoreError>> {
        answered(self.write_one(Operation::Delete { path: path.to_owned(), version }), |_, _| Some(()))
    }

    fn set(
        &self,
        path: &str,
        data: Option<Bytes>,
        version: Option<i32>,
    ) -> BoxFuture<'static, Result<Stat, StoreError>> {
        let call = self.write_one(Operation::Set { path: path.to_owned(), data, version });
        answered(call, |answer, _| stat(answer)?)
    }

    fn read(&self, path: &str) -> BoxFuture<'static, Result<NodeData, StoreError>> {
        let call = self.read_call(path, |path| Request::Read { path, watch: false }, None);
        answered(call, |answer, _| node(answer))
    }

    fn exists(&self, path: &str) -> BoxFuture<'static, Result<Option<Stat>, StoreError>> {
        let call = self.read_call(path, |path| Request::Exists { path, watch: false }, None);
        answered(call, |answer, _| stat(answer))
    }

    fn children(&self, path: &str) -> BoxFuture<'static, Result<Vec<String>, StoreError>> {
        let call = self.read_call(path, |path| Request::Children { path, watch: false }, None);
        answered(call, |answer, _| names(answer))
    }

    fn read_and_watch(&self, path: &str) -> BoxFuture<'static, Result<(NodeData, Watcher), StoreError>> {
        let request = |path| Request::Read { path, watch: true };
        let call = self.read_call(path, request, Some(Some(WatchTarget::Data)));
        answered(call, |answer, watcher| Some((node(answer)?, watcher?)))
    }

    fn exists_and_watch(
        &self,
        path: &str,
    ) -> BoxFuture<'static, Result<(Option<Stat>, Watcher), StoreError>> {
        let call = self.read_call(path, |path| Request::Exists { path, watch: true }, Some(None));
        answered(call, |answer, watcher| Some((stat(answer)?, watcher?)))
    }

    fn children_and_watch(
        &self,
        path: &str,
    ) -> BoxFuture<'static, Result<(Vec<String>, Watcher), StoreError>> {
        let request = |path| Request::Children { path, watch: true };
        let call = self.read_call(path, request, Some(Some(WatchTarget::Children)));
        answered(call, |answer, watcher| Some((names(answer)?, watcher?)))
    }

    fn multi(
        &self,
        operations: Vec<Operation>,
    ) -> BoxFuture<'static, Result<Vec<OperationResult>, (usize, StoreError)>> {
        let paths: Vec<String> = operations.iter().map(|operation| path_of(operation).to_owned()).collect();
        let checked = operations
            .iter()
            .enumerate()
            .try_for_each(|(at, operation)| self.check(operation).map_err(|error| (at, error)));
        let first = paths.first().cloned().unwrap_or_default();
        let call = checked.map(|()| self.call(&first, Request::Multi(operations), None));
        Box::pin(async move {
            let (answer, _) = call?.await.map_err(|error| (0, error))?;
            let Answer::Multi(answers) = answer else { unreachable!("a multi is answered as one") };
            protocol::outcome_of_multi(answers).map_err(|(at, code)| {
                let path = paths.get(at).map_or("", String::as_str);
                (at, protocol::refusal(code, path))
            })
        })
    }

    fn session_id(&self) -> i64 {
        self.session
    }

    fn session_state(&self) -> SessionState {
        self.status.state()
    }

    fn close(&self) -> BoxFuture<'static, Result<(), StoreError>> {
        answered(Ok(Box::pin(self.call("", Request::Close, None))), |_, _| Some(()))
    }
}
