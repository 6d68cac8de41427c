use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::raw_client::{OPEN, RawClient, create_body, multi_body, read_body, set_watches_body, versioned};
use super::*;
use crate::coordination::codes::*;
use crate::coordination::conformance::{Subject, conformance};
use crate::coordination::{
    AclPolicy, BoxFuture, ConnectString, Create, CreateMode, EmbeddedStore, EmbeddedStoreOptions, Ensemble,
    LastingSessions, Store, ZooKeeperEnsemble, ZooKeeperOptions,
};
use crate::runtime::fs::{DiskFileSystem, Durability};
use crate::runtime::{Clock, Random};

/// A store and its port, in this process.
pub(crate) struct Port {
    server: Option<ZooKeeperServer>,
    store: Option<EmbeddedStore>,
    runtime: tokio::runtime::Runtime,
    dir: tempfile::TempDir,
    tick: Duration,
}

impl Port {
    /// Sessions last 2 to 20 ticks.
    pub(crate) fn start(tick: Duration) -> Port {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut port = Port { server: None, store: None, runtime, dir, tick };
        port.start_again();
        port
    }

    fn start_again(&mut self) {
        let store = open_store(self.dir.path(), LastingSessions::Kept);
        let options = ZooKeeperServerOptions {
            tick: self.tick,
            words: FourLetterWords::parse("*"),
            ..ZooKeeperServerOptions::default()
        };
        let bound = BoundServer::bind("127.0.0.1:0").unwrap();
        self.server = Some(self.runtime.block_on(bound.serve(&store, options)).unwrap());
        self.store = Some(store);
    }

    /// Ends the process's part: what is left is on disk.
    fn restart(&mut self) {
        self.server = None;
        self.store = None;
        self.start_again();
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.as_ref().unwrap().address()
    }

    fn client(&self) -> RawClient {
        RawClient::open(self.address(), 40_000)
    }

    fn resumed(&self, (session, password, seen_zxid): &(i64, Bytes, i64)) -> RawClient {
        RawClient::connect(self.address(), *seen_zxid, 40_000, *session, password)
    }
}

fn open_store(dir: &Path, lasting_sessions: LastingSessions) -> EmbeddedStore {
    let options = EmbeddedStoreOptions {
        file_system: Arc::new(DiskFileSystem),
        dir: dir.to_owned(),
        clock: Clock::system(),
        durability: Durability::Cached,
        lasting_sessions,
    };
    EmbeddedStore::open(options).unwrap().store
}

/// Long enough that no session ends while a test is slow.
const LONG: Duration = Duration::from_secs(2);

const PERSISTENT: i32 = 0;
const EPHEMERAL: i32 = 1;
const SEQUENTIAL: i32 = 2;

const CREATED: i32 = 1;
const DELETED: i32 = 2;
const DATA_CHANGED: i32 = 3;
const CHILDREN_CHANGED: i32 = 4;

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited for {what}");
        std::thread::yield_now();
    }
}

#[tokio::test]
async fn the_zookeeper_back_end_finds_its_promises_kept() {
    struct Through(ZooKeeperEnsemble);
    impl Subject for Through {
        fn ensemble(&self) -> &dyn Ensemble {
            &self.0
        }

        fn expire(&self, session: i64) -> BoxFuture<'_, ()> {
            Box::pin(self.0.expire_session(session))
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let store = open_store(dir.path(), LastingSessions::Kept);
    let bound = BoundServer::bind("127.0.0.1:0").unwrap();
    let server = bound.serve(&store, ZooKeeperServerOptions::default()).await.unwrap();
    let ensemble = ZooKeeperEnsemble::new(ZooKeeperOptions {
        connect: ConnectString::parse(&format!("{}/deep/chroot", server.address())).unwrap(),
        session_timeout: Duration::from_secs(4),
        connection_timeout: Duration::from_secs(10),
        in_flight_max: 10,
        request_bytes_max: 0xf_ffff,
        acl: AclPolicy::Open,
        auth: Vec::new(),
        sasl: None,
        tls: None,
        random: Random::from_seed(1),
    })
    .unwrap();
    ensemble.create_chroot().await.unwrap();
    conformance(&Through(ensemble)).await;
}

#[test]
fn timeouts_are_bounded_by_ticks() {
    let port = Port::start(Duration::from_secs(1));
    let negotiated = |asked| RawClient::open(port.address(), asked).timeout_ms;
    assert_eq!([negotiated(-1), negotiated(6_000), negotiated(i32::MAX)], [2_000, 6_000, 20_000]);
}

#[test]
fn a_silent_session_ends_and_takes_its_ephemeral_nodes_along() {
    let port = Port::start(Duration::from_millis(50));
    let mut silent = RawClient::open(port.address(), 100);
    let mut other = RawClient::open(port.address(), 1_000);
    assert_eq!(silent.create("/e", EPHEMERAL), (0, "/e".to_owned()));
    assert_eq!(silent.create("/p", PERSISTENT).0, 0);
    assert_eq!(other.exists("/e", true), 0);
    wait_until("the end of the session", || other.exists("/e", false) == CODE_NO_NODE);
    assert_eq!(other.events.pop_front(), Some((DELETED, "/e".to_owned())));
    assert_eq!(other.exists("/p", false), 0);
    assert_eq!(silent.rest(), [0; 0], "the connection is closed");
    assert_eq!(port.resumed(&silent.vanish()).timeout_ms, 0);
}

#[test]
fn a_session_goes_on_with_its_password_and_its_old_connection_ends() {
    let port = Port::start(LONG);
    let mut first = port.client();
    first.create("/e", EPHEMERAL);
    let held = (first.session, first.password.clone(), first.seen_zxid);
    let wrong = (held.0, Bytes::from_static(&[1; 16]), 0);
    assert_eq!(port.resumed(&wrong).timeout_ms, 0);
    assert_eq!(first.exists("/e", false), 0, "a stranger does no harm");
    let mut second = port.resumed(&held);
    assert_eq!((second.session, second.timeout_ms), (held.0, 40_000));
    assert_eq!(first.rest(), [0; 0]);
    assert_eq!(second.exists("/e", false), 0);
    let closed = second.call(OP_CLOSE, &[]);
    assert_eq!(closed.code, 0);
    assert_eq!(second.rest(), [0; 0]);
    assert_eq!(port.resumed(&held).timeout_ms, 0);
    assert_eq!(port.client().exists("/e", false), CODE_NO_NODE);
}

#[test]
fn sessions_outlive_a_restart_and_expire_after_it() {
    let mut port = Port::start(Duration::from_millis(100));
    let mut kept = RawClient::open(port.address(), 2_000);
    let mut lost = RawClient::open(port.address(), 200);
    kept.create("/kept", EPHEMERAL);
    lost.create("/lost", EPHEMERAL);
    let acl = [(31, "auth", "")];
    kept.call(
        OP_AUTH,
        &super::raw_client::body(|writer| {
            writer.int(0);
            writer.text("digest");
            writer.buffer(Some(b"me:secret"));
        }),
    );
    assert_eq!(kept.call(OP_CREATE, &create_body("/mine", None, &acl, PERSISTENT)).code, 0);
    port.restart();
    let kept = kept.vanish();
    let mut again = port.resumed(&kept);
    assert_eq!((again.session, again.exists("/kept", false)), (kept.0, 0));
    assert_eq!(again.call(OP_GET_DATA, &read_body("/mine", false)).code, CODE_NOT_AUTHORIZED);
    wait_until("the end of the other session", || again.exists("/lost", false) == CODE_NO_NODE);
    assert_eq!(port.resumed(&lost.vanish()).timeout_ms, 0);
}

#[test]
fn sessions_end_when_the_port_is_not_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = open_store(dir.path(), LastingSessions::Kept);
    let bound = BoundServer::bind("127.0.0.1:0").unwrap();
    let server = runtime.block_on(bound.serve(&store, ZooKeeperServerOptions::default())).unwrap();
    RawClient::open(server.address(), 40_000).create("/e", EPHEMERAL);
    drop(server);
    drop(store);
    let store = open_store(dir.path(), LastingSessions::Ended);
    let exists = store.session().unwrap().exists("/e");
    assert_eq!(runtime.block_on(exists), Ok(None));
}

#[test]
fn a_client_of_a_later_history_is_sent_away() {
    let port = Port::start(LONG);
    let mut client = RawClient::dial(port.address());
    client.send_greeting(1_000_000, 6_000, 0, &[0; 16]);
    assert_eq!(client.rest(), [0; 0]);
}

#[test]
fn a_change_is_told_before_it_is_seen() {
    let port = Port::start(LONG);
    let (mut watcher, mut writer) = (port.client(), port.client());
    writer.create("/a", PERSISTENT);
    for version in 0..200 {
        assert_eq!(watcher.call(OP_GET_DATA, &read_body("/a", true)).code, 0);
        writer.send(OP_SET_DATA, &versioned("/a", Some(Some(b"x")), version));
        loop {
            let mut answer = watcher.call(OP_EXISTS, &read_body("/a", false));
            if answer.body.stat().unwrap().version > version {
                assert_eq!(watcher.events.pop_front(), Some((DATA_CHANGED, "/a".to_owned())));
                break;
            }
        }
        assert_eq!(writer.answer().map(|(_, answer)| answer.code), Some(0));
    }
}

#[test]
fn answers_come_in_the_order_of_the_requests() {
    let port = Port::start(LONG);
    let mut client = port.client();
    let sent: Vec<i32> = (0..3_000)
        .map(|number| match number % 3 {
            0 => client.send(OP_CREATE, &create_body(&format!("/n{number}"), None, &OPEN, PERSISTENT)),
            1 => client.send(OP_EXISTS, &read_body(&format!("/n{}", number - 1), false)),
            _ => client.send(OP_DELETE, &versioned(&format!("/n{}", number - 2), None, 0)),
        })
        .collect();
    let mut zxid = 0;
    for expected in sent {
        let (xid, answer) = client.answer().unwrap();
        assert_eq!((xid, answer.code), (expected, 0));
        assert!(answer.zxid >= zxid);
        zxid = answer.zxid;
    }
}

#[test]
fn watches_are_set_again_after_what_was_missed_was_told() {
    let port = Port::start(LONG);
    let mut writer = port.client();
    for path in ["/same", "/set", "/gone", "/parent", "/quiet"] {
        writer.create(path, PERSISTENT);
    }
    let seen_zxid = writer.seen_zxid;
    writer.call(OP_SET_DATA, &versioned("/set", Some(None), -1));
    writer.call(OP_DELETE, &versioned("/gone", None, -1));
    writer.create("/parent/child", PERSISTENT);
    writer.create("/appeared", PERSISTENT);
    let mut client = port.client();
    let data = ["/same", "/set", "/gone"];
    let set = set_watches_body(seen_zxid, &data, &["/appeared", "/absent"], &["/parent", "/quiet", "/gone"]);
    assert_eq!(client.call(OP_SET_WATCHES, &set).code, 0);
    let told: Vec<_> = client.events.drain(..).collect();
    let expected = [
        (DATA_CHANGED, "/set"),
        (DELETED, "/gone"),
        (CREATED, "/appeared"),
        (CHILDREN_CHANGED, "/parent"),
        (DELETED, "/gone"),
    ];
    assert_eq!(told, expected.map(|(kind, path)| (kind, path.to_owned())));
    writer.call(OP_SET_DATA, &versioned("/same", Some(None), -1));
    writer.create("/absent", PERSISTENT);
    writer.create("/quiet/child", PERSISTENT);
    client.call(OP_PING, &[]);
    let told: Vec<_> = client.events.drain(..).collect();
    let expected = [(DATA_CHANGED, "/same"), (CREATED, "/absent"), (CHILDREN_CHANGED, "/quiet")];
    assert_eq!(told, expected.map(|(kind, path)| (kind, path.to_owned())));
}

#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    let port = Port::start(LONG);
    let mut client = port.client();
    let large = vec![b'x'; 1_000_000];
    assert_eq!(client.call(OP_CREATE, &create_body("/large", Some(&large), &OPEN, PERSISTENT)).code, 0);
    // A gigabyte of answers is asked for and not taken; others are served meanwhile.
    for _ in 0..1_000 {
        client.send(OP_GET_DATA, &read_body("/large", false));
    }
    assert_eq!(port.client().exists("/large", false), 0);
    let many = multi_body(&vec![(OP_GET_DATA, read_body("/large", false)); 30]);
    assert_eq!(port.client().call(OP_MULTI_READ, &many).code, CODE_SYSTEM_ERROR);
    for _ in 0..1_000 {
        assert_eq!(client.answer().unwrap().1.code, 0);
    }
}

#[test]
fn what_is_no_request_costs_one_connection() {
    let port = Port::start(LONG);
    let mut good = port.client();
    for bytes in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 64], &[0x7f, 0xff, 0xff, 0xff], b"\0\0\0\x02ab", b"\0\0\0\0"]
    {
        let mut client = RawClient::dial(port.address());
        client.send_bytes(bytes);
        assert_eq!(client.rest(), [0; 0], "{bytes:?}");
        let mut client = port.client();
        client.send_bytes(bytes);
        // Frames that are too short or too long end a session's connection as well.
        assert_eq!(client.rest(), [0; 0], "{bytes:?}");
        assert_eq!(good.exists("/", false), 0);
    }
    let mut client = port.client();
    assert_eq!(client.call(OP_SET_DATA, b"").code, CODE_MALFORMED);
    assert_eq!(client.call(OP_CREATE, &[0x7f; 30]).code, CODE_MALFORMED);
    assert_eq!(client.exists("/", false), 0, "the connection is good");
    let too_large = vec![0; 0x10_0000];
    client.send(OP_SET_DATA, &too_large);
    assert!(client.answer().is_none());
}

#[test]
fn containers_and_times_to_live_are_not_implemented() {
    let port = Port::start(LONG);
    let mut client = port.client();
    for (op, flags, expected) in [
        (OP_CREATE, 4, CODE_UNIMPLEMENTED),
        (OP_CREATE_CONTAINER, 4, CODE_UNIMPLEMENTED),
        (OP_CREATE_TTL, 5, CODE_UNIMPLEMENTED),
        (OP_CREATE, 17, CODE_BAD_ARGUMENTS),
    ] {
        assert_eq!(client.call(op, &create_body("/a", None, &OPEN, flags)).code, expected, "{op} {flags}");
    }
    client.send(77, &[]);
    assert_eq!(client.answer().map(|(_, answer)| answer.code), Some(CODE_UNIMPLEMENTED));
    assert!(client.answer().is_none(), "what is unknown ends the connection, as in ZooKeeper");
}

#[test]
fn many_sessions_are_served() {
    let port = Port::start(LONG);
    let mut clients: Vec<RawClient> = (0..300).map(|_| port.client()).collect();
    for client in &mut clients {
        assert_eq!(client.exists("/", true), 0);
        client.create("/s", SEQUENTIAL | EPHEMERAL);
    }
    clients[0].call(OP_SET_DATA, &versioned("/", Some(None), -1));
    for client in &mut clients {
        client.call(OP_PING, &[]);
        assert_eq!(client.events.drain(..).collect::<Vec<_>>(), [(DATA_CHANGED, "/".to_owned())]);
    }
}

#[test]
fn four_letter_words_are_answered() {
    let port = Port::start(LONG);
    let mut client = port.client();
    client.exists("/nothing", true);
    client.create("/e", EPHEMERAL);
    let say = |word: &str| {
        let mut client = RawClient::dial(port.address());
        client.send_bytes(word.as_bytes());
        String::from_utf8(client.rest()).unwrap()
    };
    assert_eq!(say("ruok"), "imok");
    assert_eq!(say("isro"), "rw");
    assert_eq!(say("dump"), "dump is not executed because it is not in the whitelist.\n");
    let srvr = say("srvr");
    assert!(srvr.starts_with("Zookeeper version: 3.8.4-barnabas-"), "{srvr}");
    for line in ["Connections: 1", "Mode: standalone", "Node count: 5", "Zxid: 0x", "Latency min/avg/max: "] {
        assert!(srvr.contains(line), "{line} in {srvr}");
    }
    assert!(say("stat").contains("Clients:\n /127.0.0.1:"));
    assert!(say("cons").contains("sid=0x"));
    assert_eq!(say("wchs"), "1 connections watching 1 paths\nTotal watches:1\n");
    let mntr = say("mntr");
    for line in
        ["zk_znode_count\t5\n", "zk_ephemerals_count\t1\n", "zk_watch_count\t1\n", "zk_global_sessions\t1\n"]
    {
        assert!(mntr.contains(line), "{line} in {mntr}");
    }
    assert!(say("conf").contains("minSessionTimeout=4000\nmaxSessionTimeout=40000\n"));
    assert!(say("envi").starts_with("Environment:\n"));
}

#[test]
fn the_brokers_own_sessions_and_those_of_others_see_each_other() {
    let port = Port::start(LONG);
    let own = port.store.as_ref().unwrap().session().unwrap();
    let mut client = port.client();
    assert_eq!(client.exists("/a", true), CODE_NO_NODE);
    let (_, told) = port.runtime.block_on(own.children_and_watch("/")).unwrap();
    let node = Create { path: "/a".into(), data: None, mode: CreateMode::Ephemeral };
    port.runtime.block_on(own.create(node)).unwrap();
    client.call(OP_PING, &[]);
    assert_eq!(client.events.pop_front(), Some((CREATED, "/a".to_owned())));
    client.create("/b", PERSISTENT);
    assert!(port.runtime.block_on(told).is_ok());
    assert!(port.runtime.block_on(own.exists("/b")).unwrap().is_some());
}
