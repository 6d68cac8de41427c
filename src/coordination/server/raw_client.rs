//! A client of ZooKeeper's protocol that shows what comes over the wire, for tests.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;

use crate::coordination::codes::*;
use crate::coordination::jute::{Reader, Writer};

/// One connection, with its session where there is one.
pub(crate) struct RawClient {
    stream: TcpStream,
    pub session: i64,
    pub password: Bytes,
    pub timeout_ms: i32,
    pub seen_zxid: i64,
    next_xid: i32,
    /// Events that came, in order, and have not been looked at.
    pub events: VecDeque<(i32, String)>,
}

/// An answer: its code and what follows the header.
pub(crate) struct RawAnswer {
    pub zxid: i64,
    pub code: i32,
    pub body: Reader,
}

pub(crate) fn body(write: impl FnOnce(&mut Writer)) -> Bytes {
    let mut writer = Writer::default();
    write(&mut writer);
    writer.finish()
}

impl RawClient {
    /// Begins a session.
    pub(crate) fn open(address: SocketAddr, timeout_ms: i32) -> RawClient {
        let client = RawClient::connect(address, 0, timeout_ms, 0, &[0; 16]);
        assert!(client.timeout_ms > 0, "a new session begins");
        client
    }

    /// Connects for a session; a timeout of 0 tells that it is over.
    pub(crate) fn connect(
        address: SocketAddr,
        seen_zxid: i64,
        timeout_ms: i32,
        session: i64,
        password: &[u8],
    ) -> RawClient {
        let mut client = RawClient::dial(address);
        client.send_greeting(seen_zxid, timeout_ms, session, password);
        let mut reader = Reader::new(client.frame().expect("an answer to the greeting"));
        assert_eq!(reader.int(), Ok(0));
        client.timeout_ms = reader.int().unwrap();
        client.session = reader.long().unwrap();
        client.password = reader.buffer().unwrap().unwrap();
        assert_eq!(reader.boolean(), Ok(false));
        client
    }

    /// Connects and says nothing.
    pub(crate) fn dial(address: SocketAddr) -> RawClient {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        RawClient {
            stream,
            session: 0,
            password: Bytes::new(),
            timeout_ms: 0,
            seen_zxid: 0,
            next_xid: 1,
            events: VecDeque::new(),
        }
    }

    /// Waits for no longer.
    pub(crate) fn set_limit(&self, limit: Duration) {
        self.stream.set_read_timeout(Some(limit)).unwrap();
    }

    pub(crate) fn send_greeting(&mut self, seen_zxid: i64, timeout_ms: i32, session: i64, password: &[u8]) {
        let greeting = body(|writer| {
            writer.int(0);
            writer.long(seen_zxid);
            writer.int(timeout_ms);
            writer.long(session);
            writer.buffer(Some(password));
            writer.boolean(false);
        });
        self.send_frame(&greeting);
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        // What the server has closed cannot be written to.
        let _ = self.stream.write_all(bytes);
    }

    pub(crate) fn send_frame(&mut self, frame: &[u8]) {
        self.send_bytes(&i32::try_from(frame.len()).unwrap().to_be_bytes());
        self.send_bytes(frame);
    }

    /// Sends a request and gives its xid.
    pub(crate) fn send(&mut self, op: i32, body: &[u8]) -> i32 {
        let xid = match op {
            OP_PING => XID_PING,
            OP_AUTH => XID_AUTH,
            OP_SET_WATCHES | OP_SET_WATCHES2 => XID_SET_WATCHES,
            _ => {
                self.next_xid += 1;
                self.next_xid
            }
        };
        let mut frame = xid.to_be_bytes().to_vec();
        frame.extend_from_slice(&op.to_be_bytes());
        frame.extend_from_slice(body);
        self.send_frame(&frame);
        xid
    }

    /// Sends a request and waits for its answer; events that come before are kept.
    #[track_caller]
    pub(crate) fn call(&mut self, op: i32, body: &[u8]) -> RawAnswer {
        let xid = self.send(op, body);
        let (answered, answer) = self.answer().expect("an answer");
        assert_eq!(answered, xid);
        answer
    }

    /// The next answer with its xid; `None` = the connection ends.
    pub(crate) fn answer(&mut self) -> Option<(i32, RawAnswer)> {
        loop {
            let mut reader = Reader::new(self.frame()?);
            let (xid, zxid, code) = (reader.int().unwrap(), reader.long().unwrap(), reader.int().unwrap());
            if xid == XID_EVENT {
                assert_eq!((zxid, code), (-1, 0));
                let kind = reader.int().unwrap();
                assert_eq!(reader.int(), Ok(3), "connected");
                self.events.push_back((kind, reader.text().unwrap()));
                continue;
            }
            self.seen_zxid = zxid;
            return Some((xid, RawAnswer { zxid, code, body: reader }));
        }
    }

    /// The next frame; `None` = the connection ends.
    pub(crate) fn frame(&mut self) -> Option<Bytes> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).ok()?;
        let mut frame = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
        self.stream.read_exact(&mut frame).ok()?;
        Some(frame.into())
    }

    /// Everything until the server closes the connection.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest);
        rest
    }

    /// Goes without a word; the session stays.
    pub(crate) fn vanish(self) -> (i64, Bytes, i64) {
        let _ = self.stream.shutdown(Shutdown::Both);
        (self.session, self.password, self.seen_zxid)
    }

    #[track_caller]
    pub(crate) fn create(&mut self, path: &str, flags: i32) -> (i32, String) {
        let mut answer = self.call(OP_CREATE, &create_body(path, Some(b"data"), &OPEN, flags));
        (answer.code, answer.body.text().unwrap_or_default())
    }

    #[track_caller]
    pub(crate) fn exists(&mut self, path: &str, watch: bool) -> i32 {
        self.call(OP_EXISTS, &read_body(path, watch)).code
    }
}

pub(crate) type RawAcl<'a> = [(i32, &'a str, &'a str)];
pub(crate) const OPEN: [(i32, &str, &str); 1] = [(31, "world", "anyone")];

pub(crate) fn create_body(path: &str, data: Option<&[u8]>, acl: &RawAcl<'_>, flags: i32) -> Bytes {
    body(|writer| {
        writer.text(path);
        writer.buffer(data);
        put_acl(writer, acl);
        writer.int(flags);
    })
}

pub(crate) fn put_acl(writer: &mut Writer, acl: &RawAcl<'_>) {
    writer.int(acl.len() as i32);
    for (permissions, scheme, id) in acl {
        writer.int(*permissions);
        writer.text(scheme);
        writer.text(id);
    }
}

pub(crate) fn read_body(path: &str, watch: bool) -> Bytes {
    body(|writer| {
        writer.text(path);
        writer.boolean(watch);
    })
}

pub(crate) fn versioned(path: &str, data: Option<Option<&[u8]>>, version: i32) -> Bytes {
    body(|writer| {
        writer.text(path);
        if let Some(data) = data {
            writer.buffer(data);
        }
        writer.int(version);
    })
}

pub(crate) fn multi_body(members: &[(i32, Bytes)]) -> Bytes {
    body(|writer| {
        for (op, member) in members {
            writer.int(*op);
            writer.boolean(false);
            writer.int(-1);
            writer.raw(member);
        }
        writer.int(-1);
        writer.boolean(true);
        writer.int(-1);
    })
}

pub(crate) fn set_watches_body(seen_zxid: i64, data: &[&str], exists: &[&str], children: &[&str]) -> Bytes {
    body(|writer| {
        writer.long(seen_zxid);
        for paths in [data, exists, children] {
            writer.texts(paths.iter().copied());
        }
    })
}
