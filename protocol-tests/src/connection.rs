use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use wire::{Message, Reader, Request, ResponseHeader, Str, Writer, write_request};

/// No answer within this time is a failure.
const LIMIT: Duration = Duration::from_secs(120);

/// One connection that speaks the protocol by hand: whole requests, or any bytes.
pub struct Connection {
    stream: TcpStream,
    client_id: Option<Str>,
    correlation_id: i32,
}

/// What came instead of the answer that was asked for.
#[derive(Debug)]
pub enum CallError {
    /// The peer closed the connection.
    Closed,
    /// Nothing came for as long as this side was willing to wait.
    NoAnswer,
    /// The answer is not what the protocol says for this version, or bytes follow it.
    Malformed(String),
}

impl Connection {
    #[track_caller]
    pub fn open(address: &str) -> Connection {
        Connection::open_as(address, Some("protocol-tests"))
    }

    /// `None` when nobody listens there.
    pub fn try_open(address: &str) -> Option<Connection> {
        TcpStream::connect(address).ok().map(|stream| Connection::over(stream, Some("protocol-tests")))
    }

    #[track_caller]
    pub fn open_as(address: &str, client_id: Option<&str>) -> Connection {
        let stream =
            TcpStream::connect(address).unwrap_or_else(|error| panic!("connect to {address}: {error}"));
        Connection::over(stream, client_id)
    }

    fn over(stream: TcpStream, client_id: Option<&str>) -> Connection {
        stream.set_nodelay(true).expect("set TCP_NODELAY");
        stream.set_read_timeout(Some(LIMIT)).expect("set a read timeout");
        stream.set_write_timeout(Some(LIMIT)).expect("set a write timeout");
        Connection { stream, client_id: client_id.map(Str::from), correlation_id: 0 }
    }

    /// Sends a request and reads its answer, which must decode with no byte left.
    #[track_caller]
    pub fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        match self.try_call(version, request) {
            Ok(response) => response,
            Err(error) => panic!("{} v{version}: {error:?}", R::NAME),
        }
    }

    /// As [`Connection::call`], for requests whose answer may be a closed connection.
    #[track_caller]
    pub fn try_call<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response, CallError> {
        let correlation_id = self.send(version, request);
        self.receive::<R>(version, correlation_id)
    }

    /// Sends a request and gives its correlation id; the answer is left in the socket.
    #[track_caller]
    pub fn send<R: Request>(&mut self, version: i16, request: &R) -> i32 {
        self.correlation_id += 1;
        let frame = encode(self.correlation_id, self.client_id.clone(), version, request);
        self.send_raw(&frame);
        self.correlation_id
    }

    /// Reads the answer to an earlier [`Connection::send`].
    #[track_caller]
    pub fn receive<R: Request>(
        &mut self,
        version: i16,
        correlation_id: i32,
    ) -> Result<R::Response, CallError> {
        let frame = self.try_receive_frame()?;
        let malformed = |error| CallError::Malformed(format!("{error}"));
        let mut reader = Reader::new(frame);
        let header =
            ResponseHeader::decode(&mut reader, R::response_header_version(version)).map_err(malformed)?;
        if header.correlation_id != correlation_id {
            let found = header.correlation_id;
            return Err(CallError::Malformed(format!(
                "the answer to {found} where {correlation_id} was asked"
            )));
        }
        let response = R::Response::decode(&mut reader, version).map_err(malformed)?;
        match reader.remaining() {
            0 => Ok(response),
            left => Err(CallError::Malformed(format!("{left} bytes follow the answer"))),
        }
    }

    /// Sends bytes as they are. A peer that has closed already is no error: the next read tells.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Sends `body` with its length in front.
    pub fn send_frame(&mut self, body: &[u8]) {
        let mut frame = (body.len() as i32).to_be_bytes().to_vec();
        frame.extend_from_slice(body);
        self.send_raw(&frame);
    }

    /// The next frame without its length; `None` when the peer has closed the connection.
    #[track_caller]
    pub fn receive_frame(&mut self) -> Option<Bytes> {
        match self.try_receive_frame() {
            Ok(frame) => Some(frame),
            Err(CallError::Closed) => None,
            Err(error) => panic!("{error:?}"),
        }
    }

    fn try_receive_frame(&mut self) -> Result<Bytes, CallError> {
        let length = self.receive_exactly(4)?;
        let length = i32::from_be_bytes([length[0], length[1], length[2], length[3]]);
        let size = usize::try_from(length)
            .map_err(|_| CallError::Malformed(format!("a frame of {length} bytes")))?;
        self.receive_exactly(size).map(Bytes::from)
    }

    /// How long to wait for an answer.
    pub fn set_limit(&mut self, limit: Duration) {
        self.stream.set_read_timeout(Some(limit)).expect("set a read timeout");
    }

    /// Panics unless the peer closes the connection without another byte.
    #[track_caller]
    pub fn expect_closed(&mut self) {
        let mut byte = [0];
        match self.stream.read(&mut byte) {
            Ok(0) => {}
            Ok(_) => panic!("the peer sent a byte instead of closing the connection"),
            Err(error) if is_closed(error.kind()) => {}
            Err(error) => panic!("the peer does not close the connection: {error}"),
        }
    }

    /// Ends our half, so that the peer sees the end of the stream.
    pub fn shutdown_write(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    fn receive_exactly(&mut self, size: usize) -> Result<Vec<u8>, CallError> {
        let mut bytes = vec![0; size];
        match self.stream.read_exact(&mut bytes) {
            Ok(()) => Ok(bytes),
            Err(error) if is_closed(error.kind()) => Err(CallError::Closed),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(CallError::NoAnswer),
            Err(error) => panic!("read from the peer: {error}"),
        }
    }
}

fn is_closed(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
    )
}

/// A whole request frame.
#[track_caller]
pub fn encode<R: Request>(correlation_id: i32, client_id: Option<Str>, version: i16, request: &R) -> Bytes {
    let mut writer = Writer::new();
    write_request(&mut writer, correlation_id, client_id, request, version)
        .unwrap_or_else(|error| panic!("encode {} v{version}: {error}", R::NAME));
    writer.into_bytes()
}
