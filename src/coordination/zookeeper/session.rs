use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use super::peer::{Link, LinkError, Peer, malformed, open_frame, take_frame};
use super::protocol::{self, Answer, AnswerKind, Encoded};
use super::watch_table::{WatchTable, WatchTarget};
use crate::coordination::codes;
use crate::coordination::jute::Reader;
use crate::coordination::store::{SessionState, StoreError, Watcher};

/// The task that owns a session: its connection, its watches, its calls in order.
///
/// A lost connection answers every call under way with "outcome unknown", and the session goes on with another
/// server, for as long as the ensemble keeps it. Only a server says that it has expired.
pub(super) struct SessionTask {
    pub peer: Peer,
    pub status: Arc<Status>,
    pub calls: mpsc::UnboundedReceiver<Call>,
}

/// What the ensemble gave. Who knows both can take the session over.
pub(super) struct Opened {
    pub session: i64,
    pub password: Bytes,
}

/// How the session stands, for those who ask.
#[derive(Debug)]
pub(super) struct Status(AtomicU8);

/// One call of a session.
#[derive(Debug)]
pub(super) struct Call {
    pub encoded: Encoded,
    /// What to watch when the call succeeds.
    pub watch: Option<Watch>,
    pub reply: oneshot::Sender<Reply>,
}

#[derive(Debug)]
pub(super) struct Watch {
    /// `None` = the data, or the appearance of a node that is not there.
    pub target: Option<WatchTarget>,
    pub path: String,
}

pub(super) type Reply = Result<(Answer, Option<Watcher>), CallError>;

#[derive(Debug)]
pub(super) enum CallError {
    /// The server's code.
    Code(i32),
    Store(StoreError),
}

enum Ended {
    /// By the caller that waits for this answer.
    Closed(oneshot::Sender<Reply>),
    /// Nobody can make a call any more.
    Abandoned,
    Expired,
    Lost(String),
}

struct HasExpired;

const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Bytes that wait for the socket before further calls are taken.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;

impl Status {
    pub fn new() -> Status {
        Status(AtomicU8::new(0))
    }

    pub fn state(&self) -> SessionState {
        match self.0.load(Ordering::Acquire) {
            0 => SessionState::Disconnected,
            1 => SessionState::Connected,
            _ => SessionState::Expired,
        }
    }

    fn set(&self, state: SessionState) {
        let value = match state {
            SessionState::Disconnected => 0,
            SessionState::Connected => 1,
            SessionState::Expired => 2,
        };
        self.0.store(value, Ordering::Release);
    }
}

impl SessionTask {
    /// Opens the session, tells its id, and serves it to its end.
    ///
    /// Opening gives up after `zookeeper.connection.timeout.ms`; later the ensemble is waited for without end.
    pub async fn run(mut self, opened: oneshot::Sender<Result<Opened, StoreError>>) {
        let link = match self.open().await {
            Ok(link) => link,
            Err(error) => {
                self.status.set(SessionState::Expired);
                let _ = opened.send(Err(error));
                return;
            }
        };
        self.status.set(SessionState::Connected);
        info!(
            server = link.server,
            session = format_args!("{:#x}", self.peer.session),
            timeout_ms = self.peer.session_timeout.as_millis() as u64,
            "opened a session with ZooKeeper"
        );
        let _ = opened.send(Ok(Opened { session: self.peer.session, password: self.peer.password.clone() }));
        let mut watches = WatchTable::default();
        let closing = self.serve(link, &mut watches).await;
        self.status.set(SessionState::Expired);
        watches.expire();
        if let Some(reply) = closing {
            let _ = reply.send(Ok((Answer::Nothing, None)));
        }
    }

    async fn open(&mut self) -> Result<Link, StoreError> {
        let limit = self.peer.options().connection_timeout;
        let deadline = Instant::now() + limit;
        let (mut pause, mut refusals) = (PAUSE_MIN, 0);
        loop {
            let error = match tokio::time::timeout_at(deadline, self.peer.link()).await {
                Ok(Ok(link)) => return Ok(link),
                Ok(Err(LinkError::Expired)) => return Err(StoreError::SessionExpired),
                Ok(Err(error @ LinkError::NotAuthenticated { .. })) => {
                    refusals += 1;
                    // Every server has been asked, and another attempt would hear the same.
                    if refusals == self.peer.options().connect.servers.len() {
                        return Err(StoreError::Failed { reason: error.to_string() });
                    }
                    error.to_string()
                }
                Ok(Err(error @ LinkError::Unreachable { .. })) => error.to_string(),
                Err(_) => "no answer".to_owned(),
            };
            if Instant::now() + pause >= deadline {
                let reason = format!("no session with ZooKeeper within {} ms: {error}", limit.as_millis());
                return Err(StoreError::Failed { reason });
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// To the end of the session; gives the caller that closed it.
    async fn serve(&mut self, mut link: Link, watches: &mut WatchTable) -> Option<oneshot::Sender<Reply>> {
        loop {
            let server = link.server.clone();
            let mut connection = Connection::new(&mut self.peer, watches);
            let ended = connection.serve(link, &mut self.calls).await;
            let reason = match ended {
                Ended::Closed(reply) => return Some(reply),
                Ended::Abandoned => return None,
                Ended::Expired => break,
                Ended::Lost(reason) => reason,
            };
            self.status.set(SessionState::Disconnected);
            if connection.give_up(&reason) {
                return None;
            }
            warn!(server, reason, "lost the connection to ZooKeeper");
            match self.link_again().await {
                Some(Ok(next)) => link = next,
                Some(Err(HasExpired)) => break,
                None => return None,
            }
            self.status.set(SessionState::Connected);
            info!(server = link.server, "the session with ZooKeeper goes on");
        }
        warn!(session = format_args!("{:#x}", self.peer.session), "the session with ZooKeeper has expired");
        None
    }

    /// Tries one server after the other. Calls made meanwhile are answered at once. `None` = the session is
    /// wanted no longer.
    async fn link_again(&mut self) -> Option<Result<Link, HasExpired>> {
        let SessionTask { peer, calls, .. } = self;
        let linked = async {
            let mut pause = PAUSE_MIN;
            loop {
                match peer.link().await {
                    Ok(link) => return Ok(link),
                    Err(LinkError::Expired) => return Err(HasExpired),
                    // Somebody may be changing certificates or passwords, one server after the other.
                    Err(error @ LinkError::NotAuthenticated { .. }) => {
                        warn!(%error, "cannot authenticate with ZooKeeper");
                    }
                    Err(error @ LinkError::Unreachable { .. }) => debug!(%error, "cannot reach ZooKeeper"),
                }
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        };
        tokio::pin!(linked);
        loop {
            tokio::select! {
                linked = &mut linked => return Some(linked),
                call = calls.recv() => match call {
                    None => return None,
                    Some(call) => {
                        let is_close = call.encoded.op == codes::OP_CLOSE;
                        let _ = call.reply.send(Err(CallError::Store(connection_lost("not connected"))));
                        // The ensemble ends the session after its timeout.
                        if is_close {
                            return None;
                        }
                    }
                },
            }
        }
    }
}

fn connection_lost(reason: &str) -> StoreError {
    StoreError::OutcomeUnknown { reason: format!("the connection to ZooKeeper was lost: {reason}") }
}

/// A call that was sent.
struct Pending {
    xid: i32,
    kind: AnswerKind,
    watch: Option<Watch>,
    reply: oneshot::Sender<Reply>,
    is_close: bool,
}

struct Connection<'a> {
    peer: &'a mut Peer,
    watches: &'a mut WatchTable,
    next_xid: i32,
    pending: VecDeque<Pending>,
    output: BytesMut,
    /// TLS may hold back what was written.
    is_flushed: bool,
    heard: Instant,
    sent: Instant,
}

impl<'a> Connection<'a> {
    fn new(peer: &'a mut Peer, watches: &'a mut WatchTable) -> Connection<'a> {
        let now = Instant::now();
        let output = BytesMut::new();
        Connection {
            peer,
            watches,
            next_xid: 1,
            pending: VecDeque::new(),
            output,
            is_flushed: true,
            heard: now,
            sent: now,
        }
    }

    async fn serve(&mut self, link: Link, calls: &mut mpsc::UnboundedReceiver<Call>) -> Ended {
        let Link { halves: (mut reader, mut writer), mut input, .. } = link;
        self.begin();
        // Whoever is silent for two thirds of the timeout is gone; a question every third keeps both awake.
        let silence_max = self.peer.session_timeout * 2 / 3;
        let ping_after = self.peer.session_timeout / 3;
        let in_flight_max = self.peer.options().in_flight_max;
        loop {
            let has_room = self.has_room(in_flight_max);
            let wake = (self.heard + silence_max).min(self.sent + ping_after);
            tokio::select! {
                read = reader.read_buf(&mut input) => match read {
                    Ok(0) => return Ended::Lost("closed by the server".to_owned()),
                    Ok(_) => match self.read_frames(&mut input) {
                        Ok(None) => {}
                        Ok(Some(ended)) => return ended,
                        Err(error) => return Ended::Lost(error.to_string()),
                    },
                    Err(error) => return Ended::Lost(error.to_string()),
                },
                written = write_some(&mut writer, &mut self.output, &mut self.is_flushed),
                    if !self.output.is_empty() || !self.is_flushed =>
                {
                    if let Err(error) = written {
                        return Ended::Lost(error.to_string());
                    }
                }
                call = calls.recv(), if has_room => match call {
                    Some(call) => {
                        self.send(call);
                        // What waits goes out with one write.
                        while self.has_room(in_flight_max)
                            && let Ok(call) = calls.try_recv()
                        {
                            self.send(call);
                        }
                    }
                    None => return Ended::Abandoned,
                },
                () = sleep_until(wake) => {
                    if self.heard.elapsed() >= silence_max {
                        return Ended::Lost(format!("silent for {} ms", silence_max.as_millis()));
                    }
                    self.put(&protocol::ping());
                }
            }
        }
    }

    fn has_room(&self, in_flight_max: usize) -> bool {
        self.pending.len() < in_flight_max && self.output.len() < OUTPUT_BYTES_MAX
    }

    /// What a connection begins with: who we are, and what we watch.
    fn begin(&mut self) {
        let greetings: Vec<_> =
            self.peer.options().auth.iter().map(|(scheme, id)| protocol::auth(scheme, id)).collect();
        greetings.iter().for_each(|frame| self.put(frame));
        let chroot = self.peer.options().connect.chroot.clone();
        for frame in self.watches.set_again(&chroot, self.peer.seen_zxid) {
            self.put(&frame);
        }
    }

    fn send(&mut self, call: Call) {
        let Call { encoded, watch, reply } = call;
        let xid = self.next_xid;
        self.next_xid = self.next_xid.checked_add(1).unwrap_or(1);
        self.put(&protocol::frame(xid, encoded.op, &encoded.body));
        let is_close = encoded.op == codes::OP_CLOSE;
        self.pending.push_back(Pending { xid, kind: encoded.kind, watch, reply, is_close });
    }

    fn put(&mut self, frame: &[u8]) {
        self.output.extend_from_slice(frame);
        self.sent = Instant::now();
    }

    fn read_frames(&mut self, input: &mut BytesMut) -> std::io::Result<Option<Ended>> {
        self.heard = Instant::now();
        while let Some(frame) = take_frame(input)? {
            let (header, mut reader) = open_frame(frame)?;
            if header.zxid > 0 {
                self.peer.seen_zxid = header.zxid;
            }
            match header.xid {
                codes::XID_PING | codes::XID_SET_WATCHES => {}
                codes::XID_AUTH if header.code == 0 => {}
                codes::XID_AUTH => return Err(malformed("ZooKeeper refuses the identity")),
                codes::XID_EVENT => {
                    let (kind, path) = protocol::decode_event(&mut reader).map_err(malformed)?;
                    if let Some(path) = protocol::above(&self.peer.options().connect.chroot, &path) {
                        self.watches.fire(kind, path);
                    }
                }
                xid => {
                    if let Some(ended) = self.answer(xid, header.code, &mut reader)? {
                        return Ok(Some(ended));
                    }
                }
            }
        }
        Ok(None)
    }

    fn answer(&mut self, xid: i32, code: i32, reader: &mut Reader) -> std::io::Result<Option<Ended>> {
        let Some(pending) = self.pending.pop_front().filter(|pending| pending.xid == xid) else {
            return Err(malformed("an answer to no call"));
        };
        let Pending { kind, watch, reply, is_close, .. } = pending;
        let chroot = &self.peer.options().connect.chroot;
        let answered = match code {
            0 => protocol::decode_answer(kind, chroot, reader).map_err(malformed)?,
            codes::CODE_NO_NODE if kind == AnswerKind::Exists => Answer::Absent,
            codes::CODE_SESSION_EXPIRED => {
                let _ = reply.send(Err(CallError::Code(code)));
                return Ok(Some(Ended::Expired));
            }
            codes::CODE_SESSION_MOVED => {
                let _ = reply.send(Err(CallError::Store(connection_lost("the session has moved"))));
                return Ok(Some(Ended::Lost("the session has moved".to_owned())));
            }
            code => {
                let _ = reply.send(Err(CallError::Code(code)));
                return Ok(None);
            }
        };
        let watcher = watch.map(|Watch { target, path }| {
            let seen =
                if matches!(answered, Answer::Absent) { WatchTarget::Absent } else { WatchTarget::Data };
            self.watches.add(target.unwrap_or(seen), &path)
        });
        if is_close {
            // Nothing can be called any more when the answer is seen.
            return Ok(Some(Ended::Closed(reply)));
        }
        // A caller that went away wanted the effect alone.
        let _ = reply.send(Ok((answered, watcher)));
        Ok(None)
    }

    /// Answers the calls under way: nobody knows what became of them. True when one of them closes the session.
    fn give_up(self, reason: &str) -> bool {
        let mut is_closing = false;
        for pending in self.pending {
            is_closing |= pending.is_close;
            let _ = pending.reply.send(Err(CallError::Store(connection_lost(reason))));
        }
        is_closing
    }
}

/// Writes what there is, or sees it off. May be dropped at any moment.
async fn write_some(
    writer: &mut (impl AsyncWrite + Unpin),
    output: &mut BytesMut,
    is_flushed: &mut bool,
) -> std::io::Result<()> {
    if output.is_empty() {
        writer.flush().await?;
        *is_flushed = true;
    } else {
        *is_flushed = false;
        writer.write_buf(output).await?;
    }
    Ok(())
}
