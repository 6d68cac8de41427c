use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::load::LoadError;

/// A session with a ZooKeeper server, to look at nodes and to remove them. It asks one thing at a time and sends no
/// pings: it is for some seconds of work.
pub struct Ensemble {
    stream: TcpStream,
    chroot: String,
    last_xid: i32,
}

const SESSION_TIMEOUT_MS: i32 = 30_000;
const OP_DELETE: i32 = 2;
const OP_READ: i32 = 4;
const CODE_NO_NODE: i32 = -101;
/// Behind the header of an answer: xid, zxid, code.
const HEADER_BYTES: usize = 16;

impl Ensemble {
    /// `address` as `zookeeper.connect` has it, with one server: `host:port/chroot`.
    pub async fn open(address: &str) -> Result<Ensemble, LoadError> {
        let (server, chroot) = match address.split_once('/') {
            Some((server, chroot)) => (server, format!("/{chroot}")),
            None => (address, String::new()),
        };
        let stream = TcpStream::connect(server).await.map_err(LoadError::io("connect to ZooKeeper"))?;
        stream.set_nodelay(true).map_err(LoadError::io("set TCP_NODELAY"))?;
        let mut ensemble = Ensemble { stream, chroot, last_xid: 0 };
        let mut hello = BytesMut::new();
        hello.put_i32(0); // protocol
        hello.put_i64(0); // the last transaction seen
        hello.put_i32(SESSION_TIMEOUT_MS);
        hello.put_i64(0); // a new session
        put_bytes(&mut hello, &[0; 16]);
        ensemble.exchange(&hello).await?;
        Ok(ensemble)
    }

    /// A node's data; `None` = there is no such node.
    pub async fn read(&mut self, path: &str) -> Result<Option<Bytes>, LoadError> {
        let mut body = self.path(path);
        body.put_u8(0); // no watch
        let Some(mut answer) = self.call(OP_READ, &body).await? else { return Ok(None) };
        let length = if answer.remaining() >= 4 { answer.get_i32() } else { 0 };
        // A null node has length -1.
        let length = usize::try_from(length).unwrap_or(0).min(answer.remaining());
        Ok(Some(answer.split_to(length)))
    }

    /// The broker that `/controller` names; `None` = nobody is controller.
    pub async fn controller(&mut self) -> Result<Option<i32>, LoadError> {
        let Some(data) = self.read("/controller").await? else { return Ok(None) };
        let text = String::from_utf8_lossy(&data);
        let id = text.split_once("\"brokerid\":").map_or("", |(_, rest)| rest);
        let digits: String = id.trim_start().chars().take_while(char::is_ascii_digit).collect();
        let unread = || LoadError::Wrong { what: format!("/controller holds {text}") };
        Ok(Some(digits.parse().ok().ok_or_else(unread)?))
    }

    /// Removes a node, whatever its version; one that is gone is no error.
    pub async fn delete(&mut self, path: &str) -> Result<(), LoadError> {
        let mut body = self.path(path);
        body.put_i32(-1);
        self.call(OP_DELETE, &body).await.map(|_| ())
    }

    fn path(&self, path: &str) -> BytesMut {
        let mut body = BytesMut::new();
        put_bytes(&mut body, format!("{}{path}", self.chroot).as_bytes());
        body
    }

    /// What follows the header of the answer; `None` = no such node.
    async fn call(&mut self, operation: i32, body: &[u8]) -> Result<Option<Bytes>, LoadError> {
        self.last_xid += 1;
        let mut request = BytesMut::new();
        request.put_i32(self.last_xid);
        request.put_i32(operation);
        request.extend_from_slice(body);
        let mut answer = self.exchange(&request).await?;
        if answer.remaining() < HEADER_BYTES {
            return Err(LoadError::Wrong { what: "ZooKeeper's answer is too short".to_owned() });
        }
        let (xid, _zxid, code) = (answer.get_i32(), answer.get_i64(), answer.get_i32());
        match code {
            _ if xid != self.last_xid => Err(LoadError::Wrong {
                what: format!("ZooKeeper answers {xid} in place of {}", self.last_xid),
            }),
            0 => Ok(Some(answer)),
            CODE_NO_NODE => Ok(None),
            code => Err(LoadError::Wrong { what: format!("ZooKeeper answers with code {code}") }),
        }
    }

    async fn exchange(&mut self, request: &[u8]) -> Result<Bytes, LoadError> {
        let mut frame = BytesMut::new();
        put_bytes(&mut frame, request);
        self.stream.write_all(&frame).await.map_err(LoadError::io("ask ZooKeeper"))?;
        let length = self.stream.read_u32().await.map_err(LoadError::io("read ZooKeeper's answer"))?;
        let mut answer = vec![0; length as usize];
        self.stream.read_exact(&mut answer).await.map_err(LoadError::io("read ZooKeeper's answer"))?;
        Ok(Bytes::from(answer))
    }
}

fn put_bytes(buffer: &mut BytesMut, bytes: &[u8]) {
    buffer.put_u32(bytes.len() as u32);
    buffer.extend_from_slice(bytes);
}
