use std::collections::HashMap;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::protocol::{self, EventKind};
use crate::coordination::store::{StoreEvent, WatchKind, Watcher};

/// The one-shot watches of a session: who is to be told of which path, without the chroot.
///
/// A server forgets them with the connection; [`set_again`](WatchTable::set_again) tells the next one.
#[derive(Debug, Default)]
pub(super) struct WatchTable {
    data: Watches,
    /// Of nodes that did not exist.
    exists: Watches,
    children: Watches,
    /// Watches added since the last sweep, and how many of them bring the next one.
    added: usize,
    sweep_after: usize,
}

type Watches = HashMap<String, Vec<oneshot::Sender<StoreEvent>>>;

/// Which changes of a node a watch waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchTarget {
    /// Of a node that exists.
    Data,
    /// Of a node that does not exist yet.
    Absent,
    Children,
}

/// Fewer watches than this are not worth a sweep.
const SWEEP_AFTER_MIN: usize = 1024;
/// Far below what a server takes in one request.
const PATH_BYTES_PER_REQUEST: usize = 128 * 1024;

impl WatchTable {
    pub fn add(&mut self, target: WatchTarget, path: &str) -> Watcher {
        self.sweep_when_due();
        let (teller, watcher) = oneshot::channel();
        self.table(target).entry(path.to_owned()).or_default().push(teller);
        watcher
    }

    /// Tells those that the event concerns.
    pub fn fire(&mut self, event: EventKind, path: &str) {
        let (kind, tables): (_, &mut [&mut Watches]) = match event {
            EventKind::Created => (WatchKind::Created, &mut [&mut self.data, &mut self.exists]),
            EventKind::DataChanged => (WatchKind::DataChanged, &mut [&mut self.data, &mut self.exists]),
            EventKind::Deleted => {
                (WatchKind::Deleted, &mut [&mut self.data, &mut self.exists, &mut self.children])
            }
            EventKind::ChildrenChanged => (WatchKind::ChildrenChanged, &mut [&mut self.children]),
            EventKind::Other => return,
        };
        for table in tables {
            for teller in table.remove(path).unwrap_or_default() {
                // Nobody listens when the watcher was dropped, which is how a watch is given up.
                let _ = teller.send(StoreEvent { path: path.to_owned(), kind });
            }
        }
    }

    /// The session is over: everybody is told.
    pub fn expire(&mut self) {
        for table in [&mut self.data, &mut self.exists, &mut self.children] {
            for (path, tellers) in table.drain() {
                for teller in tellers {
                    let _ = teller.send(StoreEvent { path: path.clone(), kind: WatchKind::SessionExpired });
                }
            }
        }
    }

    /// The requests that set all watches at another server, which fires those that missed a change since
    /// `seen_zxid`.
    pub fn set_again(&mut self, chroot: &str, seen_zxid: i64) -> Vec<Bytes> {
        self.sweep();
        let of = |table: &Watches, target| {
            table.keys().map(|path| (target, protocol::below(chroot, path))).collect::<Vec<_>>()
        };
        let mut paths = of(&self.data, WatchTarget::Data);
        paths.extend(of(&self.exists, WatchTarget::Absent));
        paths.extend(of(&self.children, WatchTarget::Children));
        let mut requests = Vec::new();
        let mut rest = paths.as_slice();
        while !rest.is_empty() {
            let (chunk, later) = rest.split_at(chunk_length(rest));
            let select = |wanted| -> Vec<&str> {
                chunk.iter().filter(|(target, _)| *target == wanted).map(|(_, path)| path.as_str()).collect()
            };
            let (data, absent) = (select(WatchTarget::Data), select(WatchTarget::Absent));
            requests.push(protocol::set_watches(seen_zxid, &data, &absent, &select(WatchTarget::Children)));
            rest = later;
        }
        requests
    }

    fn table(&mut self, target: WatchTarget) -> &mut Watches {
        match target {
            WatchTarget::Data => &mut self.data,
            WatchTarget::Absent => &mut self.exists,
            WatchTarget::Children => &mut self.children,
        }
    }

    fn sweep_when_due(&mut self) {
        self.added += 1;
        if self.added > self.sweep_after.max(SWEEP_AFTER_MIN) {
            self.sweep();
        }
    }

    /// Forgets watches whose watcher was dropped.
    fn sweep(&mut self) {
        for table in [&mut self.data, &mut self.exists, &mut self.children] {
            table.retain(|_, tellers| {
                tellers.retain(|teller| !teller.is_closed());
                !tellers.is_empty()
            });
        }
        self.added = 0;
        self.sweep_after = self.data.len() + self.exists.len() + self.children.len();
    }
}

/// How many paths, at least one, fit a request.
fn chunk_length(paths: &[(WatchTarget, String)]) -> usize {
    let mut bytes = 0;
    let fit = paths.iter().take_while(|(_, path)| {
        bytes += path.len() + 4;
        bytes <= PATH_BYTES_PER_REQUEST
    });
    fit.count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deletion_is_told_to_all_and_a_child_to_those_who_watch_children() {
        let mut table = WatchTable::default();
        let mut data = table.add(WatchTarget::Data, "/a");
        let mut children = table.add(WatchTarget::Children, "/a");
        table.fire(EventKind::ChildrenChanged, "/a");
        assert_eq!(children.try_recv().map(|event| event.kind), Ok(WatchKind::ChildrenChanged));
        assert!(data.try_recv().is_err());
        let mut children = table.add(WatchTarget::Children, "/a");
        table.fire(EventKind::Deleted, "/a");
        assert_eq!(data.try_recv().map(|event| event.kind), Ok(WatchKind::Deleted));
        assert_eq!(children.try_recv().map(|event| event.kind), Ok(WatchKind::Deleted));
    }

    #[test]
    fn many_watches_are_set_again_in_several_requests_and_dropped_ones_not() {
        let mut table = WatchTable::default();
        let _kept: Vec<_> =
            (0..5_000).map(|number| table.add(WatchTarget::Data, &format!("/{number:0100}"))).collect();
        drop(table.add(WatchTarget::Children, "/dropped"));
        let requests = table.set_again("/chroot", 7);
        assert_eq!(requests.len(), 5);
        assert!(requests.iter().all(|request| request.len() < 200_000));
    }
}
