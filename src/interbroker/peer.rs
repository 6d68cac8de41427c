use std::io;
use std::sync::Arc;
use std::time::Duration;

use snafu::IntoError;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};
use wire::Request;

use super::connection::{Connection, ConnectionOptions};
use super::error::ConnectSnafu;
use super::{PeerError, RequestVersions};
use crate::metadata::control::Endpoint;

/// One broker as another asks it, over one connection that is opened when it is needed.
pub struct Peer {
    endpoint: Endpoint,
    options: ConnectionOptions,
    pub(super) versions: RequestVersions,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<Arc<Connection>>,
    /// Attempts to connect that failed since the last one that did not.
    failures: u32,
    /// Not to be connected to before this.
    not_before: Option<Instant>,
    /// When the last attempt failed, and how: those who have waited for it share its outcome.
    failed: Option<(Instant, io::ErrorKind)>,
}

/// As `reconnect.backoff.ms` and its maximum, which Kafka fixes for brokers among themselves.
const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(50);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_millis(1000);

impl Peer {
    pub fn new(endpoint: Endpoint, options: ConnectionOptions, versions: RequestVersions) -> Peer {
        Peer { endpoint, options, versions, state: Mutex::default() }
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub fn versions(&self) -> &RequestVersions {
        &self.versions
    }

    /// Sends a request, over a new connection where there is none, and waits for its answer. A connection that
    /// failed is not tried again before a pause, which this call waits out.
    pub(super) async fn call<R: Request>(&self, request: &R, version: i16) -> Result<R::Response, PeerError> {
        self.call_patiently(request, version, Duration::ZERO).await
    }

    /// For a request that its receiver may hold back for `patience`.
    pub(super) async fn call_patiently<R: Request>(
        &self,
        request: &R,
        version: i16,
        patience: Duration,
    ) -> Result<R::Response, PeerError> {
        let connection = self.connect().await?;
        connection.call(request, version, patience).await
    }

    /// One attempt at a time. A host that is gone keeps all who wait for as long as one of them, not one after the
    /// other.
    async fn connect(&self) -> Result<Arc<Connection>, PeerError> {
        let arrived = Instant::now();
        let mut state = self.state.lock().await;
        if let Some((_, kind)) = state.failed.filter(|(at, _)| *at >= arrived) {
            let context = ConnectSnafu { host: self.endpoint.host.clone(), port: self.endpoint.port };
            return Err(context.into_error(kind.into()));
        }
        if let Some(connection) = state.connection.take_if(|connection| connection.is_over()) {
            drop(connection);
            state.failures = 0;
            state.not_before = Some(Instant::now() + RECONNECT_PAUSE_MIN);
        }
        if let Some(connection) = &state.connection {
            return Ok(Arc::clone(connection));
        }
        if self.endpoint.security_protocol != "PLAINTEXT" {
            let protocol = self.endpoint.security_protocol.clone();
            return Err(PeerError::UnsupportedProtocol { protocol });
        }
        if let Some(not_before) = state.not_before {
            sleep_until(not_before).await;
        }
        let opened = Connection::open(&self.endpoint.host, self.endpoint.port, self.options.clone()).await;
        match opened {
            Ok(connection) => {
                let connection = Arc::new(connection);
                *state = State { connection: Some(Arc::clone(&connection)), ..State::default() };
                Ok(connection)
            }
            Err(error) => {
                let kind = match &error {
                    PeerError::Connect { source, .. } => source.kind(),
                    _ => io::ErrorKind::Other,
                };
                let now = Instant::now();
                state.failed = Some((now, kind));
                state.not_before = Some(now + pause_after(state.failures));
                state.failures = state.failures.saturating_add(1);
                Err(error)
            }
        }
    }
}

fn pause_after(failures: u32) -> Duration {
    RECONNECT_PAUSE_MIN.saturating_mul(1 << failures.min(10)).min(RECONNECT_PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use wire::{ApiVersionsRequest, ApiVersionsResponse, Reader, RequestHeader, Writer};

    use super::*;
    use crate::config::ProtocolVersion;
    use crate::runtime::net::Network;

    async fn listen() -> (TcpListener, Peer) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        (listener, peer(port, Duration::from_secs(10)))
    }

    fn peer(port: u16, request_timeout: Duration) -> Peer {
        let endpoint = Endpoint {
            listener: "PLAINTEXT".into(),
            security_protocol: "PLAINTEXT".into(),
            host: "127.0.0.1".into(),
            port,
        };
        let options =
            ConnectionOptions { network: Network::system(), client_id: "1".into(), request_timeout };
        let versions = RequestVersions::of(ProtocolVersion::parse("3.9").unwrap());
        Peer::new(endpoint, options, versions)
    }

    async fn read_request(stream: &mut tokio::net::TcpStream) -> i32 {
        let size = stream.read_i32().await.unwrap();
        let mut frame = vec![0; size as usize];
        stream.read_exact(&mut frame).await.unwrap();
        let mut reader = Reader::new(frame.into());
        RequestHeader::decode(&mut reader, 1).unwrap().correlation_id
    }

    async fn answer(stream: &mut tokio::net::TcpStream, correlation_id: i32, throttle_time_ms: i32) {
        let response = ApiVersionsResponse { throttle_time_ms, ..Default::default() };
        let mut writer = Writer::new();
        wire::write_response::<ApiVersionsRequest>(&mut writer, correlation_id, &response, 1).unwrap();
        stream.write_all(&writer.into_bytes()).await.unwrap();
    }

    #[tokio::test]
    async fn requests_wait_for_their_answers_side_by_side() {
        let (listener, peer) = listen().await;
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let first = read_request(&mut stream).await;
            let second = read_request(&mut stream).await;
            answer(&mut stream, first, 7).await;
            answer(&mut stream, second, 8).await;
        };
        let request = ApiVersionsRequest::default();
        let (first, second, ()) = tokio::join!(peer.call(&request, 1), peer.call(&request, 1), server);
        assert_eq!((first.unwrap().throttle_time_ms, second.unwrap().throttle_time_ms), (7, 8));
    }

    #[tokio::test]
    async fn a_lost_connection_is_told_and_opened_again() {
        let (listener, peer) = listen().await;
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_request(&mut stream).await;
            drop(stream);
            let (mut stream, _) = listener.accept().await.unwrap();
            let correlation_id = read_request(&mut stream).await;
            answer(&mut stream, correlation_id, 9).await;
        };
        let request = ApiVersionsRequest::default();
        let client = async {
            let lost = peer.call(&request, 1).await;
            assert!(matches!(lost, Err(PeerError::Disconnected)), "{lost:?}");
            peer.call(&request, 1).await.unwrap().throttle_time_ms
        };
        let (throttle_time_ms, ()) = tokio::join!(client, server);
        assert_eq!(throttle_time_ms, 9);
    }

    /// TEST-NET-1 routes nowhere: attempts there end with their time, or at once where the machine says so.
    #[tokio::test]
    async fn those_who_wait_for_a_host_that_is_gone_fail_together() {
        let mut gone = peer(9, Duration::from_millis(300));
        gone.endpoint.host = "192.0.2.1".to_owned();
        let request = ApiVersionsRequest::default();
        let began = Instant::now();
        let calls = (0..10).map(|_| gone.call(&request, 1));
        for call in join_all(calls).await {
            assert!(matches!(call, Err(PeerError::Connect { .. })), "{call:?}");
        }
        assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn an_answer_that_does_not_come_ends_the_connection() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let peer = peer(listener.local_addr().unwrap().port(), Duration::from_millis(20));
        let late = peer.call(&ApiVersionsRequest::default(), 1).await;
        assert!(matches!(late, Err(PeerError::TimedOut)), "{late:?}");
        assert!(peer.state.lock().await.connection.as_ref().is_some_and(|connection| connection.is_over()));
    }
}
