use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use snafu::{ResultExt, Snafu};
use tokio::time::{Instant, Sleep};
use tracing::{debug, info};
use wire::ApiKey;

use super::limits::ConnectionPermit;
use super::memory::{RequestMemory, Reservation};
use super::output::Output;
use crate::api::{Answer, ConnectionContext, DispatchError, Dispatched, ResponseFrame, Services};
use crate::observe::{self, Pace};
use crate::runtime::net::Stream;
use crate::runtime::task::{DrainGuard, Shutdown};

/// Input that is read at once while a socket is idle; small, as ten thousand sockets may be idle.
const READ_BYTES: usize = 64 * 1024;
/// What is kept of a frame that has only begun, when no more of it is there.
const TRICKLE_BYTES: usize = 4 * 1024;
/// A frame up to this size gets its whole buffer once its first part is there.
const EAGER_FRAME_BYTES: usize = 1024 * 1024;
/// Requests of one connection that wait for replication while later ones are appended (produce only).
const IN_FLIGHT_MAX: usize = 64;
/// Frames handled before other connections get their turn.
const FRAMES_PER_TURN: usize = 32;
/// Output that may be waiting while further requests are still handled.
const OUTPUT_BYTES_MAX: u64 = 1024 * 1024;
/// A half-read frame that gets no request memory for so long gives up what it holds; so does one that takes longer to
/// arrive while others get none.
const STARVED_AFTER: Duration = Duration::from_secs(30);

/// What a connection may do, from the settings.
#[derive(Clone, Debug)]
pub(super) struct ConnectionOptions {
    /// `socket.request.max.bytes`.
    pub(super) request_bytes_max: usize,
    /// `connections.max.idle.ms`; `None` = never closed for idleness.
    pub(super) idle_max: Option<Duration>,
    /// Lets some of the lines through about what is no request.
    pub(super) complaints: Arc<Pace>,
}

/// Why a connection ended.
#[derive(Debug, Snafu)]
pub(super) enum Closed {
    #[snafu(display("the client closed it"))]
    ByPeer,
    #[snafu(display("idle for too long"))]
    Idle,
    #[snafu(display("the broker stops"))]
    Shutdown,
    /// The answer to a request is a closed connection: acks=0 with an error.
    #[snafu(display("a request is answered so"))]
    ByAnswer,
    #[snafu(display("a frame announces {size} bytes"))]
    FrameSize { size: i32 },
    #[snafu(display("{source}"))]
    BadRequest { source: DispatchError },
    /// No request memory for too long in the middle of a frame.
    #[snafu(display("no memory for the rest of a request"))]
    Starved,
    /// A large frame that arrives slowly, while others wait for the memory that it has.
    #[snafu(display("a large request arrives too slowly while request memory is short"))]
    TooSlow,
    #[snafu(display("{source}"))]
    Failed { source: io::Error },
}

impl Closed {
    fn reason(&self) -> observe::Closed {
        match self {
            Closed::ByPeer => observe::Closed::ByPeer,
            Closed::Idle => observe::Closed::Idle,
            Closed::Shutdown => observe::Closed::Shutdown,
            Closed::ByAnswer => observe::Closed::ByAnswer,
            Closed::FrameSize { .. } => observe::Closed::RequestTooLarge,
            Closed::BadRequest { .. } => observe::Closed::InvalidRequest,
            Closed::Starved | Closed::TooSlow => observe::Closed::OutOfMemory,
            Closed::Failed { .. } => observe::Closed::Error,
        }
    }
}

/// One client's socket and the requests of it that are being worked on.
///
/// Frames are handled in the order of their arrival and answered in that order. A request that waits (a long
/// poll, a rebalance) stops the next from being started, as Kafka does; only produce requests overtake the
/// *waiting* of earlier produce requests, so that acks=all is not bound by one round trip a request.
pub(super) struct Connection {
    stream: Stream,
    context: Arc<ConnectionContext>,
    services: Arc<Services>,
    options: ConnectionOptions,
    /// Resolves when the broker stops; not polled again after that.
    shutdown_requested: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_stopping: bool,
    _drain: DrainGuard,
    _permit: ConnectionPermit,

    input: BytesMut,
    /// Covers the frame that is being read.
    reservation: Reservation,
    in_flight: VecDeque<InFlight>,
    output: Output,

    is_input_closed: bool,
    is_closing: bool,
    last_active: Instant,
    deadline: Pin<Box<Sleep>>,
    starved_since: Option<Instant>,
    /// Since when more of one frame is awaited than an idle connection may have.
    large_since: Option<Instant>,
    muted_until: Option<Pin<Box<Sleep>>>,
}

struct InFlight {
    answer: Pin<Box<dyn Future<Output = Answer> + Send>>,
    is_pipelined: bool,
    /// It has done nothing before the broker is open to clients.
    is_gated: bool,
    request: Observed,
    /// Request memory is held until the answer is made.
    _reservation: Reservation,
}

/// What is counted of a request when its answer is handed to the socket.
#[derive(Clone, Copy)]
struct Observed {
    api: i16,
    size_bytes: usize,
    began: std::time::Instant,
}

impl Connection {
    pub(super) fn new(
        stream: Stream,
        context: Arc<ConnectionContext>,
        services: Arc<Services>,
        options: ConnectionOptions,
        memory: &Arc<RequestMemory>,
        shutdown: &Shutdown,
        permit: ConnectionPermit,
    ) -> Connection {
        let now = Instant::now();
        let idle_max = options.idle_max.unwrap_or(STARVED_AFTER);
        Connection {
            stream,
            context,
            services,
            shutdown_requested: shutdown.requested(),
            is_stopping: false,
            _drain: shutdown.drain_guard(),
            _permit: permit,
            input: BytesMut::new(),
            reservation: Reservation::empty(memory),
            in_flight: VecDeque::new(),
            output: Output::default(),
            is_input_closed: false,
            is_closing: false,
            last_active: now,
            deadline: Box::pin(tokio::time::sleep_until(now + idle_max)),
            starved_since: None,
            large_since: None,
            muted_until: None,
            options,
        }
    }

    /// Serves the client until one side ends it.
    pub(super) async fn run(mut self) {
        let closed = std::future::poll_fn(|context| self.poll(context)).await;
        self.services.metrics.connections_closed.at(closed.reason()).increment();
        let client = self.context.peer;
        let listener = &self.context.listener;
        debug!(%listener, %client, reason = %closed, "connection closed");
        // An operator who wonders who speaks HTTP to this port should not need the debug level.
        if matches!(closed, Closed::FrameSize { .. } | Closed::BadRequest { .. })
            && let Some(held_back) = self.options.complaints.admit(std::time::Instant::now())
        {
            info!(%listener, %client, reason = %closed, held_back, "a client sent what is no request");
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Closed> {
        for _ in 0..FRAMES_PER_TURN {
            match self.poll_turn(context) {
                Ok(Progress::Made) => {}
                Ok(Progress::Waiting) => return self.poll_deadline(context),
                Err(closed) => return Poll::Ready(closed),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// One pass: collect answers, send, start the next frame, read.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Result<Progress, Closed> {
        let has_answered = self.poll_answers(context)?;
        let started = self.start_frames(context)?;
        if self.is_input_closed && self.waits_in_vain() {
            return Err(Closed::ByPeer);
        }
        if let Poll::Ready(sent) = self.output.poll_flush(&self.stream, context) {
            sent.context(FailedSnafu)?;
            if self.in_flight.is_empty() && (self.is_closing || self.is_input_closed && !started) {
                return Err(if self.is_closing { Closed::ByAnswer } else { Closed::ByPeer });
            }
        }
        if has_answered || started {
            self.last_active = Instant::now();
            return Ok(Progress::Made);
        }
        self.is_stopping = self.is_stopping || self.shutdown_requested.as_mut().poll(context).is_ready();
        if self.is_stopping && self.in_flight.is_empty() && self.output.is_empty() {
            return Err(Closed::Shutdown);
        }
        self.poll_read(context)
    }

    /// Whether all that the client has asked for and is not there to hear can be forgotten: fetches, and what has not
    /// begun yet. Such waits may be long, and hold memory.
    fn waits_in_vain(&self) -> bool {
        let is_open = self.services.gate.is_open();
        let is_idle = |waiting: &InFlight| {
            waiting.request.api == ApiKey::Fetch as i16 || (waiting.is_gated && !is_open)
        };
        !self.in_flight.is_empty() && self.in_flight.iter().all(is_idle)
    }

    /// Moves finished answers to the output, oldest first.
    fn poll_answers(&mut self, context: &mut Context<'_>) -> Result<bool, Closed> {
        let mut has_answered = false;
        while let Some(oldest) = self.in_flight.front_mut() {
            let Poll::Ready(answer) = oldest.answer.as_mut().poll(context) else { break };
            let request = oldest.request;
            self.in_flight.pop_front();
            has_answered = true;
            match answer {
                Answer::Response(frame) => self.answer(request, frame),
                Answer::Nothing => self.observe(request, 0),
                Answer::Close => {
                    self.is_closing = true;
                    self.in_flight.clear();
                }
            }
        }
        Ok(has_answered)
    }

    /// Starts requests that have arrived whole, as far as their order and the output allow.
    fn start_frames(&mut self, context: &mut Context<'_>) -> Result<bool, Closed> {
        let mut started = false;
        if self.is_muted(context) {
            return Ok(false);
        }
        while !self.is_closing && !self.is_stopping && self.may_start() {
            let Some(frame) = self.next_frame()? else { break };
            let (size_bytes, began) = (frame.len(), std::time::Instant::now());
            let dispatched = crate::api::dispatch(&self.services, &self.context, frame);
            let Dispatched { mut answer, is_pipelined, is_gated, throttle, api } =
                dispatched.context(BadRequestSnafu)?;
            let request = Observed { api: api as i16, size_bytes, began };
            started = true;
            if !throttle.is_zero() {
                self.muted_until = Some(Box::pin(tokio::time::sleep(throttle)));
            }
            let reservation = self.reservation.split(size_bytes as u64 + 4);
            // Most requests are answered here and now. A later one is polled once as well: a produce appends
            // before it waits.
            match answer.as_mut().poll(context) {
                Poll::Ready(Answer::Response(frame)) if self.in_flight.is_empty() => {
                    self.answer(request, frame)
                }
                Poll::Ready(Answer::Nothing) if self.in_flight.is_empty() => self.observe(request, 0),
                Poll::Ready(ready) => {
                    let answer = Box::pin(std::future::ready(ready));
                    self.in_flight.push_back(InFlight {
                        answer,
                        is_pipelined,
                        is_gated,
                        request,
                        _reservation: reservation,
                    });
                    self.poll_answers(context)?;
                }
                Poll::Pending => {
                    self.in_flight.push_back(InFlight {
                        answer,
                        is_pipelined,
                        is_gated,
                        request,
                        _reservation: reservation,
                    });
                }
            }
            if self.is_muted(context) {
                break;
            }
        }
        Ok(started)
    }

    fn answer(&mut self, request: Observed, frame: ResponseFrame) {
        self.observe(request, frame.size_bytes());
        for &(code, count) in frame.errors() {
            self.services.metrics.errors.at(code.into()).add(u64::from(count));
        }
        self.output.push(frame);
    }

    fn observe(&self, request: Observed, response_bytes: u64) {
        let metrics = &self.services.metrics;
        let api = || request.api.into();
        metrics.requests.at(api()).increment();
        metrics.request_bytes.at(api()).add(request.size_bytes as u64);
        metrics.response_bytes.at(api()).add(response_bytes);
        metrics.request_duration.at(api()).observe(request.began.elapsed());
    }

    /// Whether a quota keeps this connection from being served for a while.
    fn is_muted(&mut self, context: &mut Context<'_>) -> bool {
        let Some(muted_until) = &mut self.muted_until else { return false };
        if muted_until.as_mut().poll(context).is_pending() {
            return true;
        }
        self.muted_until = None;
        false
    }

    /// Whether the next request may begin before the earlier ones are answered and sent.
    fn may_start(&self) -> bool {
        if self.output.size_bytes() >= OUTPUT_BYTES_MAX {
            return false;
        }
        match self.in_flight.back() {
            None => true,
            Some(latest) => {
                latest.is_pipelined
                    && self.in_flight.len() < IN_FLIGHT_MAX
                    && crate::api::is_pipelined_frame(self.input.get(4..6).unwrap_or_default())
            }
        }
    }

    /// The announced size of the frame at the front of the input.
    fn frame_size(&self) -> Result<Option<usize>, Closed> {
        let Some(prefix) = self.input.first_chunk::<4>() else {
            return Ok(None);
        };
        let size = i32::from_be_bytes(*prefix);
        match usize::try_from(size) {
            Ok(bytes) if bytes <= self.options.request_bytes_max => Ok(Some(bytes)),
            _ => Err(Closed::FrameSize { size }),
        }
    }

    /// Splits the next whole frame off the input, without its size.
    fn next_frame(&mut self) -> Result<Option<Bytes>, Closed> {
        let Some(size) = self.frame_size()? else {
            return Ok(None);
        };
        if self.input.len() < 4 + size {
            return Ok(None);
        }
        self.large_since = None;
        let frame = self.input.split_to(4 + size);
        // Of a small request that waits, nobody should keep the buffer that it came in.
        let frame = if size <= TRICKLE_BYTES { Bytes::copy_from_slice(&frame) } else { frame.freeze() };
        Ok(Some(frame.slice(4..)))
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Result<Progress, Closed> {
        if self.is_input_closed
            || self.muted_until.is_some()
            || self.is_closing
            || self.is_stopping
            || !self.output.is_empty()
        {
            return Ok(Progress::Waiting);
        }
        if !self.in_flight.is_empty() && self.input.len() >= READ_BYTES {
            return Ok(Progress::Waiting);
        }
        match self.stream.poll_read_ready(context) {
            Poll::Ready(ready) => ready.context(FailedSnafu)?,
            Poll::Pending => {
                self.shed_idle_buffer();
                return Ok(Progress::Waiting);
            }
        }
        if !self.make_room(context)? {
            return Ok(Progress::Waiting);
        }
        match self.stream.try_read_buf(&mut self.input) {
            Ok(0) => {
                self.is_input_closed = true;
                Ok(Progress::Made)
            }
            Ok(_) => {
                self.last_active = Instant::now();
                Ok(Progress::Made)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Progress::Made),
            Err(source) => Err(Closed::Failed { source }),
        }
    }

    /// Reserves memory for more input. `false`: the broker's request memory is used up, wait for it.
    fn make_room(&mut self, context: &mut Context<'_>) -> Result<bool, Closed> {
        let received = self.input.len();
        let wanted = match self.frame_size()? {
            Some(size) if received < 4 + size => {
                // Whoever announces much and sends nothing gets no more than an idle connection.
                let step = match received {
                    ..READ_BYTES => READ_BYTES,
                    _ => EAGER_FRAME_BYTES.max(received.saturating_mul(2)),
                };
                (4 + size).min(step).max(received + 1)
            }
            _ => READ_BYTES.max(received + 1),
        };
        if !self.reservation.raise_to(wanted as u64, context.waker()) {
            if self.starved_since.is_none() {
                let now = Instant::now();
                self.starved_since = Some(now);
                self.deadline.as_mut().reset(now + STARVED_AFTER);
            }
            return Ok(false);
        }
        self.starved_since = None;
        if wanted > READ_BYTES && self.large_since.is_none() {
            let now = Instant::now();
            self.large_since = Some(now);
            let next = self.deadline.deadline().min(now + STARVED_AFTER);
            self.deadline.as_mut().reset(next);
        }
        if self.input.capacity() < wanted {
            self.input.reserve(wanted - received);
        } else if self.input.capacity() == received {
            self.input.reserve(READ_BYTES);
        }
        Ok(true)
    }

    /// An idle connection keeps no input buffer, and one that has sent little of a frame keeps little more than that:
    /// thousands that trickle would otherwise hold the memory of all.
    fn shed_idle_buffer(&mut self) {
        let received = self.input.len();
        if self.input.capacity() == 0 || received > TRICKLE_BYTES {
            return;
        }
        if received == 0 {
            self.input = BytesMut::new();
            self.reservation.lower_to(0);
        } else if self.reservation.bytes() > TRICKLE_BYTES as u64 {
            let mut kept = BytesMut::with_capacity(received);
            kept.extend_from_slice(&self.input);
            self.input = kept;
            self.reservation.lower_to(received as u64);
        }
    }

    /// Ready when the connection has been idle or starved for too long.
    fn poll_deadline(&mut self, context: &mut Context<'_>) -> Poll<Closed> {
        loop {
            ready!(self.deadline.as_mut().poll(context));
            let now = Instant::now();
            let is_mid_frame = !self.input.is_empty();
            match self.starved_since {
                Some(since) if is_mid_frame && now >= since + STARVED_AFTER => {
                    return Poll::Ready(Closed::Starved);
                }
                _ => {}
            }
            let is_slow = self.large_since.is_some_and(|since| now >= since + STARVED_AFTER);
            if is_slow && self.reservation.is_wanted() {
                return Poll::Ready(Closed::TooSlow);
            }
            let idle_until = self.options.idle_max.map(|idle_max| self.last_active + idle_max);
            let is_at_work = !self.in_flight.is_empty();
            match idle_until {
                Some(until) if now >= until && !is_at_work => return Poll::Ready(Closed::Idle),
                Some(until) if now < until => {
                    let mut next = self.starved_since.map_or(until, |since| until.min(since + STARVED_AFTER));
                    if let Some(since) = self.large_since {
                        next = next.min(if is_slow { now + STARVED_AFTER } else { since + STARVED_AFTER });
                    }
                    self.deadline.as_mut().reset(next.max(now + Duration::from_millis(10)));
                }
                _ => self.deadline.as_mut().reset(now + STARVED_AFTER),
            }
        }
    }
}

/// Whether a pass over the connection moved something.
enum Progress {
    Made,
    Waiting,
}
