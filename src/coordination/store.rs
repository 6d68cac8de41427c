use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use snafu::Snafu;
use tokio::sync::oneshot;

/// A future that a trait object can return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What ZooKeeper keeps about a node besides its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stat {
    /// The transaction that created the node.
    pub czxid: i64,
    /// The transaction that last set its data.
    pub mzxid: i64,
    /// The transaction that last added or removed a child.
    pub pzxid: i64,
    /// Milliseconds since 1970.
    pub created_ms: i64,
    pub modified_ms: i64,
    /// How often the data was set; a new node has 0.
    pub version: i32,
    /// How often children were added or removed.
    pub child_version: i32,
    /// How often the access list was set.
    pub acl_version: i32,
    /// The session that owns an ephemeral node; 0 = persistent.
    pub ephemeral_owner: i64,
    pub data_length: i32,
    pub children: i32,
}

/// A node as read. `data` is `None` where the writer stored null, which Kafka does on parent nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeData {
    pub data: Option<Bytes>,
    pub stat: Stat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateMode {
    Persistent,
    Ephemeral,
    /// The store appends ten digits to the name, counted per parent.
    PersistentSequential,
    EphemeralSequential,
}

impl CreateMode {
    /// The node goes with the session that created it.
    pub fn is_ephemeral(self) -> bool {
        matches!(self, CreateMode::Ephemeral | CreateMode::EphemeralSequential)
    }

    pub fn is_sequential(self) -> bool {
        matches!(self, CreateMode::PersistentSequential | CreateMode::EphemeralSequential)
    }
}

/// One node to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    pub path: String,
    pub data: Option<Bytes>,
    pub mode: CreateMode,
}

/// One member of a [`Store::multi`]. `version` `None` = any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    Create(Create),
    Set { path: String, data: Option<Bytes>, version: Option<i32> },
    Delete { path: String, version: Option<i32> },
    Check { path: String, version: i32 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationResult {
    /// The path as created, with its sequence number.
    Created {
        path: String,
        stat: Stat,
    },
    Set(Stat),
    Deleted,
    Checked,
}

impl OperationResult {
    /// The result of an operation that is known to be a creation.
    pub(super) fn into_created(self) -> (String, Stat) {
        match self {
            OperationResult::Created { path, stat } => (path, stat),
            other => panic!("a creation is answered as one, not with {other:?}"),
        }
    }

    /// The result of an operation that is known to set data.
    pub(super) fn into_stat(self) -> Stat {
        match self {
            OperationResult::Set(stat) => stat,
            other => panic!("a set is answered as one, not with {other:?}"),
        }
    }
}

/// What a watch reports; each watch fires once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchKind {
    Created,
    DataChanged,
    Deleted,
    ChildrenChanged,
    /// The session that set the watch is over: read again in the next one.
    SessionExpired,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreEvent {
    pub path: String,
    pub kind: WatchKind,
}

/// Resolves once, when the watched node changes or the session ends. Dropping it ends the watch.
pub type Watcher = oneshot::Receiver<StoreEvent>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    Connected,
    /// Out of reach: the session's ephemeral nodes may still exist, or the ensemble may have ended it already.
    /// A controller must not act as one for longer than the session timeout in this state.
    Disconnected,
    /// Over, also after [`Store::close`]: open another one.
    Expired,
}

#[derive(Clone, Debug, PartialEq, Eq, Snafu)]
#[snafu(visibility(pub))]
pub enum StoreError {
    #[snafu(display("no node {path}"))]
    NoNode { path: String },
    #[snafu(display("node {path} exists"))]
    NodeExists { path: String },
    #[snafu(display("node {path} has another version"))]
    BadVersion { path: String },
    #[snafu(display("node {path} has children"))]
    NotEmpty { path: String },
    #[snafu(display("{path} is ephemeral and cannot have children"))]
    NoChildrenForEphemerals { path: String },
    #[snafu(display("{path} is not a legal path"))]
    BadArguments { path: String },
    #[snafu(display("not authorized on {path}"))]
    NotAuthorized { path: String },
    #[snafu(display("the access list for {path} names nobody who is known"))]
    InvalidAcl { path: String },
    /// The connection was lost, the call timed out, or the store said something unknown: the write may or may
    /// not have happened. Read before retrying.
    #[snafu(display("outcome unknown: {reason}"))]
    OutcomeUnknown { reason: String },
    /// More than the store takes as one request. Nothing was sent.
    #[snafu(display("{size_bytes} bytes for {path} are more than the store takes at once"))]
    TooLarge { path: String, size_bytes: usize },
    #[snafu(display("the session has expired"))]
    SessionExpired,
    /// The store can no longer be written: its disk failed.
    #[snafu(display("the store has failed: {reason}"))]
    Failed { reason: String },
    /// The disk of the store is full. Nothing was changed; it recovers by itself when there is space.
    #[snafu(display("no space left for the store"))]
    NoSpace,
}

impl StoreError {
    /// The store is away for a moment: what was read can be read again when the connection or the next session is there.
    pub fn is_away(&self) -> bool {
        matches!(self, StoreError::OutcomeUnknown { .. } | StoreError::SessionExpired)
    }
}

/// One session with a ZooKeeper-like tree.
///
/// Paths are absolute, `/a/b`, without a trailing slash; chroots are added below this trait. A version of
/// `None`, or -1 as on ZooKeeper's wire, matches any.
///
/// Calls of one session take effect in the order in which the methods are called, whether or not the futures
/// are polled or dropped: many calls may be under way at once, and a writer of many nodes should make them so.
/// A watch is told before a read of the same session can see the change. What a call answers is durable.
///
/// A failed [`multi`](Store::multi) changes nothing and names the member that failed; an error that is not
/// about one member (session, connection, disk) names member 0.
pub trait Store: Send + Sync + 'static {
    /// Creates the node and gives its path, with the sequence number, and its stat. Refused with `NoNode`
    /// when the parent is missing, `NodeExists`, `NoChildrenForEphemerals`.
    fn create(&self, node: Create) -> BoxFuture<'static, Result<(String, Stat), StoreError>>;

    /// Refused with `NoNode`, `BadVersion`, `NotEmpty`, and `BadArguments` for the root.
    fn delete(&self, path: &str, version: Option<i32>) -> BoxFuture<'static, Result<(), StoreError>>;

    /// Replaces the data and gives the new stat. Refused with `NoNode`, `BadVersion`.
    fn set(
        &self,
        path: &str,
        data: Option<Bytes>,
        version: Option<i32>,
    ) -> BoxFuture<'static, Result<Stat, StoreError>>;

    fn read(&self, path: &str) -> BoxFuture<'static, Result<NodeData, StoreError>>;

    /// `None` where there is no such node.
    fn exists(&self, path: &str) -> BoxFuture<'static, Result<Option<Stat>, StoreError>>;

    /// Names, not paths, sorted.
    fn children(&self, path: &str) -> BoxFuture<'static, Result<Vec<String>, StoreError>>;

    /// Reads and watches data and deletion. A missing node is not watched: see `exists_and_watch`.
    fn read_and_watch(&self, path: &str) -> BoxFuture<'static, Result<(NodeData, Watcher), StoreError>>;

    /// Watches creation, data and deletion, also of a node that is not there yet.
    fn exists_and_watch(&self, path: &str)
    -> BoxFuture<'static, Result<(Option<Stat>, Watcher), StoreError>>;

    /// Watches creation and deletion of children and deletion of the node. A missing node is not watched.
    fn children_and_watch(
        &self,
        path: &str,
    ) -> BoxFuture<'static, Result<(Vec<String>, Watcher), StoreError>>;

    /// All or nothing. The error carries the index of the member that failed.
    fn multi(
        &self,
        operations: Vec<Operation>,
    ) -> BoxFuture<'static, Result<Vec<OperationResult>, (usize, StoreError)>>;

    fn session_id(&self) -> i64;

    fn session_state(&self) -> SessionState;

    /// Ends the session: its ephemeral nodes are deleted, its watches fire with `SessionExpired`.
    fn close(&self) -> BoxFuture<'static, Result<(), StoreError>>;
}

/// Where sessions come from: after an expiry the broker opens the next one here.
pub trait Ensemble: Send + Sync + 'static {
    fn open_session(&self) -> BoxFuture<'_, Result<Arc<dyn Store>, StoreError>>;
}
