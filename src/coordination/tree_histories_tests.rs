//! Random histories on the tree against a naive model: a sorted map from path to node.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use super::tree::{Applied, Request, Transaction, Tree};
use super::{Create, CreateMode, Operation, OperationResult, StoreError};
use crate::model::Timestamp;

/// The model applies a whole transaction on a copy, and drops the copy when it is refused.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    nodes: BTreeMap<String, ModelNode>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct ModelNode {
    data: Option<Bytes>,
    version: i32,
    owner: i64,
    creations: i32,
    deletions: i32,
    czxid: i64,
    mzxid: i64,
    pzxid: i64,
}

impl Model {
    fn new() -> Model {
        let root = ModelNode { data: Some(Bytes::new()), ..ModelNode::default() };
        Model { nodes: [("/".to_owned(), root)].into() }
    }

    fn parent(path: &str) -> String {
        match path.rsplit_once('/').unwrap().0 {
            "" => "/".to_owned(),
            parent => parent.to_owned(),
        }
    }

    fn children(&self, path: &str) -> Vec<String> {
        let is_child = |other: &&String| *other != "/" && Model::parent(other) == path;
        let children = self.nodes.keys().filter(is_child);
        children.map(|child| child.rsplit_once('/').unwrap().1.to_owned()).collect()
    }

    fn apply(&mut self, transaction: &Transaction) -> Result<Vec<String>, (usize, StoreError)> {
        let mut copy = self.clone();
        let mut created = Vec::new();
        match &transaction.request {
            Request::CloseSession => {
                let owned: Vec<String> = copy
                    .nodes
                    .iter()
                    .filter(|(_, node)| node.owner == transaction.session)
                    .map(|(path, _)| path.clone())
                    .collect();
                owned.into_iter().for_each(|path| copy.remove(&path, transaction.zxid));
            }
            Request::Guarded(_) | Request::OpenSession(_) => {
                unreachable!("the histories hold neither access lists nor sessions")
            }
            Request::Operations(operations) => {
                for (index, operation) in operations.iter().enumerate() {
                    let path = copy.operation(operation, transaction).map_err(|error| (index, error))?;
                    created.extend(path);
                }
            }
        }
        *self = copy;
        Ok(created)
    }

    fn operation(
        &mut self,
        operation: &Operation,
        transaction: &Transaction,
    ) -> Result<Option<String>, StoreError> {
        let zxid = transaction.zxid;
        match operation {
            Operation::Create(Create { path, data, mode }) => {
                let parent = Model::parent(path);
                let above = self.nodes.get_mut(&parent).ok_or(StoreError::NoNode { path: parent.clone() })?;
                let path = match mode.is_sequential() {
                    true => format!("{path}{:010}", above.creations),
                    false => path.clone(),
                };
                if self.nodes.contains_key(&path) {
                    return Err(StoreError::NodeExists { path });
                }
                let above = self.nodes.get_mut(&parent).unwrap();
                if above.owner != 0 {
                    return Err(StoreError::NoChildrenForEphemerals { path: parent });
                }
                above.creations += 1;
                above.pzxid = zxid;
                let owner = if mode.is_ephemeral() { transaction.session } else { 0 };
                let data = data.clone();
                let node =
                    ModelNode { data, owner, czxid: zxid, mzxid: zxid, pzxid: zxid, ..Default::default() };
                self.nodes.insert(path.clone(), node);
                Ok(Some(path))
            }
            Operation::Set { path, data, version } => {
                let node = self.checked(path, *version)?;
                node.data = data.clone();
                node.version += 1;
                node.mzxid = zxid;
                Ok(None)
            }
            Operation::Delete { path, version } => {
                if path == "/" {
                    return Err(StoreError::BadArguments { path: path.clone() });
                }
                self.checked(path, *version)?;
                if !self.children(path).is_empty() {
                    return Err(StoreError::NotEmpty { path: path.clone() });
                }
                self.remove(path, zxid);
                Ok(None)
            }
            Operation::Check { path, version } => self.checked(path, Some(*version)).map(|_| None),
        }
    }

    fn checked(&mut self, path: &str, version: Option<i32>) -> Result<&mut ModelNode, StoreError> {
        let node = self.nodes.get_mut(path).ok_or(StoreError::NoNode { path: path.to_owned() })?;
        match version {
            Some(version) if version != -1 && version != node.version => {
                Err(StoreError::BadVersion { path: path.to_owned() })
            }
            _ => Ok(node),
        }
    }

    fn remove(&mut self, path: &str, zxid: i64) {
        self.nodes.remove(path);
        let above = self.nodes.get_mut(&Model::parent(path)).unwrap();
        above.deletions += 1;
        above.pzxid = zxid;
    }

    #[track_caller]
    fn check_same(&self, tree: &Tree) {
        assert_eq!(tree.len(), self.nodes.len());
        for (path, node) in &self.nodes {
            let found = tree.read(path).unwrap();
            assert_eq!(found.data, node.data, "{path}");
            let stat = found.stat;
            let children = self.children(path);
            assert_eq!(tree.children(path).unwrap(), children, "{path}");
            assert_eq!(stat.children as usize, children.len(), "{path}");
            assert_eq!(
                (stat.version, stat.child_version, stat.ephemeral_owner, stat.czxid, stat.mzxid, stat.pzxid),
                (
                    node.version,
                    node.creations + node.deletions,
                    node.owner,
                    node.czxid,
                    node.mzxid,
                    node.pzxid
                ),
                "{path}"
            );
        }
    }
}

fn path() -> impl Strategy<Value = String> {
    // Few names, so that operations meet; the root now and then.
    let names = prop::collection::vec(prop::sample::select(vec!["a", "b", "c"]), 0..4);
    names.prop_map(|names| format!("/{}", names.join("/")))
}

fn data() -> impl Strategy<Value = Option<Bytes>> {
    prop::option::of(prop::collection::vec(any::<u8>(), 0..4).prop_map(Bytes::from))
}

fn version() -> impl Strategy<Value = i32> {
    -1..3
}

fn operation() -> impl Strategy<Value = Operation> {
    let mode = prop::sample::select(vec![
        CreateMode::Persistent,
        CreateMode::Persistent,
        CreateMode::Ephemeral,
        CreateMode::PersistentSequential,
        CreateMode::EphemeralSequential,
    ]);
    let create = (path(), data(), mode).prop_map(|(path, data, mode)| Create { path, data, mode });
    prop_oneof![
        5 => create.prop_map(Operation::Create),
        2 => (path(), data(), prop::option::of(version()))
            .prop_map(|(path, data, version)| Operation::Set { path, data, version }),
        2 => (path(), prop::option::of(version()))
            .prop_map(|(path, version)| Operation::Delete { path, version }),
        1 => (path(), version()).prop_map(|(path, version)| Operation::Check { path, version }),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        9 => prop::collection::vec(operation(), 1..5).prop_map(Request::Operations),
        1 => Just(Request::CloseSession),
    ]
}

/// Paths that a sequential creation made, as the tree tells them.
fn created(applied: &Applied) -> Vec<String> {
    let results = applied.results.iter();
    results
        .filter_map(|result| match result {
            OperationResult::Created { path, .. } => Some(path.clone()),
            _ => None,
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_tree_agrees_with_a_naive_model(history in prop::collection::vec((request(), 1i64..4), 1..40)) {
        let (mut tree, mut model) = (Tree::new(), Model::new());
        for (request, session) in history {
            let zxid = tree.last_zxid() + 1;
            let transaction = Transaction { zxid, time: Timestamp(zxid), session, request };
            let expected = model.apply(&transaction);
            let applied = tree.apply(&transaction);
            prop_assert_eq!(applied.as_ref().map(created).map_err(Clone::clone), expected);
            model.check_same(&tree);
        }
    }

    #[test]
    fn what_is_taken_back_leaves_no_trace(history in prop::collection::vec((request(), 1i64..4), 1..30)) {
        let mut tree = Tree::new();
        let mut before = Vec::new();
        for (request, session) in history {
            let zxid = tree.last_zxid() + 1;
            let dump = tree.dump();
            let transaction = Transaction { zxid, time: Timestamp(zxid), session, request };
            if let Ok(applied) = tree.apply(&transaction) {
                before.push((dump, applied.undo));
            }
        }
        while let Some((dump, undo)) = before.pop() {
            tree.undo(undo);
            prop_assert_eq!(tree.dump(), dump);
        }
    }
}
