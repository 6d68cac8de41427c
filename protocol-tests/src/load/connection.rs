use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wire::{Message, Reader, Request, ResponseHeader, Writer, write_request};

use super::LoadError;

/// One client's connection, one request at a time.
pub struct LoadConnection {
    stream: TcpStream,
    correlation_id: i32,
}

impl LoadConnection {
    pub async fn open(address: &str) -> Result<LoadConnection, LoadError> {
        let stream = TcpStream::connect(address).await.map_err(LoadError::io("connect"))?;
        stream.set_nodelay(true).map_err(LoadError::io("set TCP_NODELAY"))?;
        Ok(LoadConnection { stream, correlation_id: 0 })
    }

    /// Sends a request and reads its answer, which must decode with no byte left.
    pub async fn call<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response, LoadError> {
        self.correlation_id += 1;
        let frame = request_frame(self.correlation_id, version, request)?;
        self.stream.write_all(&frame).await.map_err(LoadError::io("send a request"))?;
        let length = self.stream.read_u32().await.map_err(LoadError::io("read an answer"))?;
        let mut body = vec![0; length as usize];
        self.stream.read_exact(&mut body).await.map_err(LoadError::io("read an answer"))?;
        decode_response::<R>(Bytes::from(body), self.correlation_id, version)
    }
}

/// A whole request, its length in front.
pub(super) fn request_frame<R: Request>(
    correlation_id: i32,
    version: i16,
    request: &R,
) -> Result<Bytes, LoadError> {
    let mut writer = Writer::new();
    write_request(&mut writer, correlation_id, Some("load".into()), request, version)
        .map_err(|error| LoadError::Malformed { api: R::NAME, what: error.to_string() })?;
    Ok(writer.into_bytes())
}

/// An answer without its length.
pub(super) fn decode_response<R: Request>(
    body: Bytes,
    correlation_id: i32,
    version: i16,
) -> Result<R::Response, LoadError> {
    let malformed = |what: String| LoadError::Malformed { api: R::NAME, what };
    let mut reader = Reader::new(body);
    let header = ResponseHeader::decode(&mut reader, R::response_header_version(version))
        .map_err(|error| malformed(error.to_string()))?;
    if header.correlation_id != correlation_id {
        return Err(malformed(format!("answers {} in place of {correlation_id}", header.correlation_id)));
    }
    let response = R::Response::decode(&mut reader, version).map_err(|error| malformed(error.to_string()))?;
    match reader.remaining() {
        0 => Ok(response),
        left => Err(malformed(format!("{left} bytes follow it"))),
    }
}
