use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::path;
use super::store::{StoreEvent, WatchKind, Watcher};
use super::tree::{Change, ChangeKind};

/// The one-shot watches of all sessions, with ZooKeeper's rules of who is told of what.
///
/// A watch whose [`Watcher`] was dropped is forgotten at the next sweep; sweeps come often enough that the
/// forgotten never outnumber the living by much.
#[derive(Debug, Default)]
pub(super) struct Watches {
    /// Set by `read_and_watch` and `exists_and_watch`.
    nodes: HashMap<String, Vec<Watch>>,
    /// Set by `children_and_watch`.
    children: HashMap<String, Vec<Watch>>,
    /// Watches added since the last sweep, and how many of them bring the next one.
    added: usize,
    sweep_after: usize,
}

#[derive(Debug)]
struct Watch {
    session: i64,
    teller: oneshot::Sender<StoreEvent>,
}

/// A watch that has fired and is to be told.
#[derive(Debug)]
pub(super) struct Firing {
    /// 0 = of a link, which belongs to no session.
    pub session: i64,
    teller: Teller,
    event: StoreEvent,
}

#[derive(Debug)]
enum Teller {
    Watcher(oneshot::Sender<StoreEvent>),
    Link(Arc<dyn Link>),
}

/// The way to a client in another process, which is told of changes in their order.
pub(super) trait Link: Send + Sync + fmt::Debug {
    fn tell(&self, event: StoreEvent);
}

impl Firing {
    pub(super) fn to_link(link: Arc<dyn Link>, event: StoreEvent) -> Firing {
        Firing { session: 0, teller: Teller::Link(link), event }
    }

    pub(super) fn tell(self) {
        match self.teller {
            // Nobody listens when the watcher was dropped, which is how a watch is given up.
            Teller::Watcher(watcher) => drop(watcher.send(self.event)),
            Teller::Link(link) => link.tell(self.event),
        }
    }
}

/// Fewer watches than this are not worth a sweep.
const SWEEP_AFTER_MIN: usize = 1024;

impl Watches {
    pub(super) fn add_node(&mut self, session: i64, path: &str) -> Watcher {
        self.sweep_when_due();
        add(&mut self.nodes, session, path)
    }

    pub(super) fn add_children(&mut self, session: i64, path: &str) -> Watcher {
        self.sweep_when_due();
        add(&mut self.children, session, path)
    }

    /// Takes out the watches that the change fires, in the order in which they are to be told.
    pub(super) fn fire(&mut self, change: &Change, firings: &mut Vec<Firing>) {
        let path = &change.path;
        let kind = change.kind.into();
        take(&mut self.nodes, path, kind, firings);
        if change.kind == ChangeKind::Deleted {
            take(&mut self.children, path, kind, firings);
        }
        if change.kind == ChangeKind::DataChanged {
            return;
        }
        if let Some((parent, _)) = path::split(path) {
            take(&mut self.children, parent, WatchKind::ChildrenChanged, firings);
        }
    }

    /// Takes out all watches of a session that is over.
    pub(super) fn expire(&mut self, session: i64, firings: &mut Vec<Firing>) {
        for table in [&mut self.nodes, &mut self.children] {
            for (path, watches) in table.iter_mut() {
                let event = StoreEvent { path: path.clone(), kind: WatchKind::SessionExpired };
                let over = watches.extract_if(.., |watch| watch.session == session);
                firings.extend(over.map(|watch| watch.firing(event.clone())));
            }
            table.retain(|_, watches| !watches.is_empty());
        }
    }

    fn sweep_when_due(&mut self) {
        self.added += 1;
        if self.added <= self.sweep_after.max(SWEEP_AFTER_MIN) {
            return;
        }
        for table in [&mut self.nodes, &mut self.children] {
            table.retain(|_, watches| {
                watches.retain(|watch| !watch.teller.is_closed());
                !watches.is_empty()
            });
        }
        self.added = 0;
        self.sweep_after = self.nodes.len() + self.children.len();
    }
}

fn add(table: &mut HashMap<String, Vec<Watch>>, session: i64, path: &str) -> Watcher {
    let (teller, watcher) = oneshot::channel();
    let watches = match table.get_mut(path) {
        Some(watches) => watches,
        None => table.entry(path.to_owned()).or_default(),
    };
    watches.push(Watch { session, teller });
    watcher
}

fn take(table: &mut HashMap<String, Vec<Watch>>, path: &str, kind: WatchKind, firings: &mut Vec<Firing>) {
    for watch in table.remove(path).unwrap_or_default() {
        firings.push(watch.firing(StoreEvent { path: path.to_owned(), kind }));
    }
}

impl Watch {
    fn firing(self, event: StoreEvent) -> Firing {
        Firing { session: self.session, teller: Teller::Watcher(self.teller), event }
    }
}

impl From<ChangeKind> for WatchKind {
    fn from(kind: ChangeKind) -> WatchKind {
        match kind {
            ChangeKind::Created => WatchKind::Created,
            ChangeKind::DataChanged => WatchKind::DataChanged,
            ChangeKind::Deleted => WatchKind::Deleted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fired(watches: &mut Watches, path: &str, kind: ChangeKind) {
        let mut firings = Vec::new();
        watches.fire(&Change { path: path.to_owned(), kind }, &mut firings);
        firings.into_iter().for_each(Firing::tell);
    }

    fn told(watcher: &mut Watcher) -> Option<WatchKind> {
        watcher.try_recv().ok().map(|event| event.kind)
    }

    #[track_caller]
    fn check(
        change: ChangeKind,
        node: Option<WatchKind>,
        children: Option<WatchKind>,
        parent: Option<WatchKind>,
    ) {
        let mut watches = Watches::default();
        let mut on_node = watches.add_node(1, "/a/b");
        let mut on_children = watches.add_children(1, "/a/b");
        let mut on_parent = watches.add_children(1, "/a");
        let mut on_parent_data = watches.add_node(1, "/a");
        fired(&mut watches, "/a/b", change);
        assert_eq!(told(&mut on_node), node);
        assert_eq!(told(&mut on_children), children);
        assert_eq!(told(&mut on_parent), parent);
        assert_eq!(told(&mut on_parent_data), None);
    }

    #[test]
    fn changes_fire_the_watches_that_zookeeper_fires() {
        use WatchKind::{ChildrenChanged, Created, DataChanged, Deleted};
        check(ChangeKind::Created, Some(Created), None, Some(ChildrenChanged));
        check(ChangeKind::DataChanged, Some(DataChanged), None, None);
        check(ChangeKind::Deleted, Some(Deleted), Some(Deleted), Some(ChildrenChanged));
    }

    #[test]
    fn an_ended_session_is_told_on_every_watch() {
        let mut watches = Watches::default();
        let mut mine = watches.add_node(1, "/a");
        let mut others = watches.add_node(2, "/a");
        let mut firings = Vec::new();
        watches.expire(1, &mut firings);
        firings.into_iter().for_each(Firing::tell);
        assert_eq!(told(&mut mine), Some(WatchKind::SessionExpired));
        assert_eq!(told(&mut others), None);
    }

    #[test]
    fn dropped_watchers_do_not_pile_up() {
        let mut watches = Watches::default();
        for number in 0..100_000 {
            drop(watches.add_node(1, &format!("/{number}")));
        }
        assert!(watches.nodes.len() <= 2 * SWEEP_AFTER_MIN, "{}", watches.nodes.len());
    }
}
