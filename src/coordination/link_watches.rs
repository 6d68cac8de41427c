use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::path;
use super::store::{StoreEvent, WatchKind};
use super::tree::{Change, ChangeKind};
use super::watches::{Firing, Link};

/// The one-shot watches of clients in other processes. A watch belongs to a link and goes with it.
///
/// As in ZooKeeper a link has at most one watch of a kind on a path, and of the deletion of a node it is told once,
/// also when it watches both the node and its children.
#[derive(Debug, Default)]
pub(super) struct LinkWatches {
    nodes: Watching,
    children: Watching,
    links: HashMap<LinkId, LinkEntry>,
    last_link: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LinkId(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum WatchTarget {
    /// The node itself, also one that does not exist.
    Node,
    Children,
}

/// The link has as many watches as one may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyWatches;

/// How many there are of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WatchCounts {
    pub links: usize,
    pub paths: usize,
    pub watches: usize,
}

type Watching = HashMap<Arc<str>, Vec<LinkId>>;

#[derive(Debug)]
struct LinkEntry {
    link: Arc<dyn Link>,
    watches: HashSet<(WatchTarget, Arc<str>)>,
}

/// A controller of a cluster of that many topics watches each of them.
const WATCHES_PER_LINK_MAX: usize = 500_000;

impl LinkWatches {
    pub(super) fn add_link(&mut self, link: Arc<dyn Link>) -> LinkId {
        self.last_link += 1;
        let id = LinkId(self.last_link);
        self.links.insert(id, LinkEntry { link, watches: HashSet::new() });
        id
    }

    pub(super) fn remove_link(&mut self, link: LinkId) {
        let Some(entry) = self.links.remove(&link) else { return };
        for (target, path) in entry.watches {
            self.forget(link, target, &path);
        }
    }

    pub(super) fn add(
        &mut self,
        link: LinkId,
        target: WatchTarget,
        path: &str,
    ) -> Result<(), TooManyWatches> {
        let Some(entry) = self.links.get_mut(&link) else { return Ok(()) };
        if entry.watches.len() >= WATCHES_PER_LINK_MAX {
            return Err(TooManyWatches);
        }
        let path: Arc<str> = path.into();
        if entry.watches.insert((target, Arc::clone(&path))) {
            self.table(target).entry(path).or_default().push(link);
        }
        Ok(())
    }

    /// False where there was none.
    pub(super) fn remove(&mut self, link: LinkId, target: WatchTarget, path: &str) -> bool {
        let Some(entry) = self.links.get_mut(&link) else { return false };
        let is_removed = entry.watches.remove(&(target, Arc::from(path)));
        if is_removed {
            self.forget(link, target, path);
        }
        is_removed
    }

    pub(super) fn contains(&self, link: LinkId, target: WatchTarget, path: &str) -> bool {
        self.links.get(&link).is_some_and(|entry| entry.watches.contains(&(target, Arc::from(path))))
    }

    /// Takes out the watches that the change fires, in the order in which they are to be told.
    pub(super) fn fire(&mut self, change: &Change, firings: &mut Vec<Firing>) {
        let kind: WatchKind = change.kind.into();
        let told = self.take(WatchTarget::Node, &change.path);
        let mut both = Vec::new();
        if change.kind == ChangeKind::Deleted {
            both = self.take(WatchTarget::Children, &change.path);
            both.retain(|link| !told.contains(link));
        }
        for link in told.into_iter().chain(both) {
            self.push(link, &change.path, kind, firings);
        }
        if change.kind == ChangeKind::DataChanged {
            return;
        }
        if let Some((parent, _)) = path::split(&change.path) {
            for link in self.take(WatchTarget::Children, parent) {
                self.push(link, parent, WatchKind::ChildrenChanged, firings);
            }
        }
    }

    pub(super) fn counts(&self) -> WatchCounts {
        let watching = self.links.values().filter(|entry| !entry.watches.is_empty());
        let paths = self.nodes.keys().filter(|path| !self.children.contains_key(*path)).count();
        WatchCounts {
            links: watching.clone().count(),
            paths: paths + self.children.len(),
            watches: watching.map(|entry| entry.watches.len()).sum(),
        }
    }

    fn table(&mut self, target: WatchTarget) -> &mut Watching {
        match target {
            WatchTarget::Node => &mut self.nodes,
            WatchTarget::Children => &mut self.children,
        }
    }

    fn take(&mut self, target: WatchTarget, path: &str) -> Vec<LinkId> {
        let Some((path, links)) = self.table(target).remove_entry(path) else { return Vec::new() };
        let watch = (target, path);
        for link in &links {
            if let Some(entry) = self.links.get_mut(link) {
                entry.watches.remove(&watch);
            }
        }
        links
    }

    fn push(&self, link: LinkId, path: &str, kind: WatchKind, firings: &mut Vec<Firing>) {
        if let Some(entry) = self.links.get(&link) {
            let event = StoreEvent { path: path.to_owned(), kind };
            firings.push(Firing::to_link(Arc::clone(&entry.link), event));
        }
    }

    fn forget(&mut self, link: LinkId, target: WatchTarget, path: &str) {
        let table = self.table(target);
        if let Some(links) = table.get_mut(path) {
            links.retain(|&other| other != link);
            if links.is_empty() {
                table.remove(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    struct Told(Mutex<Vec<(String, WatchKind)>>);

    impl Link for Told {
        fn tell(&self, event: StoreEvent) {
            self.0.lock().push((event.path, event.kind));
        }
    }

    fn fire(watches: &mut LinkWatches, path: &str, kind: ChangeKind) {
        let mut firings = Vec::new();
        watches.fire(&Change { path: path.to_owned(), kind }, &mut firings);
        firings.into_iter().for_each(Firing::tell);
    }

    #[track_caller]
    fn check(change: ChangeKind, expected: &[(&str, WatchKind)]) {
        let mut watches = LinkWatches::default();
        let told = Arc::new(Told::default());
        let link = watches.add_link(told.clone());
        for (target, path) in [
            (WatchTarget::Node, "/a/b"),
            (WatchTarget::Node, "/a/b"),
            (WatchTarget::Children, "/a/b"),
            (WatchTarget::Children, "/a"),
            (WatchTarget::Node, "/a"),
        ] {
            watches.add(link, target, path).unwrap();
        }
        fire(&mut watches, "/a/b", change);
        let told: Vec<_> = told.0.lock().drain(..).collect();
        let told: Vec<_> = told.iter().map(|(path, kind)| (path.as_str(), *kind)).collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn a_link_is_told_once_of_each_change() {
        use WatchKind::{ChildrenChanged, Created, DataChanged, Deleted};
        check(ChangeKind::Created, &[("/a/b", Created), ("/a", ChildrenChanged)]);
        check(ChangeKind::DataChanged, &[("/a/b", DataChanged)]);
        check(ChangeKind::Deleted, &[("/a/b", Deleted), ("/a", ChildrenChanged)]);
    }

    #[test]
    fn a_link_that_goes_takes_its_watches_along() {
        let mut watches = LinkWatches::default();
        let (gone, stays) = (Arc::new(Told::default()), Arc::new(Told::default()));
        let gone_id = watches.add_link(gone.clone());
        let stays_id = watches.add_link(stays.clone());
        for link in [gone_id, stays_id] {
            watches.add(link, WatchTarget::Node, "/a").unwrap();
            watches.add(link, WatchTarget::Children, "/a").unwrap();
        }
        assert_eq!(watches.counts(), WatchCounts { links: 2, paths: 1, watches: 4 });
        watches.remove_link(gone_id);
        assert_eq!(watches.counts(), WatchCounts { links: 1, paths: 1, watches: 2 });
        assert!(watches.remove(stays_id, WatchTarget::Children, "/a"));
        assert!(!watches.remove(stays_id, WatchTarget::Children, "/a"));
        fire(&mut watches, "/a", ChangeKind::DataChanged);
        assert_eq!((gone.0.lock().len(), stays.0.lock().len()), (0, 1));
        assert_eq!(watches.counts(), WatchCounts::default());
    }
}
