//! The same raw requests to this port and to a real ZooKeeper: what comes back is the same, but for times, session ids
//! and the distances between transactions.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;

use super::raw_client::{
    OPEN, RawClient, body, create_body, multi_body, put_acl, read_body, set_watches_body, versioned,
};
use super::tests::Port;
use crate::coordination::Stat;
use crate::coordination::codes::*;
use crate::coordination::jute::Reader;
use crate::coordination::zookeeper::live_tests::RealZooKeeper;

#[test]
fn a_real_zookeeper_answers_the_same() {
    let Some(real) = RealZooKeeper::start() else { return };
    let port = Port::start(Duration::from_secs(2));
    let address = SocketAddr::from(([127, 0, 0, 1], real.port));
    wait_until_it_answers(address);
    let theirs = transcript(address);
    let ours = transcript(port.address());
    let differing: Vec<_> = ours.iter().zip(&theirs).filter(|(ours, theirs)| ours != theirs).collect();
    assert!(differing.is_empty() && ours.len() == theirs.len(), "ours, theirs: {differing:#?}");
}

/// A server that is just starting may take a connection and close it again.
fn wait_until_it_answers(address: SocketAddr) {
    for _ in 0..1_000 {
        let mut client = RawClient::dial(address);
        client.set_limit(Duration::from_secs(2));
        client.send_greeting(0, 4_000, 0, &[0; 16]);
        if client.frame().is_some() {
            return;
        }
    }
    panic!("the real ZooKeeper answers nobody");
}

/// Two clients and what was said to them.
struct Script {
    clients: [RawClient; 2],
    lines: Vec<Line>,
}

/// A line with the transactions that it names, which are compared by their order alone.
struct Line {
    text: String,
    zxids: Vec<i64>,
}

const A: usize = 0;
const B: usize = 1;

fn transcript(address: SocketAddr) -> Vec<String> {
    let clients = [RawClient::open(address, 30_000), RawClient::open(address, 30_000)];
    let mut script = Script { clients, lines: Vec::new() };
    creations(&mut script);
    data_and_versions(&mut script);
    reads_and_watches(&mut script);
    multis(&mut script);
    access_lists(&mut script);
    watches_set_again(&mut script);
    odd_requests(&mut script);
    ends(&mut script, address);
    script.finish()
}

fn creations(script: &mut Script) {
    for flags in [0, 1] {
        script.call(A, OP_CREATE, create_body(&format!("/c{flags}"), Some(b"x"), &OPEN, flags));
        script.call(A, OP_CREATE2, create_body(&format!("/d{flags}"), None, &OPEN, flags));
    }
    // Not below the root, where ZooKeeper does not count its own node.
    for flags in [2, 3] {
        script.call(A, OP_CREATE, create_body("/d0/c", Some(b"x"), &OPEN, flags));
        script.call(A, OP_CREATE2, create_body("/d0/d", None, &OPEN, flags));
    }
    script.call(A, OP_CREATE, create_body("/c0", None, &OPEN, 0));
    script.call(A, OP_CREATE, create_body("/c0/", None, &OPEN, 2));
    script.call(A, OP_CREATE, create_body("/c0/k", Some(b""), &OPEN, 0));
    script.call(A, OP_CREATE, create_body("/c1/k", None, &OPEN, 0));
    script.call(A, OP_CREATE, create_body("/no/k", None, &OPEN, 0));
    script.call(A, OP_CREATE, create_body("/", None, &OPEN, 0));
    script.call(A, OP_CREATE, create_body("no", None, &OPEN, 0));
    script.call(A, OP_CREATE, create_body("", None, &OPEN, 0));
    script.call(A, OP_CREATE, create_body("/c0/..", None, &OPEN, 0));
    script.call(A, OP_CREATE, create_body("/bad\u{1}", None, &OPEN, 0));
    script.call(A, OP_CREATE, create_body("/flags", None, &OPEN, 9));
    script.call(A, OP_CREATE, create_body("/empty", None, &[], 0));
    script.call(
        A,
        OP_CREATE_TTL,
        body(|writer| {
            writer.raw(&create_body("/ttl", None, &OPEN, 5));
            writer.long(1_000);
        }),
    );
    script.call(B, OP_CREATE2, create_body("/e", Some(b"mine"), &OPEN, 1));
    script.call(A, OP_GET_EPHEMERALS, body(|writer| writer.text("/")));
    script.call(A, OP_GET_EPHEMERALS, body(|writer| writer.text("/d")));
}

fn data_and_versions(script: &mut Script) {
    script.call(A, OP_SET_DATA, versioned("/c0", Some(Some(b"one")), 0));
    script.call(A, OP_SET_DATA, versioned("/c0", Some(Some(b"two")), 0));
    script.call(A, OP_SET_DATA, versioned("/c0", Some(None), -1));
    script.call(A, OP_SET_DATA, versioned("/none", Some(None), -1));
    script.call(B, OP_SET_DATA, versioned("/e", Some(Some(b"")), -1));
    script.call(A, OP_GET_DATA, read_body("/c0", false));
    script.call(A, OP_DELETE, versioned("/c0", None, 7));
    script.call(A, OP_DELETE, versioned("/c0", None, -1));
    script.call(A, OP_DELETE, versioned("/none", None, -1));
    script.call(A, OP_DELETE, versioned("/", None, -1));
    script.call(A, OP_DELETE, versioned("/zookeeper", None, -1));
    script.call(A, OP_DELETE, versioned("/c0/k", None, 0));
    script.call(A, OP_DELETE, versioned("/e", None, 1));
    script.call(A, OP_SYNC, body(|writer| writer.text("/c0")));
    script.call(A, OP_SYNC, body(|writer| writer.text("/none")));
}

fn reads_and_watches(script: &mut Script) {
    for op in [OP_EXISTS, OP_GET_DATA, OP_GET_CHILDREN, OP_GET_CHILDREN2] {
        for path in ["/c0", "/none", "/c0/", "none"] {
            script.call(A, op, read_body(path, true));
        }
    }
    script.call(A, OP_GET_CHILDREN, read_body("/", false));
    script.call(A, OP_COUNT_DESCENDANTS, body(|writer| writer.text("/c0")));
    script.call(A, OP_COUNT_DESCENDANTS, body(|writer| writer.text("/none")));
    script.call(B, OP_CREATE, create_body("/c0/w", None, &OPEN, 0));
    script.call(B, OP_CREATE, create_body("/none", None, &OPEN, 0));
    script.call(B, OP_SET_DATA, versioned("/c0", Some(Some(b"x")), -1));
    script.call(B, OP_SET_DATA, versioned("/c0", Some(Some(b"y")), -1));
    script.call(A, OP_PING, Bytes::new());
    for op in [OP_EXISTS, OP_GET_DATA, OP_GET_CHILDREN] {
        script.call(A, op, read_body("/c0/w", true));
    }
    script.call(A, OP_GET_CHILDREN, read_body("/c0", true));
    script.call(B, OP_DELETE, versioned("/c0/w", None, -1));
    script.call(A, OP_PING, Bytes::new());
    // A watch of one's own is told before the answer.
    script.call(A, OP_GET_DATA, read_body("/c0", true));
    script.call(A, OP_SET_DATA, versioned("/c0", Some(Some(b"z")), -1));
    script.call(A, OP_GET_CHILDREN, read_body("/c0", true));
    let watches = |path: &str, kind: i32| {
        body(|writer| {
            writer.text(path);
            writer.int(kind);
        })
    };
    script.call(A, OP_CHECK_WATCHES, watches("/c0", 1));
    script.call(A, OP_CHECK_WATCHES, watches("/c0", 2));
    script.call(A, OP_CHECK_WATCHES, watches("/c0", 3));
    script.call(A, OP_REMOVE_WATCHES, watches("/c0", 2));
    script.call(A, OP_REMOVE_WATCHES, watches("/c0", 3));
    script.call(A, OP_REMOVE_WATCHES, watches("/c0", 3));
    script.call(B, OP_CREATE, create_body("/c0/unwatched", None, &OPEN, 0));
    script.call(A, OP_PING, Bytes::new());
    let members = [(OP_GET_DATA, read_body("/c0", false)), (OP_GET_CHILDREN, read_body("/c0", false))];
    script.call(A, OP_MULTI_READ, multi_body(&members));
    let members = [(OP_GET_DATA, read_body("/nothing", false)), (OP_GET_DATA, read_body("/c0", false))];
    script.call(A, OP_MULTI_READ, multi_body(&members));
}

fn multis(script: &mut Script) {
    let create = |path: &str, op: i32| (op, create_body(path, Some(b"m"), &OPEN, 0));
    let set = |path: &str, version| (OP_SET_DATA, versioned(path, Some(Some(b"s")), version));
    let check = |path: &str, version| (OP_CHECK, versioned(path, None, version));
    let delete = |path: &str| (OP_DELETE, versioned(path, None, -1));
    script.call(A, OP_MULTI, multi_body(&[]));
    let members =
        [create("/m", OP_CREATE), create("/m/k", OP_CREATE2), set("/m", 0), check("/m", 1), delete("/m/k")];
    script.call(A, OP_MULTI, multi_body(&members));
    script.call(A, OP_EXISTS, read_body("/m", true));
    script.call(A, OP_MULTI, multi_body(&[create("/n", OP_CREATE), set("/m", 7), delete("/nothing")]));
    script.call(A, OP_MULTI, multi_body(&[check("/nothing", 0), create("/n", OP_CREATE)]));
    script.call(A, OP_MULTI, multi_body(&[create("/n", OP_CREATE), create("/n", OP_CREATE)]));
    script.call(A, OP_EXISTS, read_body("/n", false));
    script.call(A, OP_MULTI, multi_body(&[delete("/m"), create("/m", OP_CREATE)]));
    script.call(A, OP_EXISTS, read_body("/m", false));
    let sequential = (OP_CREATE, create_body("/m/s-", None, &OPEN, 2));
    script.call(A, OP_MULTI, multi_body(&[sequential.clone(), sequential]));
    script.call(A, OP_GET_CHILDREN2, read_body("/m", false));
}

fn access_lists(script: &mut Script) {
    let set = |path: &str, acl: &[(i32, &str, &str)], version: i32| {
        body(|writer| {
            writer.text(path);
            put_acl(writer, acl);
            writer.int(version);
        })
    };
    let get = |path: &str| body(|writer| writer.text(path));
    let auth = |scheme: &str, credentials: &[u8]| {
        body(|writer| {
            writer.int(0);
            writer.text(scheme);
            writer.buffer(Some(credentials));
        })
    };
    script.call(A, OP_GET_ACL, get("/m"));
    script.call(A, OP_GET_ACL, get("/nothing"));
    script.call(A, OP_CREATE, create_body("/mine", None, &[(31, "auth", "")], 0));
    script.call(A, OP_WHO_AM_I, Bytes::new());
    script.call(A, OP_AUTH, auth("digest", b"me:secret"));
    script.call(A, OP_WHO_AM_I, Bytes::new());
    let list = [(31, "auth", ""), (1, "world", "anyone")];
    script.call(A, OP_CREATE2, create_body("/mine", Some(b"x"), &list, 0));
    script.call(A, OP_CREATE, create_body("/mine/own", Some(b"x"), &list[..1], 0));
    script.call(A, OP_GET_ACL, get("/mine"));
    script.call(B, OP_GET_ACL, get("/mine"));
    script.call(B, OP_GET_ACL, get("/mine/own"));
    script.call(B, OP_GET_DATA, read_body("/mine", false));
    script.call(B, OP_GET_DATA, read_body("/mine/own", true));
    script.call(B, OP_GET_CHILDREN, read_body("/mine/own", true));
    script.call(B, OP_EXISTS, read_body("/mine/own", false));
    script.call(B, OP_SET_DATA, versioned("/mine", Some(None), 7));
    script.call(B, OP_CREATE, create_body("/mine/theirs", None, &OPEN, 0));
    script.call(B, OP_DELETE, versioned("/mine/own", None, 9));
    script.call(B, OP_MULTI, multi_body(&[(OP_CHECK, versioned("/mine/own", None, 0))]));
    script.call(B, OP_SET_ACL, set("/mine", &OPEN, -1));
    script.call(A, OP_SET_ACL, set("/mine", &[(3, "ip", "127.0.0.1"), (16, "auth", "")], 0));
    script.call(A, OP_SET_ACL, set("/mine", &OPEN, 0));
    script.call(B, OP_SET_DATA, versioned("/mine", Some(None), -1));
    script.call(B, OP_CREATE, create_body("/mine/theirs", None, &OPEN, 0));
    script.call(A, OP_GET_ACL, get("/mine"));
    for (scheme, id) in
        [("world", "x"), ("digest", "x"), ("digest", "a:b"), ("ip", "x"), ("ip", "10.0.0.0/8"), ("foo", "x")]
    {
        script.call(
            A,
            OP_CREATE,
            create_body(&format!("/acl-{scheme}-{}", id.len()), None, &[(31, scheme, id)], 0),
        );
    }
    script.call(A, OP_SET_ACL, set("/mine", &[], -1));
    script.call(A, OP_SET_ACL, set("/nothing", &OPEN, -1));
    script.call(B, OP_AUTH, auth("digest", b"me:secret"));
    script.call(B, OP_GET_DATA, read_body("/mine/own", false));
}

fn watches_set_again(script: &mut Script) {
    let seen_zxid = script.clients[B].seen_zxid;
    script.call(A, OP_CREATE, create_body("/again", None, &OPEN, 0));
    script.call(A, OP_SET_DATA, versioned("/m", Some(None), -1));
    script.call(A, OP_CREATE, create_body("/c0/again", None, &OPEN, 0));
    let set =
        set_watches_body(seen_zxid, &["/m", "/gone", "/c1"], &["/again", "/later"], &["/c0", "/gone", "/m"]);
    script.call(B, OP_SET_WATCHES, set);
    for path in ["/later", "/m/more"] {
        script.call(A, OP_CREATE, create_body(path, None, &OPEN, 0));
    }
    script.call(A, OP_SET_DATA, versioned("/c1", Some(None), -1));
    script.call(B, OP_PING, Bytes::new());
}

fn odd_requests(script: &mut Script) {
    script.call(A, OP_EXISTS, Bytes::new());
    script.call(A, OP_SET_DATA, Bytes::from_static(b"\0\0\0\x02/c"));
    script.call(A, OP_GET_DATA, Bytes::from_static(&[0x7f; 20]));
    script.call(A, OP_EXISTS, read_body("/c0", false));
}

fn ends(script: &mut Script, address: SocketAddr) {
    script.call(A, OP_EXISTS, read_body("/d1", true));
    script.call(B, OP_EXISTS, read_body("/d1", true));
    script.call(A, OP_CLOSE, Bytes::new());
    let rest = script.clients[A].rest();
    script.note(format!("A's connection ends after {} bytes", rest.len()));
    script.call(B, OP_PING, Bytes::new());
    let gone = &script.clients[A];
    let again = RawClient::connect(address, gone.seen_zxid, 30_000, gone.session, &gone.password);
    script.note(format!("A's session: {} {} {:?}", again.timeout_ms, again.session, again.password));
    let wrong = RawClient::connect(address, 0, 30_000, script.clients[B].session, &[7; 16]);
    script.note(format!("B's session for a stranger: {}", wrong.timeout_ms));
    for asked in [-5, 0, 4_001, 1_000_000] {
        let client = RawClient::open(address, asked);
        // The real one was started with a tick of half a second.
        script.note(format!("{asked} gives {}", client.timeout_ms.clamp(4_000, 10_000)));
    }
    let mut unknown = RawClient::open(address, 30_000);
    unknown.send(77, &[]);
    let code = unknown.answer().map(|(_, answer)| answer.code);
    script.note(format!("an unknown request: {code:?}, then {} bytes", unknown.rest().len()));
    let mut refused = RawClient::open(address, 30_000);
    refused.send(
        OP_AUTH,
        &body(|writer| {
            writer.int(0);
            writer.text("nothing");
            writer.buffer(Some(b"x"));
        }),
    );
    let code = refused.answer().map(|(_, answer)| answer.code);
    script.note(format!("an unknown scheme: {code:?}, then {} bytes", refused.rest().len()));
}

impl Script {
    fn note(&mut self, text: String) {
        self.lines.push(Line { text, zxids: Vec::new() });
    }

    fn call(&mut self, client: usize, op: i32, request: Bytes) {
        let name = if client == A { 'A' } else { 'B' };
        let mut answer = self.clients[client].call(op, &request);
        while let Some((kind, path)) = self.clients[client].events.pop_front() {
            self.note(format!("{name} is told {kind} {path}"));
        }
        let mut shown = String::from_utf8_lossy(&request).replace(char::is_control, ".");
        if op == OP_SET_WATCHES {
            // It begins with a transaction's number.
            shown.clear();
        }
        let mut line = Line { text: format!("{name} {op} {shown}: {}", answer.code), zxids: Vec::new() };
        if answer.code == 0 {
            self.show(op, &mut answer.body, &mut line);
            let _ = write!(line.text, " rest {}", answer.body.is_empty());
        }
        self.lines.push(line);
    }

    fn show(&self, op: i32, reader: &mut Reader, line: &mut Line) {
        let text = &mut line.text;
        match op {
            OP_CREATE | OP_SYNC => {
                let _ = write!(text, " {}", reader.text().unwrap());
            }
            OP_CREATE2 => {
                let _ = write!(text, " {}", reader.text().unwrap());
                self.show_stat(&reader.stat().unwrap(), line);
            }
            OP_EXISTS | OP_SET_DATA | OP_SET_ACL => self.show_stat(&reader.stat().unwrap(), line),
            OP_GET_DATA => {
                let _ = write!(text, " {:?}", reader.buffer().unwrap());
                self.show_stat(&reader.stat().unwrap(), line);
            }
            OP_GET_CHILDREN | OP_GET_CHILDREN2 | OP_GET_EPHEMERALS => {
                let mut names = reader.texts().unwrap();
                names.sort();
                let _ = write!(text, " {names:?}");
                if op == OP_GET_CHILDREN2 {
                    self.show_stat(&reader.stat().unwrap(), line);
                }
            }
            OP_GET_ACL => {
                for _ in 0..reader.int().unwrap() {
                    let (permissions, scheme, id) =
                        (reader.int().unwrap(), reader.text().unwrap(), reader.text().unwrap());
                    let _ = write!(line.text, " {permissions}:{scheme}:{id}");
                }
                self.show_stat(&reader.stat().unwrap(), line);
            }
            OP_WHO_AM_I => {
                let mut known = Vec::new();
                for _ in 0..reader.int().unwrap() {
                    known.push((reader.text().unwrap(), reader.text().unwrap()));
                }
                known.sort();
                let _ = write!(text, " {known:?}");
            }
            OP_COUNT_DESCENDANTS => {
                let _ = write!(text, " {}", reader.int().unwrap());
            }
            OP_MULTI | OP_MULTI_READ => self.show_multi(reader, line),
            _ => {}
        }
    }

    fn show_multi(&self, reader: &mut Reader, line: &mut Line) {
        loop {
            let (op, is_last, code) =
                (reader.int().unwrap(), reader.boolean().unwrap(), reader.int().unwrap());
            let _ = write!(line.text, " [{op} {is_last} {code}");
            match op {
                _ if is_last => {
                    line.text.push(']');
                    return;
                }
                OP_ERROR => {
                    let _ = write!(line.text, " {}", reader.int().unwrap());
                }
                op => self.show(op, reader, line),
            }
            line.text.push(']');
        }
    }

    fn show_stat(&self, stat: &Stat, line: &mut Line) {
        let owner = match stat.ephemeral_owner {
            0 => "nobody",
            owner if owner == self.clients[A].session => "A",
            owner if owner == self.clients[B].session => "B",
            _ => "somebody",
        };
        let _ = write!(
            line.text,
            " version {} children {} {} acl {} of {owner}, {} bytes, modified {}",
            stat.version,
            stat.child_version,
            stat.children,
            stat.acl_version,
            stat.data_length,
            stat.modified_ms >= stat.created_ms,
        );
        line.zxids.extend([stat.czxid, stat.mzxid, stat.pzxid]);
    }

    /// The transactions by their order.
    fn finish(self) -> Vec<String> {
        let all: BTreeSet<i64> = self.lines.iter().flat_map(|line| line.zxids.iter().copied()).collect();
        let rank = |zxid: &i64| all.range(..zxid).count();
        let numbered = self.lines.iter().enumerate().map(|(at, line)| {
            let zxids: Vec<usize> = line.zxids.iter().map(rank).collect();
            format!("{at} {} {zxids:?}", line.text)
        });
        numbered.collect()
    }
}
