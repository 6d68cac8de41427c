use super::store::{Create, CreateMode, Store, StoreError};
use super::text::TextNode;

/// Reads the whole tree below `root`, parents first. ZooKeeper's own nodes are left out.
///
/// Nodes that come or go meanwhile may or may not be there.
pub async fn export_tree(store: &dyn Store, root: &str) -> Result<Vec<TextNode>, StoreError> {
    let mut nodes = Vec::new();
    let mut level = vec![root.to_owned()];
    while !level.is_empty() {
        let reads: Vec<_> = level.iter().map(|path| (store.read(path), store.children(path))).collect();
        let mut next = Vec::new();
        for (path, (read, children)) in level.into_iter().zip(reads) {
            let (node, children) = match (read.await, children.await) {
                (Ok(node), Ok(children)) => (node, children),
                (Err(StoreError::NoNode { .. }), _) | (_, Err(StoreError::NoNode { .. })) if path != root => {
                    continue;
                }
                (Err(error), _) | (_, Err(error)) => return Err(error),
            };
            let below = path.trim_end_matches('/');
            let children = children.iter().map(|name| format!("{below}/{name}"));
            next.extend(children.filter(|path| !is_zookeepers(path)));
            nodes.push(TextNode {
                path,
                is_ephemeral: node.stat.ephemeral_owner != 0,
                version: node.stat.version,
                data: node.data,
            });
        }
        level = next;
    }
    nodes.sort_by(|left, right| left.path.split('/').cmp(right.path.split('/')));
    Ok(nodes)
}

/// What [`import_tree`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Imported {
    pub created: usize,
    /// Nodes that were there, with other data.
    pub overwritten: usize,
    /// Nodes of sessions, which end with them.
    pub left_out: usize,
}

/// Writes nodes, parents first, as persistent ones. What is there already gets the given data.
///
/// Versions begin anew, which no reader minds.
pub async fn import_tree(store: &dyn Store, nodes: &[TextNode]) -> Result<Imported, StoreError> {
    let mut imported = Imported::default();
    let wanted: Vec<&TextNode> =
        nodes.iter().filter(|node| node.path != "/" && !is_zookeepers(&node.path)).collect();
    let (lasting, ephemeral): (Vec<&TextNode>, Vec<&TextNode>) =
        wanted.into_iter().partition(|node| !node.is_ephemeral);
    imported.left_out = ephemeral.len();
    let creations: Vec<_> = lasting
        .iter()
        .map(|node| {
            let (path, data) = (node.path.clone(), node.data.clone());
            store.create(Create { path, data, mode: CreateMode::Persistent })
        })
        .collect();
    for (node, creation) in lasting.into_iter().zip(creations) {
        match creation.await {
            Ok(_) => imported.created += 1,
            Err(StoreError::NodeExists { .. }) => {
                if store.read(&node.path).await?.data != node.data {
                    store.set(&node.path, node.data.clone(), None).await?;
                    imported.overwritten += 1;
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(imported)
}

fn is_zookeepers(path: &str) -> bool {
    path == "/zookeeper" || path.starts_with("/zookeeper/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordination::MemoryEnsemble;
    use crate::coordination::text::parse_tree;

    #[tokio::test]
    async fn a_tree_goes_from_store_to_store() {
        let text = include_str!("../../protocol-tests/peers/data/zk-tree-3.9.2.txt");
        let mut nodes = parse_tree(text).unwrap();
        let store = MemoryEnsemble::new().session();
        let imported = import_tree(&store, &nodes).await.unwrap();
        let ephemeral = nodes.iter().filter(|node| node.is_ephemeral).count();
        assert_eq!((imported.left_out, imported.overwritten), (ephemeral, 0));
        let again = import_tree(&store, &nodes).await.unwrap();
        assert_eq!((again.created, again.overwritten), (0, 0));
        let exported = export_tree(&store, "/").await.unwrap();
        nodes.retain(|node| !node.is_ephemeral && !is_zookeepers(&node.path) && node.path != "/");
        nodes.iter_mut().for_each(|node| node.version = 0);
        assert_eq!(exported[1..], nodes);
    }
}
