use std::collections::{BTreeSet, HashMap};

use crate::coordination::tree::SessionTerms;

/// The sessions of other processes: who holds each, and when it ends.
///
/// As in ZooKeeper, sessions end at multiples of a tick, the first at or after their timeout.
#[derive(Debug)]
pub(super) struct Sessions {
    tick_ms: u64,
    by_id: HashMap<i64, Session>,
    ends: BTreeSet<(Moment, i64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Session {
    terms: SessionTerms,
    end: Moment,
    /// The only connection that may act for it; `None` = none now.
    connection: Option<ConnectionId>,
}

/// Milliseconds since the server was started, by a clock that does not jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ConnectionId(pub u64);

/// The session is over, or who asks for it does not know its password: a client is not told which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotResumed;

impl Sessions {
    /// `tick_ms` is at least 1.
    pub(super) fn new(tick_ms: u64) -> Sessions {
        Sessions { tick_ms: tick_ms.max(1), by_id: HashMap::new(), ends: BTreeSet::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// A session that begins, or one of an earlier life of this process, which nobody holds yet.
    pub(super) fn add(
        &mut self,
        session: i64,
        terms: SessionTerms,
        connection: Option<ConnectionId>,
        now: Moment,
    ) {
        let end = self.end_of(now, terms.timeout_ms);
        self.ends.insert((end, session));
        self.by_id.insert(session, Session { terms, end, connection });
    }

    /// Lets a connection go on with a session, under another timeout; gives the connection that held it.
    pub(super) fn resume(
        &mut self,
        session: i64,
        password: &[u8],
        timeout_ms: i32,
        connection: ConnectionId,
        now: Moment,
    ) -> Result<Option<ConnectionId>, NotResumed> {
        let found = self.by_id.get_mut(&session).ok_or(NotResumed)?;
        if found.terms.password != *password {
            return Err(NotResumed);
        }
        found.terms.timeout_ms = timeout_ms;
        let held_by = found.connection.replace(connection);
        self.move_end(session, now);
        Ok(held_by)
    }

    /// The session's client has been heard of. False when this connection does not hold the session (any more).
    pub(super) fn touch(&mut self, session: i64, connection: ConnectionId, now: Moment) -> bool {
        let is_held = self.by_id.get(&session).is_some_and(|found| found.connection == Some(connection));
        if is_held {
            self.move_end(session, now);
        }
        is_held
    }

    /// The connection is gone; the session waits for another one until it ends.
    pub(super) fn release(&mut self, session: i64, connection: ConnectionId) {
        if let Some(found) = self.by_id.get_mut(&session).filter(|found| found.connection == Some(connection))
        {
            found.connection = None;
        }
    }

    pub(super) fn close(&mut self, session: i64) {
        if let Some(closed) = self.by_id.remove(&session) {
            self.ends.remove(&(closed.end, session));
        }
    }

    /// Takes out the sessions whose time is up, with the connections that hold them.
    pub(super) fn expire(&mut self, now: Moment) -> Vec<(i64, Option<ConnectionId>)> {
        let mut expired = Vec::new();
        while let Some((_, session)) = self.ends.first().copied().filter(|(end, _)| *end <= now) {
            expired.push((session, self.by_id.get(&session).and_then(|found| found.connection)));
            self.close(session);
        }
        expired
    }

    fn end_of(&self, now: Moment, timeout_ms: i32) -> Moment {
        let end = now.0.saturating_add(u64::try_from(timeout_ms).unwrap_or(0));
        Moment((end / self.tick_ms).saturating_add(1).saturating_mul(self.tick_ms))
    }

    fn move_end(&mut self, session: i64, now: Moment) {
        let Some(timeout_ms) = self.by_id.get(&session).map(|found| found.terms.timeout_ms) else { return };
        let end = self.end_of(now, timeout_ms);
        let Some(found) = self.by_id.get_mut(&session).filter(|found| found.end != end) else { return };
        self.ends.remove(&(found.end, session));
        self.ends.insert((end, session));
        found.end = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: SessionTerms = SessionTerms { timeout_ms: 6_000, password: [7; 16] };
    const FIRST: ConnectionId = ConnectionId(1);
    const SECOND: ConnectionId = ConnectionId(2);

    fn sessions() -> Sessions {
        let mut sessions = Sessions::new(2_000);
        sessions.add(1, TERMS, Some(FIRST), Moment(0));
        sessions
    }

    #[test]
    fn a_silent_session_ends_at_the_tick_after_its_timeout() {
        let mut sessions = sessions();
        assert!(sessions.touch(1, FIRST, Moment(1_500)));
        assert_eq!(sessions.expire(Moment(7_999)), []);
        assert_eq!(sessions.expire(Moment(8_000)), [(1, Some(FIRST))]);
        assert_eq!(sessions.expire(Moment(8_000)), []);
        assert!(!sessions.touch(1, FIRST, Moment(8_000)));
        assert_eq!(sessions.resume(1, &TERMS.password, 6_000, SECOND, Moment(8_000)), Err(NotResumed));
    }

    #[test]
    fn only_who_knows_the_password_goes_on_and_the_old_connection_may_not() {
        let mut sessions = sessions();
        for password in [&[7; 15][..], &[8; 16], &[]] {
            assert_eq!(sessions.resume(1, password, 6_000, SECOND, Moment(0)), Err(NotResumed));
        }
        assert_eq!(sessions.resume(1, &TERMS.password, 4_000, SECOND, Moment(5_000)), Ok(Some(FIRST)));
        assert!(!sessions.touch(1, FIRST, Moment(5_000)));
        assert!(sessions.touch(1, SECOND, Moment(5_000)));
        // A late goodbye of the old connection takes nothing away from the new one.
        sessions.release(1, FIRST);
        assert!(sessions.touch(1, SECOND, Moment(5_000)));
        assert_eq!(sessions.expire(Moment(10_000)), [(1, Some(SECOND))]);
    }

    #[test]
    fn a_session_without_a_connection_waits_for_one_until_its_end() {
        let mut sessions = sessions();
        sessions.release(1, FIRST);
        assert_eq!(sessions.resume(1, &TERMS.password, 6_000, SECOND, Moment(7_000)), Ok(None));
        sessions.release(1, SECOND);
        assert_eq!(sessions.expire(Moment(20_000)), [(1, None)]);
        assert_eq!(sessions.len(), 0);
    }

    #[test]
    fn a_closed_session_does_not_expire() {
        let mut sessions = sessions();
        sessions.close(1);
        assert_eq!(sessions.expire(Moment(u64::MAX)), []);
    }
}
