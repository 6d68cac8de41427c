use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use snafu::{OptionExt, Snafu, ensure};

use super::access::{self, Access, AccessList, NodeAccess};
use super::path;
use super::slab::Slab;
use super::store::{
    BadArgumentsSnafu, BadVersionSnafu, Create, InvalidAclSnafu, NoChildrenForEphemeralsSnafu, NoNodeSnafu,
    NodeData, NodeExistsSnafu, NotAuthorizedSnafu, NotEmptySnafu, Operation, OperationResult, Stat,
    StoreError,
};
use crate::model::Timestamp;

/// ZooKeeper's data model as a state machine: nodes, their stats, and which session owns which.
///
/// The tree changes only through [`apply`](Tree::apply), which depends on nothing but the tree and the
/// transaction: the same transactions in the same order make the same tree. A refused transaction changes
/// nothing, and an applied one can be taken back with [`undo`](Tree::undo), newest first.
///
/// Nodes name each other by number: a node without data costs about 140 bytes.
#[derive(Debug)]
pub(super) struct Tree {
    /// That the number freed last is used first is what `undo` relies on.
    nodes: Slab<Node>,
    ephemerals: BTreeMap<i64, Vec<NodeId>>,
    /// Of the nodes that are not open to everybody, which are few.
    guarded: BTreeMap<u32, NodeAccess>,
    /// The sessions that outlive the process.
    sessions: BTreeMap<i64, SessionTerms>,
    last_zxid: i64,
}

/// What makes a session of another process go on after this one has restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionTerms {
    pub timeout_ms: i32,
    /// Who knows it may go on with the session.
    pub password: [u8; 16],
}

/// One change of the tree, with everything its outcome depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Transaction {
    /// Larger than that of every transaction before.
    pub zxid: i64,
    pub time: Timestamp,
    /// The session that asked: the owner of the ephemeral nodes it creates.
    pub session: i64,
    pub request: Request,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// All or nothing, in this order, each seeing the effects of those before.
    Operations(Vec<Operation>),
    /// As `Operations`, with access lists.
    Guarded(Vec<GuardedOperation>),
    /// The session outlives the process, until `CloseSession`.
    OpenSession(SessionTerms),
    /// Deletes the session's ephemeral nodes.
    CloseSession,
}

/// An operation that may have to do with access lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum GuardedOperation {
    /// What it creates is open to everybody.
    Open(Operation),
    /// Refused with `InvalidAcl` where the list that was asked for is none.
    Create(Create, Option<AccessList>),
    /// Answered as a set. `version` is that of the access list; `None` = any.
    SetAccess { path: String, list: Option<AccessList>, version: Option<i32> },
}

/// What an applied transaction did.
#[derive(Debug)]
pub(super) struct Applied {
    /// One for each operation; empty where there are none.
    pub results: Vec<OperationResult>,
    pub changes: Vec<Change>,
    pub undo: Undo,
}

/// One node that changed, for the watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    pub path: String,
    pub kind: ChangeKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChangeKind {
    Created,
    DataChanged,
    Deleted,
}

/// What takes a transaction back.
#[derive(Debug)]
pub(super) struct Undo {
    steps: Vec<UndoStep>,
    last_zxid: i64,
}

#[derive(Debug)]
enum UndoStep {
    Create { id: NodeId, parent: ParentStat },
    Set { id: NodeId, data: Option<Arc<[u8]>>, mzxid: i64, modified: Timestamp, version: i32 },
    Delete { id: NodeId, node: Box<Node>, parent: ParentStat, access: Option<NodeAccess> },
    SetAccess { id: NodeId, before: Option<NodeAccess> },
    Session { session: i64, before: Option<SessionTerms> },
}

/// The part of a parent's stat that its children change.
#[derive(Clone, Copy, Debug)]
struct ParentStat {
    creations: i32,
    pzxid: i64,
}

/// A number of [`Tree::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NodeId(u32);

const ROOT: NodeId = NodeId(0);

/// No session: the owner of persistent nodes.
const NO_OWNER: i64 = 0;

/// The version that matches every version, as on ZooKeeper's wire.
const ANY_VERSION: i32 = -1;

#[derive(Debug)]
struct Node {
    name: Box<str>,
    parent: NodeId,
    /// Sorted by name. A vector of indexes: 4 bytes a child, and most nodes have one or none.
    children: Vec<NodeId>,
    /// Half the size of `Bytes`, and sharing it with a reader leaves nothing behind.
    data: Option<Arc<[u8]>>,
    czxid: i64,
    mzxid: i64,
    pzxid: i64,
    created: Timestamp,
    modified: Timestamp,
    owner: i64,
    version: i32,
    /// How many children were ever created: the next sequence number. ZooKeeper derives the child version
    /// that it shows from this, see [`Node::stat`].
    creations: i32,
}

impl Tree {
    /// A tree that holds only its root.
    pub(super) fn new() -> Tree {
        let root = Node {
            name: "".into(),
            parent: ROOT,
            children: Vec::new(),
            data: Some(Arc::default()),
            czxid: 0,
            mzxid: 0,
            pzxid: 0,
            created: Timestamp(0),
            modified: Timestamp(0),
            owner: NO_OWNER,
            version: 0,
            creations: 0,
        };
        let mut nodes = Slab::new();
        nodes.insert(root);
        Tree {
            nodes,
            ephemerals: BTreeMap::new(),
            guarded: BTreeMap::new(),
            sessions: BTreeMap::new(),
            last_zxid: 0,
        }
    }

    /// The last transaction that was applied; 0 = none.
    pub(super) fn last_zxid(&self) -> i64 {
        self.last_zxid
    }

    /// How many nodes there are, with the root.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Refuses illegal paths and missing nodes.
    pub(super) fn read(&self, path: &str) -> Result<NodeData, StoreError> {
        let id = self.find(path)?;
        Ok(NodeData { data: self.node(id).data.clone().map(Bytes::from_owner), stat: self.stat(id) })
    }

    /// `None` where there is no such node; refuses illegal paths.
    pub(super) fn exists(&self, path: &str) -> Result<Option<Stat>, StoreError> {
        path::validate(path)?;
        Ok(self.lookup(path).map(|id| self.stat(id)))
    }

    /// The names of the children, sorted. Refuses illegal paths and missing nodes.
    pub(super) fn children(&self, path: &str) -> Result<Vec<String>, StoreError> {
        let node = self.node(self.find(path)?);
        Ok(node.children.iter().map(|&child| self.node(child).name.to_string()).collect())
    }

    /// The access list of a node. Refuses illegal paths and missing nodes.
    pub(super) fn access_list(&self, path: &str) -> Result<AccessList, StoreError> {
        let id = self.find(path)?;
        Ok(self.guarded.get(&id.0).map_or_else(AccessList::open, |guarded| guarded.list.clone()))
    }

    /// Refuses with `NotAuthorized` what the node's list gives nobody of those who ask; with `NoNode` what is missing.
    pub(super) fn check_access(
        &self,
        path: &str,
        permissions: i32,
        access: Access<'_>,
    ) -> Result<(), StoreError> {
        self.check_access_of(self.find(path)?, path, permissions, access)
    }

    fn check_access_of(
        &self,
        id: NodeId,
        path: &str,
        permissions: i32,
        access: Access<'_>,
    ) -> Result<(), StoreError> {
        let (Access::Of(client), Some(guarded)) = (access, self.guarded.get(&id.0)) else { return Ok(()) };
        ensure!(guarded.list.allows(permissions, client), NotAuthorizedSnafu { path });
        Ok(())
    }

    /// The sessions that own a node.
    pub(super) fn owners(&self) -> Vec<i64> {
        self.ephemerals.keys().copied().collect()
    }

    /// The paths of a session's nodes that begin with `prefix`.
    pub(super) fn owned(&self, session: i64, prefix: &str) -> Vec<String> {
        let owned = self.ephemerals.get(&session).map_or(&[][..], Vec::as_slice);
        owned.iter().map(|&id| self.path_of(id)).filter(|path| path.starts_with(prefix)).collect()
    }

    /// How many nodes stand below one. Refuses illegal paths and missing nodes.
    pub(super) fn descendants(&self, path: &str) -> Result<usize, StoreError> {
        let mut ahead = vec![self.find(path)?];
        let mut count = 0;
        while let Some(id) = ahead.pop() {
            let children = &self.node(id).children;
            count += children.len();
            ahead.extend_from_slice(children);
        }
        Ok(count)
    }

    /// The sessions that outlive the process.
    pub(super) fn sessions(&self) -> &BTreeMap<i64, SessionTerms> {
        &self.sessions
    }

    /// How many nodes there are, how many of them are ephemeral, and the bytes of paths and data.
    pub(super) fn size(&self) -> TreeSize {
        let mut size = TreeSize { nodes: 0, ephemeral_nodes: 0, bytes: 0 };
        self.walk(|node| {
            size.nodes += 1;
            size.ephemeral_nodes += usize::from(node.owner != NO_OWNER);
            size.bytes += node.name.len() + 1 + node.data.map_or(0, <[u8]>::len);
        });
        size
    }

    /// Applies the whole transaction, or nothing: then the error tells which operation was refused and why.
    pub(super) fn apply(&mut self, transaction: &Transaction) -> Result<Applied, (usize, StoreError)> {
        self.apply_for(transaction, Access::Unchecked)
    }

    /// As [`apply`](Tree::apply), if access lists allow it.
    pub(super) fn apply_for(
        &mut self,
        transaction: &Transaction,
        access: Access<'_>,
    ) -> Result<Applied, (usize, StoreError)> {
        assert!(
            transaction.zxid > self.last_zxid,
            "transactions are applied in order: {} after {}",
            transaction.zxid,
            self.last_zxid
        );
        let mut pass = Pass {
            undo: Undo { steps: Vec::new(), last_zxid: self.last_zxid },
            zxid: transaction.zxid,
            time: transaction.time,
            session: transaction.session,
            access,
            changes: Vec::new(),
            tree: self,
        };
        let outcome = match &transaction.request {
            Request::Operations(operations) => pass.each(operations, Pass::operation),
            Request::Guarded(operations) => pass.each(operations, Pass::guarded_operation),
            Request::OpenSession(terms) => {
                pass.put_session(Some(*terms));
                Ok(Vec::new())
            }
            Request::CloseSession => pass.close_session().map(|()| Vec::new()),
        };
        let Pass { undo, changes, .. } = pass;
        match outcome {
            Ok(results) => {
                self.last_zxid = transaction.zxid;
                Ok(Applied { results, changes, undo })
            }
            Err(refused) => {
                self.undo(undo);
                Err(refused)
            }
        }
    }

    /// Takes the newest applied transaction back.
    pub(super) fn undo(&mut self, undo: Undo) {
        for step in undo.steps.into_iter().rev() {
            match step {
                UndoStep::Create { id, parent } => {
                    let node = self.unlink(id);
                    self.node_mut(node.parent).restore(parent);
                }
                UndoStep::Set { id, data, mzxid, modified, version } => {
                    let node = self.node_mut(id);
                    (node.data, node.mzxid, node.modified, node.version) = (data, mzxid, modified, version);
                }
                UndoStep::Delete { id, node, parent, access } => {
                    let above = node.parent;
                    let linked = self.link(*node);
                    assert!(linked == id, "a deletion taken back uses the place it freed last");
                    self.node_mut(above).restore(parent);
                    self.put_access(id, access);
                }
                UndoStep::SetAccess { id, before } => {
                    self.put_access(id, before);
                }
                UndoStep::Session { session, before } => {
                    self.put_session(session, before);
                }
            }
        }
        self.last_zxid = undo.last_zxid;
    }

    fn node(&self, id: NodeId) -> &Node {
        self.nodes.at(id.0)
    }

    fn stat(&self, id: NodeId) -> Stat {
        let acl_version = self.guarded.get(&id.0).map_or(0, |guarded| guarded.version);
        Stat { acl_version, ..self.node(id).stat() }
    }

    fn put_access(&mut self, id: NodeId, access: Option<NodeAccess>) -> Option<NodeAccess> {
        match access {
            Some(access) => self.guarded.insert(id.0, access),
            None => self.guarded.remove(&id.0),
        }
    }

    fn put_session(&mut self, session: i64, terms: Option<SessionTerms>) -> Option<SessionTerms> {
        match terms {
            Some(terms) => self.sessions.insert(session, terms),
            None => self.sessions.remove(&session),
        }
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes.at_mut(id.0)
    }

    fn find(&self, path: &str) -> Result<NodeId, StoreError> {
        path::validate(path)?;
        self.lookup(path).context(NoNodeSnafu { path })
    }

    fn lookup(&self, path: &str) -> Option<NodeId> {
        path::names(path).try_fold(ROOT, |id, name| self.child(id, name))
    }

    /// Where among the children the one of that name stands, or would stand.
    fn position(&self, parent: NodeId, name: &str) -> Result<usize, usize> {
        self.node(parent).children.binary_search_by(|&child| (*self.node(child).name).cmp(name))
    }

    fn child(&self, parent: NodeId, name: &str) -> Option<NodeId> {
        let position = self.position(parent, name).ok()?;
        self.node(parent).children.get(position).copied()
    }

    fn path_of(&self, id: NodeId) -> String {
        let mut names = Vec::new();
        let mut at = id;
        while at != ROOT {
            let node = self.node(at);
            names.push(&*node.name);
            at = node.parent;
        }
        names.iter().rev().fold(String::new(), |path, name| path + "/" + name)
    }

    /// Stores the node and adds it to its parent, whose stat stays.
    fn link(&mut self, node: Node) -> NodeId {
        let Err(position) = self.position(node.parent, &node.name) else {
            panic!("a new node's name is free: {}", node.name)
        };
        self.link_at(position, node)
    }

    /// As `link`, where the place among the children is known.
    fn link_at(&mut self, position: usize, node: Node) -> NodeId {
        let (parent, owner) = (node.parent, node.owner);
        let id = NodeId(self.nodes.insert(node));
        self.node_mut(parent).children.insert(position, id);
        if owner != NO_OWNER {
            self.ephemerals.entry(owner).or_default().push(id);
        }
        id
    }

    /// Removes the node from its parent, whose stat stays, and frees its place.
    fn unlink(&mut self, id: NodeId) -> Node {
        self.guarded.remove(&id.0);
        let position = self.position(self.node(id).parent, &self.node(id).name);
        let node = self.nodes.remove(id.0);
        let children = &mut self.node_mut(node.parent).children;
        children.remove(position.expect("a node is a child of its parent"));
        if children.is_empty() {
            *children = Vec::new();
        }
        if let Some(owned) = self.ephemerals.get_mut(&node.owner) {
            owned.retain(|&owned| owned != id);
            if owned.is_empty() {
                self.ephemerals.remove(&node.owner);
            }
        }
        node
    }
}

impl Node {
    fn stat(&self) -> Stat {
        let children = self.children.len() as i32;
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            pzxid: self.pzxid,
            created_ms: self.created.0,
            modified_ms: self.modified.0,
            version: self.version,
            // Creations plus deletions: ZooKeeper stores creations only, and shows this.
            child_version: self.creations.wrapping_mul(2).wrapping_sub(children),
            // Kept apart, see `Tree::stat`.
            acl_version: 0,
            ephemeral_owner: self.owner,
            data_length: self.data.as_ref().map_or(0, |data| data.len()) as i32,
            children,
        }
    }

    fn parent_stat(&self) -> ParentStat {
        ParentStat { creations: self.creations, pzxid: self.pzxid }
    }

    fn restore(&mut self, stat: ParentStat) {
        (self.creations, self.pzxid) = (stat.creations, stat.pzxid);
    }
}

/// What a tree holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TreeSize {
    pub nodes: usize,
    pub ephemeral_nodes: usize,
    pub bytes: usize,
}

/// One node with everything that is kept of it, for writing a whole tree down and reading it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeRecord<'a> {
    /// How far below the root; 0 = the root.
    pub depth: usize,
    pub name: &'a str,
    pub data: Option<&'a [u8]>,
    pub czxid: i64,
    pub mzxid: i64,
    pub pzxid: i64,
    pub created: Timestamp,
    pub modified: Timestamp,
    pub owner: i64,
    pub version: i32,
    pub creations: i32,
    /// `None` = open to everybody.
    pub access: Option<NodeAccess>,
}

impl Tree {
    /// Visits every node, parents before children, siblings sorted by name.
    pub(super) fn walk(&self, mut visit: impl FnMut(&NodeRecord<'_>)) {
        let mut ahead = vec![(0, ROOT)];
        while let Some((depth, id)) = ahead.pop() {
            let node = self.node(id);
            visit(&node.record(depth, self.guarded.get(&id.0).cloned()));
            ahead.extend(node.children.iter().rev().map(|&child| (depth + 1, child)));
        }
    }
}

impl Node {
    fn record(&self, depth: usize, access: Option<NodeAccess>) -> NodeRecord<'_> {
        NodeRecord {
            depth,
            name: &self.name,
            data: self.data.as_deref(),
            czxid: self.czxid,
            mzxid: self.mzxid,
            pzxid: self.pzxid,
            created: self.created,
            modified: self.modified,
            owner: self.owner,
            version: self.version,
            creations: self.creations,
            access,
        }
    }

    fn from_record(record: &NodeRecord<'_>, parent: NodeId) -> Node {
        Node {
            name: record.name.into(),
            parent,
            children: Vec::new(),
            data: record.data.map(Arc::from),
            czxid: record.czxid,
            mzxid: record.mzxid,
            pzxid: record.pzxid,
            created: record.created,
            modified: record.modified,
            owner: record.owner,
            version: record.version,
            creations: record.creations,
        }
    }
}

/// Makes a tree of the records that [`Tree::walk`] visited, in that order.
#[derive(Debug)]
pub(super) struct TreeBuilder {
    tree: Tree,
    /// The nodes from the root to the last one that was added.
    path: Vec<NodeId>,
}

/// The record cannot follow those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Snafu)]
pub(super) struct OutOfOrder;

impl TreeBuilder {
    /// `last_zxid`: the last transaction that the records show.
    pub(super) fn new(last_zxid: i64) -> TreeBuilder {
        TreeBuilder { tree: Tree { last_zxid, ..Tree::new() }, path: Vec::new() }
    }

    pub(super) fn push(&mut self, record: &NodeRecord<'_>) -> Result<(), OutOfOrder> {
        if self.path.is_empty() {
            ensure!(record.depth == 0 && record.name.is_empty(), OutOfOrderSnafu);
            *self.tree.node_mut(ROOT) = Node::from_record(record, ROOT);
            self.tree.put_access(ROOT, record.access.clone());
            self.path.push(ROOT);
            return Ok(());
        }
        ensure!((1..=self.path.len()).contains(&record.depth) && !record.name.is_empty(), OutOfOrderSnafu);
        self.path.truncate(record.depth);
        let parent = self.path.last().copied().unwrap_or(ROOT);
        let elder = self.tree.node(parent).children.last();
        ensure!(elder.is_none_or(|&elder| *self.tree.node(elder).name < *record.name), OutOfOrderSnafu);
        let position = self.tree.node(parent).children.len();
        let id = self.tree.link_at(position, Node::from_record(record, parent));
        self.tree.put_access(id, record.access.clone());
        self.path.push(id);
        Ok(())
    }

    pub(super) fn push_session(&mut self, session: i64, terms: SessionTerms) {
        self.tree.put_session(session, Some(terms));
    }

    /// The tree; `None` where not even a root was added.
    pub(super) fn finish(self) -> Option<Tree> {
        (!self.path.is_empty()).then_some(self.tree)
    }
}

/// One transaction on its way through the tree.
struct Pass<'a> {
    tree: &'a mut Tree,
    zxid: i64,
    time: Timestamp,
    session: i64,
    access: Access<'a>,
    changes: Vec<Change>,
    undo: Undo,
}

impl Pass<'_> {
    fn each<T>(
        &mut self,
        operations: &[T],
        apply: fn(&mut Self, &T) -> Result<OperationResult, StoreError>,
    ) -> Result<Vec<OperationResult>, (usize, StoreError)> {
        let results = operations.iter().enumerate();
        results.map(|(index, operation)| apply(self, operation).map_err(|error| (index, error))).collect()
    }

    fn guarded_operation(&mut self, operation: &GuardedOperation) -> Result<OperationResult, StoreError> {
        match operation {
            GuardedOperation::Open(operation) => self.operation(operation),
            GuardedOperation::Create(create, list) => {
                let list = list.as_ref().context(InvalidAclSnafu { path: &create.path })?;
                let (id, path) = self.create(create)?;
                if !list.is_open() {
                    self.tree.put_access(id, Some(NodeAccess { list: list.clone(), version: 0 }));
                }
                Ok(OperationResult::Created { path, stat: self.tree.stat(id) })
            }
            GuardedOperation::SetAccess { path, list, version } => {
                path::validate(path)?;
                let list = list.as_ref().context(InvalidAclSnafu { path })?;
                self.set_access(path, list, *version).map(OperationResult::Set)
            }
        }
    }

    fn operation(&mut self, operation: &Operation) -> Result<OperationResult, StoreError> {
        match operation {
            Operation::Create(node) => {
                let (id, path) = self.create(node)?;
                Ok(OperationResult::Created { path, stat: self.tree.stat(id) })
            }
            Operation::Set { path, data, version } => {
                self.set(path, data.as_deref(), *version).map(OperationResult::Set)
            }
            Operation::Delete { path, version } => {
                self.delete(path, *version).map(|()| OperationResult::Deleted)
            }
            Operation::Check { path, version } => {
                let id = self.tree.find(path)?;
                self.tree.check_access_of(id, path, access::READ, self.access)?;
                self.check_version(id, path, Some(*version))?;
                Ok(OperationResult::Checked)
            }
        }
    }

    fn create(&mut self, create: &Create) -> Result<(NodeId, String), StoreError> {
        let path = self.full_path(create)?;
        let Some((above, name)) = path::split(&path) else { return NodeExistsSnafu { path }.fail() };
        let parent = self.tree.lookup(above).context(NoNodeSnafu { path: above })?;
        self.tree.check_access_of(parent, above, access::CREATE, self.access)?;
        ensure!(self.tree.child(parent, name).is_none(), NodeExistsSnafu { path });
        ensure!(self.tree.node(parent).owner == NO_OWNER, NoChildrenForEphemeralsSnafu { path: above });
        let node = Node {
            name: name.into(),
            parent,
            children: Vec::new(),
            data: create.data.as_deref().map(Arc::from),
            czxid: self.zxid,
            mzxid: self.zxid,
            pzxid: self.zxid,
            created: self.time,
            modified: self.time,
            owner: if create.mode.is_ephemeral() { self.session } else { NO_OWNER },
            version: 0,
            creations: 0,
        };
        let before = self.tree.node(parent).parent_stat();
        let id = self.tree.link(node);
        self.undo.steps.push(UndoStep::Create { id, parent: before });
        let pzxid = self.zxid;
        self.tree.node_mut(parent).restore(ParentStat { creations: before.creations.wrapping_add(1), pzxid });
        self.changes.push(Change { path: path.clone(), kind: ChangeKind::Created });
        Ok((id, path))
    }

    /// The path with its sequence number where the mode asks for one.
    fn full_path(&self, create: &Create) -> Result<String, StoreError> {
        let path = &create.path;
        if !create.mode.is_sequential() {
            path::validate(path)?;
            return Ok(path.clone());
        }
        path::validate_sequential(path)?;
        let (above, _) = path.rsplit_once('/').context(BadArgumentsSnafu { path })?;
        let parent = self.tree.lookup(above).context(NoNodeSnafu { path: above })?;
        // Wraps to negative numbers, as ZooKeeper's does: ten characters with the sign.
        Ok(format!("{path}{:010}", self.tree.node(parent).creations))
    }

    fn set(&mut self, path: &str, data: Option<&[u8]>, version: Option<i32>) -> Result<Stat, StoreError> {
        let id = self.tree.find(path)?;
        self.tree.check_access_of(id, path, access::WRITE, self.access)?;
        self.check_version(id, path, version)?;
        let (zxid, time) = (self.zxid, self.time);
        let node = self.tree.node_mut(id);
        self.undo.steps.push(UndoStep::Set {
            id,
            data: std::mem::replace(&mut node.data, data.map(Arc::from)),
            mzxid: std::mem::replace(&mut node.mzxid, zxid),
            modified: std::mem::replace(&mut node.modified, time),
            version: node.version,
        });
        node.version = node.version.wrapping_add(1);
        self.changes.push(Change { path: path.to_owned(), kind: ChangeKind::DataChanged });
        Ok(self.tree.stat(id))
    }

    fn set_access(
        &mut self,
        path: &str,
        list: &AccessList,
        version: Option<i32>,
    ) -> Result<Stat, StoreError> {
        let id = self.tree.find(path)?;
        self.tree.check_access_of(id, path, access::ADMIN, self.access)?;
        let found = self.tree.stat(id).acl_version;
        ensure!(is_expected(version, found), BadVersionSnafu { path });
        // Also an open list has a version from now on.
        let access = NodeAccess { list: list.clone(), version: found.wrapping_add(1) };
        let before = self.tree.put_access(id, Some(access));
        self.undo.steps.push(UndoStep::SetAccess { id, before });
        Ok(self.tree.stat(id))
    }

    fn delete(&mut self, path: &str, version: Option<i32>) -> Result<(), StoreError> {
        ensure!(path != path::ROOT, BadArgumentsSnafu { path });
        let id = self.tree.find(path)?;
        let (parent, above) =
            (self.tree.node(id).parent, path::split(path).map_or(path::ROOT, |(above, _)| above));
        self.tree.check_access_of(parent, above, access::DELETE, self.access)?;
        self.check_version(id, path, version)?;
        ensure!(self.tree.node(id).children.is_empty(), NotEmptySnafu { path });
        self.remove(id, path.to_owned());
        Ok(())
    }

    fn close_session(&mut self) -> Result<(), (usize, StoreError)> {
        let owned = self.tree.ephemerals.get(&self.session).cloned().unwrap_or_default();
        for id in owned {
            let path = self.tree.path_of(id);
            self.remove(id, path);
        }
        self.put_session(None);
        Ok(())
    }

    fn put_session(&mut self, terms: Option<SessionTerms>) {
        let before = self.tree.put_session(self.session, terms);
        if before != terms {
            self.undo.steps.push(UndoStep::Session { session: self.session, before });
        }
    }

    fn remove(&mut self, id: NodeId, path: String) {
        let access = self.tree.guarded.get(&id.0).cloned();
        let node = self.tree.unlink(id);
        let parent = self.tree.node_mut(node.parent);
        let before = parent.parent_stat();
        parent.pzxid = self.zxid;
        self.undo.steps.push(UndoStep::Delete { id, node: Box::new(node), parent: before, access });
        self.changes.push(Change { path, kind: ChangeKind::Deleted });
    }

    fn check_version(&self, id: NodeId, path: &str, version: Option<i32>) -> Result<(), StoreError> {
        ensure!(is_expected(version, self.tree.node(id).version), BadVersionSnafu { path });
        Ok(())
    }
}

fn is_expected(version: Option<i32>, found: i32) -> bool {
    version.is_none_or(|expected| expected == ANY_VERSION || expected == found)
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
