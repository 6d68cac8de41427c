use super::*;
use crate::coordination::CreateMode;

impl Tree {
    /// Every node as text, for comparing whole trees.
    pub(in crate::coordination) fn dump(&self) -> Vec<String> {
        fn visit(tree: &Tree, id: NodeId, lines: &mut Vec<String>) {
            let node = tree.node(id);
            lines.push(format!("{}/ {:?} {:?}", tree.path_of(id), node.data, node.stat()));
            node.children.iter().for_each(|&child| visit(tree, child, lines));
        }
        let mut lines = vec![format!("{} {} nodes", self.last_zxid, self.len())];
        visit(self, ROOT, &mut lines);
        lines
    }
}

fn create(path: &str) -> Operation {
    create_as(path, CreateMode::Persistent)
}

fn create_as(path: &str, mode: CreateMode) -> Operation {
    Operation::Create(Create { path: path.to_owned(), data: None, mode })
}

fn delete(path: &str) -> Operation {
    Operation::Delete { path: path.to_owned(), version: None }
}

fn set(path: &str, data: &'static str, version: Option<i32>) -> Operation {
    Operation::Set { path: path.to_owned(), data: Some(Bytes::from_static(data.as_bytes())), version }
}

fn check(path: &str, version: i32) -> Operation {
    Operation::Check { path: path.to_owned(), version }
}

/// Applies the operations as session 7, at a time of zxid seconds.
fn run(tree: &mut Tree, operations: &[Operation]) -> Result<Applied, (usize, StoreError)> {
    let zxid = tree.last_zxid() + 1;
    let request = Request::Operations(operations.to_vec());
    tree.apply(&Transaction { zxid, time: Timestamp(zxid * 1000), session: 7, request })
}

fn tree_of(operations: &[Operation]) -> Tree {
    let mut tree = Tree::new();
    for operation in operations {
        run(&mut tree, std::slice::from_ref(operation)).unwrap();
    }
    tree
}

#[test]
fn stats_count_as_zookeepers_do() {
    let mut tree =
        tree_of(&[create("/a"), create("/a/b"), create("/a/c"), delete("/a/b"), set("/a", "x", Some(0))]);
    let expected = Stat {
        czxid: 1,
        mzxid: 5,
        pzxid: 4,
        created_ms: 1000,
        modified_ms: 5000,
        version: 1,
        child_version: 3,
        acl_version: 0,
        ephemeral_owner: 0,
        data_length: 1,
        children: 1,
    };
    assert_eq!(tree.exists("/a"), Ok(Some(expected)));
    run(&mut tree, &[create_as("/e", CreateMode::Ephemeral)]).unwrap();
    assert_eq!(tree.exists("/e").unwrap().unwrap().ephemeral_owner, 7);
}

#[test]
fn sequence_numbers_count_creations_and_never_repeat() {
    let sequential = create_as("/q/n-", CreateMode::PersistentSequential);
    let mut tree = tree_of(&[create("/q"), sequential.clone(), create("/q/other"), sequential.clone()]);
    assert_eq!(tree.children("/q").unwrap(), ["n-0000000000", "n-0000000002", "other"]);
    run(&mut tree, &[delete("/q/n-0000000002"), sequential.clone(), sequential]).unwrap();
    assert_eq!(tree.children("/q").unwrap(), ["n-0000000000", "n-0000000003", "n-0000000004", "other"]);
    run(&mut tree, &[create_as("/", CreateMode::PersistentSequential)]).unwrap();
    assert_eq!(tree.children("/").unwrap(), ["0000000001", "q"]);
}

#[test]
fn sequence_numbers_wrap_as_javas_do() {
    let mut tree = tree_of(&[create("/q")]);
    let id = tree.lookup("/q").unwrap();
    tree.node_mut(id).creations = i32::MAX;
    let sequential = create_as("/q/n", CreateMode::PersistentSequential);
    run(&mut tree, &[sequential.clone(), sequential]).unwrap();
    assert_eq!(tree.children("/q").unwrap(), ["n-2147483648", "n2147483647"]);
}

#[test]
fn refused_operations_say_why() {
    #[track_caller]
    fn check_refused(operation: Operation, expected: fn(String) -> StoreError, path: &str) {
        let mut tree = tree_of(&[create("/a"), create("/a/b"), create_as("/e", CreateMode::Ephemeral)]);
        let before = tree.dump();
        let refused = run(&mut tree, &[operation]).map(|_| ());
        assert_eq!(refused, Err((0, expected(path.to_owned()))));
        assert_eq!(tree.dump(), before);
    }
    let no_node = |path| StoreError::NoNode { path };
    let exists = |path| StoreError::NodeExists { path };
    let bad_version = |path| StoreError::BadVersion { path };
    let bad_arguments = |path| StoreError::BadArguments { path };
    check_refused(create("/x/y"), no_node, "/x");
    check_refused(create("/a"), exists, "/a");
    check_refused(create("/"), exists, "/");
    check_refused(create("/e/x"), |path| StoreError::NoChildrenForEphemerals { path }, "/e");
    check_refused(create("/a/"), bad_arguments, "/a/");
    check_refused(create_as("/x/n", CreateMode::PersistentSequential), no_node, "/x");
    check_refused(set("/x", "", None), no_node, "/x");
    check_refused(set("/a", "", Some(1)), bad_version, "/a");
    check_refused(check("/a", 3), bad_version, "/a");
    check_refused(check("/x", -1), no_node, "/x");
    check_refused(delete("/"), bad_arguments, "/");
    check_refused(delete("/x"), no_node, "/x");
    check_refused(delete("/a"), |path| StoreError::NotEmpty { path }, "/a");
    // The version is looked at before the children.
    let stale = Operation::Delete { path: "/a".to_owned(), version: Some(1) };
    check_refused(stale, bad_version, "/a");
}

#[test]
fn version_minus_one_matches_any() {
    let mut tree = tree_of(&[create("/a"), set("/a", "x", None)]);
    run(&mut tree, &[check("/a", -1), set("/a", "y", Some(-1))]).unwrap();
    assert_eq!(tree.read("/a").unwrap().data.unwrap(), "y");
}

#[test]
fn a_refused_multi_changes_nothing_and_names_its_member() {
    let mut tree = tree_of(&[create("/a"), create("/old")]);
    let before = tree.dump();
    let refused = run(
        &mut tree,
        &[create("/a/b"), set("/a", "x", Some(0)), delete("/old"), create("/n"), check("/a", 0)],
    );
    assert_eq!(refused.map(|_| ()), Err((4, StoreError::BadVersion { path: "/a".to_owned() })));
    assert_eq!(tree.dump(), before);
}

#[test]
fn members_of_a_multi_see_those_before() {
    let mut tree = Tree::new();
    let applied =
        run(&mut tree, &[create("/a"), set("/a", "x", Some(0)), check("/a", 1), delete("/a")]).unwrap();
    assert_eq!(applied.results.len(), 4);
    assert_eq!(tree.children("/").unwrap(), [""; 0]);
}

#[test]
fn a_closed_session_takes_its_nodes_along() {
    let mut tree = tree_of(&[create("/a"), create_as("/a/e", CreateMode::Ephemeral), create("/a/p")]);
    let close =
        |session, zxid| Transaction { zxid, time: Timestamp(0), session, request: Request::CloseSession };
    assert!(tree.apply(&close(8, 4)).unwrap().changes.is_empty());
    assert_eq!(tree.owners(), [7]);
    let before = tree.dump();
    let applied = tree.apply(&close(7, 5)).unwrap();
    assert_eq!(applied.changes, [Change { path: "/a/e".to_owned(), kind: ChangeKind::Deleted }]);
    assert_eq!(tree.children("/a").unwrap(), ["p"]);
    assert_eq!(tree.exists("/a").unwrap().unwrap().pzxid, 5);
    tree.undo(applied.undo);
    assert_eq!(tree.dump(), before);
    assert_eq!(tree.owners(), [7]);
}

#[test]
fn null_and_empty_data_are_different() {
    let empty = Create { path: "/e".to_owned(), data: Some(Bytes::new()), mode: CreateMode::Persistent };
    let tree = tree_of(&[create("/n"), Operation::Create(empty)]);
    assert_eq!(tree.read("/n").unwrap().data, None);
    assert_eq!(tree.read("/e").unwrap().data, Some(Bytes::new()));
}

#[test]
fn a_node_is_small() {
    assert!(size_of::<Option<Node>>() <= 120, "{}", size_of::<Option<Node>>());
}
