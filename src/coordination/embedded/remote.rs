use std::sync::Arc;

use super::store::Shared;
use crate::coordination::access::{Access, Identity};
use crate::coordination::database::Database;
use crate::coordination::link_watches::LinkId;
use crate::coordination::store::{OperationResult, StoreError};
use crate::coordination::tree::{GuardedOperation, Request, SessionTerms};
use crate::coordination::watches::Link;

/// The embedded store for the sessions of other processes, which outlive this one.
///
/// Calls take effect in their order, and are answered in it when all that they show is durable. An answer is given
/// under the store's lock, after the watches of the change that it shows were told, so it must do little and not
/// call the store.
#[derive(Clone, Debug)]
pub(in crate::coordination) struct RemoteStore {
    pub(super) shared: Arc<Shared>,
}

impl RemoteStore {
    /// The sessions that are open: of earlier lives of this process, too.
    pub(in crate::coordination) fn sessions(&self) -> Vec<(i64, SessionTerms)> {
        let state = self.shared.state.lock();
        let sessions = state.database.tree().sessions().iter();
        sessions.map(|(session, terms)| (*session, *terms)).collect()
    }

    /// Answers with the session and the number of its transaction.
    pub(in crate::coordination) fn open_session(
        &self,
        terms: SessionTerms,
        answer: impl FnOnce(Result<i64, StoreError>) + Send + 'static,
    ) {
        let mut state = self.shared.state.lock();
        if let Err(error) = state.check_running() {
            return answer(Err(error));
        }
        let (session, written) = state.database.open_lasting_session(terms, self.shared.clock.now());
        let (_, firings) = state.record(written);
        let answer = move |outcome: Result<(), StoreError>| answer(outcome.map(|()| session));
        self.shared.wait_for_writer(state, firings, Box::new(answer));
    }

    /// Answers with the number of the transaction.
    pub(in crate::coordination) fn end_session(
        &self,
        session: i64,
        answer: impl FnOnce(Result<i64, StoreError>) + Send + 'static,
    ) {
        self.shared.end_session(session, answer);
    }

    /// Answers with the number of the transaction, or of the last one before it was refused.
    pub(in crate::coordination) fn write(
        &self,
        session: i64,
        operations: Vec<GuardedOperation>,
        client: &[Identity],
        answer: impl FnOnce(i64, Result<Vec<OperationResult>, (usize, StoreError)>) + Send + 'static,
    ) {
        self.shared.write(session, Request::Guarded(operations), Access::Of(client), answer);
    }

    /// Reads now and answers when what was read is durable, with the number of the last transaction that it shows.
    pub(in crate::coordination) fn read<T: Send + 'static>(
        &self,
        session: i64,
        read: impl FnOnce(&mut Database) -> T,
        answer: impl FnOnce(i64, Result<T, StoreError>) + Send + 'static,
    ) {
        let mut state = self.shared.state.lock();
        let found = state.check_running().and_then(|()| match state.database.is_open(session) {
            true => Ok(read(&mut state.database)),
            false => Err(StoreError::SessionExpired),
        });
        let zxid = state.database.tree().last_zxid();
        state.answer_in_order(move |outcome| answer(zxid, outcome.and(found)));
    }

    pub(in crate::coordination) fn last_zxid(&self) -> i64 {
        self.shared.state.lock().database.tree().last_zxid()
    }

    /// Looks at the database outside of any session.
    pub(in crate::coordination) fn look<T>(&self, look: impl FnOnce(&mut Database) -> T) -> T {
        look(&mut self.shared.state.lock().database)
    }

    pub(in crate::coordination) fn add_link(&self, link: Arc<dyn Link>) -> LinkId {
        self.look(|database| database.link_watches().add_link(link))
    }

    pub(in crate::coordination) fn remove_link(&self, link: LinkId) {
        self.look(|database| database.link_watches().remove_link(link));
    }
}
