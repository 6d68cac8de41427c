use std::collections::BTreeSet;

use snafu::ensure;

use super::access::Access;
use super::link_watches::LinkWatches;
use super::store::{NodeData, OperationResult, SessionExpiredSnafu, Stat, StoreError, Watcher};
use super::tree::{Request, SessionTerms, Transaction, Tree, Undo};
use super::watches::{Firing, Watches};
use crate::model::Timestamp;

/// The tree, its watches and its sessions: what the memory and the embedded store have in common.
///
/// A write gives back the watches it fired instead of telling them, because only the store knows when the
/// change may be seen.
#[derive(Debug)]
pub(super) struct Database {
    tree: Tree,
    watches: Watches,
    /// Of clients in other processes.
    link_watches: LinkWatches,
    open_sessions: BTreeSet<i64>,
    last_session: i64,
}

/// A write that was applied.
#[derive(Debug)]
pub(super) struct Written {
    pub transaction: Transaction,
    /// One for each operation.
    pub results: Vec<OperationResult>,
    /// To be told once the write may be seen.
    pub firings: Vec<Firing>,
    pub undo: Undo,
}

impl Database {
    /// `last_session` is the largest session id ever used; 0 = none. The sessions that stand in the tree are open.
    pub(super) fn new(tree: Tree, last_session: i64) -> Database {
        let open_sessions = tree.sessions().keys().copied().collect();
        Database {
            tree,
            watches: Watches::default(),
            link_watches: LinkWatches::default(),
            open_sessions,
            last_session,
        }
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(super) fn open_session(&mut self) -> i64 {
        self.last_session += 1;
        self.open_sessions.insert(self.last_session);
        self.last_session
    }

    pub(super) fn link_watches(&mut self) -> &mut LinkWatches {
        &mut self.link_watches
    }

    /// Opens a session that outlives the process.
    pub(super) fn open_lasting_session(&mut self, terms: SessionTerms, now: Timestamp) -> (i64, Written) {
        let session = self.open_session();
        let opened = self.apply(session, Request::OpenSession(terms), Access::Unchecked, now);
        (session, opened.expect("nothing refuses the beginning of a session"))
    }

    pub(super) fn is_open(&self, session: i64) -> bool {
        self.open_sessions.contains(&session)
    }

    pub(super) fn write(
        &mut self,
        session: i64,
        request: Request,
        access: Access<'_>,
        now: Timestamp,
    ) -> Result<Written, (usize, StoreError)> {
        self.check_open(session).map_err(|error| (0, error))?;
        self.apply(session, request, access, now)
    }

    /// Closes the session and deletes its ephemeral nodes. Its own watches fire too, last.
    pub(super) fn end_session(&mut self, session: i64, now: Timestamp) -> Result<Written, StoreError> {
        self.check_open(session)?;
        let mut written = self.close_session(session, now);
        self.open_sessions.remove(&session);
        self.watches.expire(session, &mut written.firings);
        Ok(written)
    }

    fn close_session(&mut self, session: i64, now: Timestamp) -> Written {
        let closed = self.apply(session, Request::CloseSession, Access::Unchecked, now);
        closed.expect("nothing refuses the end of a session")
    }

    fn apply(
        &mut self,
        session: i64,
        request: Request,
        access: Access<'_>,
        now: Timestamp,
    ) -> Result<Written, (usize, StoreError)> {
        let transaction = Transaction { zxid: self.tree.last_zxid() + 1, time: now, session, request };
        let applied = self.tree.apply_for(&transaction, access)?;
        let mut firings = Vec::new();
        for change in &applied.changes {
            self.watches.fire(change, &mut firings);
            self.link_watches.fire(change, &mut firings);
        }
        Ok(Written { transaction, results: applied.results, firings, undo: applied.undo })
    }

    /// Takes the sessions that outlive the process for closed: nobody is there to go on with them.
    pub(super) fn abandon_lasting_sessions(&mut self) {
        for session in self.tree.sessions().keys() {
            self.open_sessions.remove(session);
        }
    }

    /// Deletes the ephemeral nodes of sessions that are not open: of an earlier life of the process, or where
    /// the end of a session was taken back.
    pub(super) fn remove_orphans(&mut self, now: Timestamp) -> Vec<Written> {
        let mut orphaned = self.tree.owners();
        orphaned.extend(self.tree.sessions().keys());
        orphaned.sort_unstable();
        orphaned.dedup();
        orphaned.retain(|owner| !self.is_open(*owner));
        orphaned.into_iter().map(|session| self.close_session(session, now)).collect()
    }

    /// Ends every session without a trace in the tree, and gives their watches.
    pub(super) fn end_all_sessions(&mut self) -> Vec<Firing> {
        let mut firings = Vec::new();
        for session in std::mem::take(&mut self.open_sessions) {
            self.watches.expire(session, &mut firings);
        }
        firings
    }

    /// Takes the newest write back. Its watches have fired all the same: who is told reads what was before.
    pub(super) fn undo(&mut self, undo: Undo) {
        self.tree.undo(undo);
    }

    pub(super) fn read(&self, session: i64, path: &str) -> Result<NodeData, StoreError> {
        self.check_open(session)?;
        self.tree.read(path)
    }

    pub(super) fn exists(&self, session: i64, path: &str) -> Result<Option<Stat>, StoreError> {
        self.check_open(session)?;
        self.tree.exists(path)
    }

    pub(super) fn children(&self, session: i64, path: &str) -> Result<Vec<String>, StoreError> {
        self.check_open(session)?;
        self.tree.children(path)
    }

    pub(super) fn read_and_watch(
        &mut self,
        session: i64,
        path: &str,
    ) -> Result<(NodeData, Watcher), StoreError> {
        let node = self.read(session, path)?;
        Ok((node, self.watches.add_node(session, path)))
    }

    pub(super) fn exists_and_watch(
        &mut self,
        session: i64,
        path: &str,
    ) -> Result<(Option<Stat>, Watcher), StoreError> {
        let stat = self.exists(session, path)?;
        Ok((stat, self.watches.add_node(session, path)))
    }

    pub(super) fn children_and_watch(
        &mut self,
        session: i64,
        path: &str,
    ) -> Result<(Vec<String>, Watcher), StoreError> {
        let names = self.children(session, path)?;
        Ok((names, self.watches.add_children(session, path)))
    }

    fn check_open(&self, session: i64) -> Result<(), StoreError> {
        ensure!(self.is_open(session), SessionExpiredSnafu);
        Ok(())
    }
}
