use std::collections::VecDeque;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::{Network, Source};
use crate::runtime::Random;

/// A network of named hosts in memory, for simulations on one thread.
///
/// Bytes of one connection arrive in order, each part after a delay that the seed decides; connections overtake each
/// other. A direction between two hosts can be blocked, which is how packets are lost: what is under way waits, as TCP
/// sends it again, until the block is lifted or somebody's patience ends. Clones share the network.
#[derive(Clone)]
pub struct MemoryNetwork {
    shared: Arc<Mutex<Shared>>,
    /// Somebody listens, or a block was lifted.
    changed: Arc<Notify>,
}

/// How long bytes travel, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Delays {
    pub min_us: u64,
    pub max_us: u64,
    /// One part in so many takes up to `slow_max_us`; 0 = none.
    pub slow_one_in: u64,
    pub slow_max_us: u64,
    /// With one part in so many the connection breaks, and the part arrives or not; 0 = never.
    pub break_one_in: u64,
}

/// Unread bytes of one direction above which a writer waits, as full socket buffers make it.
const UNREAD_BYTES_MAX: usize = 256 * 1024;
const FIRST_CLIENT_PORT: u16 = 32_768;

struct Shared {
    random: Random,
    delays: Delays,
    hosts: Vec<String>,
    /// Directions, by positions in `hosts`.
    blocked: BTreeSet<(usize, usize)>,
    /// Hosts without power: they answer nothing, not even that they are gone.
    silent: BTreeSet<usize>,
    listeners: BTreeMap<(usize, u16), Listening>,
    next_port: u16,
    pipes: BTreeMap<u64, Pipe>,
    next_pipe: u64,
    digest: u64,
}

/// `None` = taken, and refused until it is opened.
type Listening = Option<mpsc::UnboundedSender<(MemoryStream, SocketAddr)>>;

/// One direction of a connection. Removed from the table when both ends are dropped.
struct Pipe {
    from: usize,
    to: usize,
    /// The pipe of the other direction.
    other: u64,
    parts: VecDeque<(Instant, Part)>,
    unread_bytes: usize,
    last_arrival: Instant,
    is_reset: bool,
    has_reader: bool,
    has_writer: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    arrival: Option<Pin<Box<Sleep>>>,
}

enum Part {
    Data(Bytes),
    End,
}

impl MemoryNetwork {
    pub fn new(random: Random, delays: Delays) -> MemoryNetwork {
        let shared = Shared {
            random,
            delays,
            hosts: Vec::new(),
            blocked: BTreeSet::new(),
            silent: BTreeSet::new(),
            listeners: BTreeMap::new(),
            next_port: FIRST_CLIENT_PORT,
            pipes: BTreeMap::new(),
            next_pipe: 0,
            digest: 0,
        };
        MemoryNetwork { shared: Arc::new(Mutex::new(shared)), changed: Arc::default() }
    }

    /// The network as the host of this name has it.
    pub fn host(&self, name: &str) -> Network {
        let number = self.shared.lock().host(name);
        Network(Source::Memory(MemoryHost { network: self.clone(), name: name.to_owned(), number }))
    }

    pub fn set_delays(&self, delays: Delays) {
        self.shared.lock().delays = delays;
    }

    /// Nothing gets from one host to the other.
    pub fn block(&self, from: &str, to: &str) {
        let mut shared = self.shared.lock();
        let direction = (shared.host(from), shared.host(to));
        shared.blocked.insert(direction);
    }

    pub fn unblock(&self, from: &str, to: &str) {
        let mut shared = self.shared.lock();
        let direction = (shared.host(from), shared.host(to));
        shared.blocked.remove(&direction);
        shared.wake_all();
        drop(shared);
        self.changed.notify_waiters();
    }

    /// Whether something sent by one host can reach the other.
    pub fn reaches(&self, from: &str, to: &str) -> bool {
        let mut shared = self.shared.lock();
        let direction = (shared.host(from), shared.host(to));
        !shared.is_blocked(direction)
    }

    /// Breaks every connection of a host, as the death of its process does.
    pub fn reset_host(&self, name: &str) {
        let mut shared = self.shared.lock();
        let host = shared.host(name);
        shared.silent.remove(&host);
        shared.listeners.retain(|(listener, _), _| *listener != host);
        shared.reset(|pipe| pipe.from == host || pipe.to == host);
        drop(shared);
        self.changed.notify_waiters();
    }

    /// Takes a host off the network without a word, as a loss of power does, until it is [reset](Self::reset_host).
    pub fn silence_host(&self, name: &str) {
        let mut shared = self.shared.lock();
        let host = shared.host(name);
        shared.silent.insert(host);
        shared.listeners.retain(|(listener, _), _| *listener != host);
    }

    /// Breaks every connection between two hosts.
    pub fn reset_between(&self, one: &str, other: &str) {
        let mut shared = self.shared.lock();
        let (one, other) = (shared.host(one), shared.host(other));
        shared.reset(|pipe| (pipe.from, pipe.to) == (one, other) || (pipe.from, pipe.to) == (other, one));
    }

    /// Of all that was sent so far and when: equal in two runs only if they went the same way.
    pub fn digest(&self) -> u64 {
        self.shared.lock().digest
    }
}

impl Shared {
    fn host(&mut self, name: &str) -> usize {
        match self.hosts.iter().position(|host| host == name) {
            Some(number) => number,
            None => {
                self.hosts.push(name.to_owned());
                self.hosts.len() - 1
            }
        }
    }

    fn is_blocked(&self, (from, to): (usize, usize)) -> bool {
        self.blocked.contains(&(from, to)) || self.silent.contains(&from) || self.silent.contains(&to)
    }

    fn delay(&self) -> Duration {
        let Delays { min_us, max_us, slow_one_in, slow_max_us, .. } = self.delays;
        let is_slow = slow_one_in > 0 && self.random.number(0..slow_one_in) == 0;
        let max_us = if is_slow { slow_max_us } else { max_us };
        Duration::from_micros(self.random.number(min_us..=max_us.max(min_us)))
    }

    fn wake_all(&mut self) {
        self.pipes.values_mut().for_each(Pipe::wake);
    }

    fn reset(&mut self, is_meant: impl Fn(&Pipe) -> bool) {
        for pipe in self.pipes.values_mut().filter(|pipe| is_meant(pipe)) {
            pipe.reset();
        }
    }

    /// Makes both directions of a connection; the first is the connecting side's.
    fn join(&mut self, network: &MemoryNetwork, from: usize, to: usize) -> (MemoryStream, MemoryStream) {
        let (forth, back) = (self.next_pipe, self.next_pipe + 1);
        self.next_pipe += 2;
        self.pipes.insert(forth, Pipe::new(from, to, back));
        self.pipes.insert(back, Pipe::new(to, from, forth));
        let stream = |incoming, outgoing| MemoryStream {
            incoming: MemoryReader { network: network.clone(), pipe: incoming },
            outgoing: MemoryWriter { network: network.clone(), pipe: outgoing },
        };
        (stream(back, forth), stream(forth, back))
    }

    fn forget_if_unused(&mut self, pipe: u64) {
        if self.pipes.get(&pipe).is_some_and(|pipe| !pipe.has_reader && !pipe.has_writer) {
            self.pipes.remove(&pipe);
        }
    }

    fn write(&mut self, id: u64, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let delay = self.delay();
        let breaks = self.delays.break_one_in > 0 && self.random.number(0..self.delays.break_one_in) == 0;
        let Some(pipe) = self.pipes.get_mut(&id) else { return Err(io::ErrorKind::BrokenPipe.into()) };
        if pipe.is_reset {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if !pipe.has_reader {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if pipe.unread_bytes >= UNREAD_BYTES_MAX {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut data = BytesMut::new();
        parts.iter().for_each(|part| data.extend_from_slice(part));
        let size = data.len();
        let now = Instant::now();
        let checksum = u64::from(crc32c::crc32c(&data));
        self.digest = (self.digest ^ checksum ^ (pipe.from as u64) << 40 ^ (pipe.to as u64) << 48)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(17);
        pipe.push(now + delay, Part::Data(data.freeze()));
        pipe.unread_bytes += size;
        if breaks {
            let other = pipe.other;
            let is_lost = self.random.number(0..2) == 0;
            let ends = [Some(other), is_lost.then_some(id)];
            for end in ends.into_iter().flatten() {
                if let Some(pipe) = self.pipes.get_mut(&end) {
                    pipe.reset();
                }
            }
            if let Some(pipe) = self.pipes.get_mut(&id).filter(|_| !is_lost) {
                pipe.push(now + delay, Part::End);
            }
        }
        Ok(size)
    }
}

impl Pipe {
    fn new(from: usize, to: usize, other: u64) -> Pipe {
        Pipe {
            from,
            to,
            other,
            parts: VecDeque::new(),
            unread_bytes: 0,
            last_arrival: Instant::now(),
            is_reset: false,
            has_reader: true,
            has_writer: true,
            reader: None,
            writer: None,
            arrival: None,
        }
    }

    fn push(&mut self, arrival: Instant, part: Part) {
        self.last_arrival = self.last_arrival.max(arrival);
        self.parts.push_back((self.last_arrival, part));
        self.reader.iter().for_each(Waker::wake_by_ref);
    }

    fn reset(&mut self) {
        self.is_reset = true;
        self.parts.clear();
        self.wake();
    }

    fn wake(&mut self) {
        self.reader.iter().chain(&self.writer).for_each(Waker::wake_by_ref);
    }

    fn is_readable(&self, now: Instant) -> bool {
        self.is_reset || self.parts.front().is_some_and(|(arrival, _)| *arrival <= now)
    }

    fn take(&mut self, room: usize) -> Bytes {
        let Some((_, Part::Data(data))) = self.parts.front_mut() else { return Bytes::new() };
        let taken = data.split_to(room.min(data.len()));
        if data.is_empty() {
            self.parts.pop_front();
        }
        self.unread_bytes -= taken.len();
        self.writer.iter().for_each(Waker::wake_by_ref);
        taken
    }
}

/// One host's door to the network.
#[derive(Clone)]
pub(super) struct MemoryHost {
    network: MemoryNetwork,
    name: String,
    number: usize,
}

impl MemoryHost {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Waits as long as nothing answers, as a connect does whose packets are lost.
    pub(super) async fn connect(&self, host: &str, port: u16) -> io::Result<MemoryStream> {
        loop {
            let changed = self.network.changed.notified();
            let delay = self.network.shared.lock().delay();
            sleep(delay).await;
            if let Some(connected) = self.try_connect(host, port) {
                return connected;
            }
            changed.await;
        }
    }

    /// `None` = no answer.
    fn try_connect(&self, host: &str, port: u16) -> Option<io::Result<MemoryStream>> {
        let mut shared = self.network.shared.lock();
        let to = shared.host(host);
        if shared.is_blocked((self.number, to)) || shared.is_blocked((to, self.number)) {
            return None;
        }
        let listening = shared.listeners.get(&(to, port)).cloned().flatten();
        let Some(listener) = listening.filter(|listener| !listener.is_closed()) else {
            return Some(Err(io::ErrorKind::ConnectionRefused.into()));
        };
        let (mine, theirs) = shared.join(&self.network, self.number, to);
        shared.next_port = shared.next_port.checked_add(1).unwrap_or(FIRST_CLIENT_PORT);
        let peer = address(self.number, shared.next_port);
        drop(shared);
        match listener.send((theirs, peer)) {
            Ok(()) => Some(Ok(mine)),
            Err(_) => Some(Err(io::ErrorKind::ConnectionRefused.into())),
        }
    }

    pub(super) fn bind(&self, port: u16) -> io::Result<MemoryPort> {
        let mut shared = self.network.shared.lock();
        let port = if port == 0 { shared.next_port } else { port };
        shared.next_port = shared.next_port.checked_add(1).unwrap_or(FIRST_CLIENT_PORT);
        let taken = shared.listeners.get(&(self.number, port));
        if taken.is_some_and(|listener| listener.as_ref().is_none_or(|listener| !listener.is_closed())) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        shared.listeners.insert((self.number, port), None);
        Ok(MemoryPort { host: self.clone(), port })
    }
}

/// Hosts are 10.0.0.1 and following.
fn address(host: usize, port: u16) -> SocketAddr {
    let last = u8::try_from(host + 1).unwrap_or(u8::MAX);
    (Ipv4Addr::new(10, 0, 0, last), port).into()
}

pub(super) struct MemoryPort {
    host: MemoryHost,
    port: u16,
}

impl MemoryPort {
    pub(super) fn number(&self) -> u16 {
        self.port
    }

    pub(super) fn open(self) -> MemoryAcceptor {
        let (sender, arrivals) = mpsc::unbounded_channel();
        let network = &self.host.network;
        network.shared.lock().listeners.insert((self.host.number, self.port), Some(sender));
        network.changed.notify_waiters();
        MemoryAcceptor { arrivals, address: address(self.host.number, self.port) }
    }
}

pub(super) struct MemoryAcceptor {
    arrivals: mpsc::UnboundedReceiver<(MemoryStream, SocketAddr)>,
    address: SocketAddr,
}

impl MemoryAcceptor {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for ever once the host is off the network.
    pub(super) async fn accept(&mut self) -> io::Result<(MemoryStream, SocketAddr)> {
        match self.arrivals.recv().await {
            Some(arrival) => Ok(arrival),
            None => std::future::pending().await,
        }
    }
}

pub(super) struct MemoryStream {
    pub(super) incoming: MemoryReader,
    pub(super) outgoing: MemoryWriter,
}

pub(super) struct MemoryReader {
    network: MemoryNetwork,
    pipe: u64,
}

impl MemoryReader {
    pub(super) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut shared = self.network.shared.lock();
        let Some(pipe) = shared.pipes.get(&self.pipe) else { return Poll::Ready(Ok(())) };
        let is_blocked = shared.is_blocked((pipe.from, pipe.to));
        let Some(pipe) = shared.pipes.get_mut(&self.pipe) else { return Poll::Ready(Ok(())) };
        pipe.reader = Some(context.waker().clone());
        if pipe.is_reset {
            return Poll::Ready(Ok(()));
        }
        let Some((arrival, _)) = pipe.parts.front().filter(|_| !is_blocked) else { return Poll::Pending };
        if *arrival <= Instant::now() {
            return Poll::Ready(Ok(()));
        }
        let timer = pipe.arrival.insert(Box::pin(sleep_until(*arrival)));
        timer.as_mut().poll(context).map(Ok)
    }

    /// Up to `room` bytes; none = the other side has ended it.
    pub(super) fn try_read(&self, room: usize) -> io::Result<Bytes> {
        let mut shared = self.network.shared.lock();
        let reset = || io::Error::from(io::ErrorKind::ConnectionReset);
        let pipe = shared.pipes.get(&self.pipe).ok_or_else(reset)?;
        let is_blocked = shared.is_blocked((pipe.from, pipe.to));
        let pipe = shared.pipes.get_mut(&self.pipe).ok_or_else(reset)?;
        if pipe.is_reset {
            return Err(reset());
        }
        if is_blocked || !pipe.is_readable(Instant::now()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(pipe.take(room))
    }
}

impl AsyncRead for MemoryReader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            std::task::ready!(self.poll_readable(context))?;
            match self.try_read(buffer.remaining()) {
                Ok(bytes) => {
                    buffer.put_slice(bytes.chunk());
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Drop for MemoryReader {
    fn drop(&mut self) {
        let mut shared = self.network.shared.lock();
        if let Some(pipe) = shared.pipes.get_mut(&self.pipe) {
            pipe.has_reader = false;
            pipe.wake();
        }
        shared.forget_if_unused(self.pipe);
    }
}

pub(super) struct MemoryWriter {
    network: MemoryNetwork,
    pipe: u64,
}

impl MemoryWriter {
    pub(super) fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut shared = self.network.shared.lock();
        let Some(pipe) = shared.pipes.get_mut(&self.pipe) else { return Poll::Ready(Ok(())) };
        pipe.writer = Some(context.waker().clone());
        let is_over = pipe.is_reset || !pipe.has_reader;
        if is_over || pipe.unread_bytes < UNREAD_BYTES_MAX { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    pub(super) fn try_write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.network.shared.lock().write(self.pipe, parts)
    }
}

impl AsyncWrite for MemoryWriter {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            std::task::ready!(self.poll_writable(context))?;
            match self.try_write(&[IoSlice::new(bytes)]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for MemoryWriter {
    fn drop(&mut self) {
        let mut shared = self.network.shared.lock();
        let delay = shared.delay();
        if let Some(pipe) = shared.pipes.get_mut(&self.pipe) {
            pipe.has_writer = false;
            pipe.push(Instant::now() + delay, Part::End);
        }
        shared.forget_if_unused(self.pipe);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::{Halves, ListenOptions};
    use super::*;

    const DELAYS: Delays =
        Delays { min_us: 100, max_us: 900, slow_one_in: 0, slow_max_us: 0, break_one_in: 0 };

    fn network() -> MemoryNetwork {
        MemoryNetwork::new(Random::from_seed(3), DELAYS)
    }

    async fn connected(network: &MemoryNetwork) -> (Halves, Halves) {
        let options = ListenOptions { host: String::new(), port: 9092, receive_buffer_bytes: -1 };
        let mut acceptor = network.host("b").bind(&options).unwrap().open(50).unwrap();
        let mine = network.host("a").connect("b", 9092).await.unwrap();
        let (theirs, _) = acceptor.accept().await.unwrap();
        (mine.into_split(), theirs.into_split())
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_arrive_in_order_after_their_delay() {
        let network = network();
        let ((_, mut write), (mut read, _keep)) = connected(&network).await;
        let started = Instant::now();
        write.write_all(b"one").await.unwrap();
        write.write_all(b"two").await.unwrap();
        let mut found = [0; 6];
        read.read_exact(&mut found).await.unwrap();
        assert_eq!(&found, b"onetwo");
        assert!(started.elapsed() >= Duration::from_micros(100));
        drop(write);
        assert_eq!(read.read(&mut found).await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_listens_means_refused_and_a_silent_host_answers_nothing() {
        let network = network();
        let refused = network.host("a").connect("b", 9092).await;
        assert_eq!(refused.err().unwrap().kind(), io::ErrorKind::ConnectionRefused);
        network.silence_host("b");
        let silent =
            tokio::time::timeout(Duration::from_secs(60), network.host("a").connect("b", 9092)).await;
        assert!(silent.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_block_held_back_arrives_when_it_is_lifted() {
        let network = network();
        let ((_, mut write), (mut read, _keep)) = connected(&network).await;
        network.block("a", "b");
        write.write_all(b"x").await.unwrap();
        let held = tokio::time::timeout(Duration::from_secs(5), read.read_u8()).await;
        assert!(held.is_err());
        network.unblock("a", "b");
        assert_eq!(read.read_u8().await.unwrap(), b'x');
    }

    #[tokio::test(start_paused = true)]
    async fn a_reset_ends_both_sides() {
        let network = network();
        let ((mut mine, _mine), (mut theirs, mut write)) = connected(&network).await;
        network.reset_host("b");
        assert!(mine.read_u8().await.is_err());
        assert!(theirs.read_u8().await.is_err());
        assert!(write.write_all(b"x").await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_seed_repeats_its_delays() {
        let mut arrivals = Vec::new();
        for _ in 0..2 {
            let network = network();
            let ((_, mut write), (mut read, _keep)) = connected(&network).await;
            let started = Instant::now();
            write.write_all(b"x").await.unwrap();
            read.read_u8().await.unwrap();
            arrivals.push((started.elapsed(), network.digest()));
        }
        assert_eq!(arrivals[0], arrivals[1]);
    }
}
