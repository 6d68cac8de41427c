//! The promises of a store on a real ZooKeeper server, which `protocol-tests/peers/zookeeper` starts.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::coordination::conformance::{Subject, conformance};
use crate::coordination::{
    BoxFuture, Create, CreateMode, Ensemble, Operation, SessionState, Store, StoreError, WatchKind,
};
use crate::runtime::Random;

/// One server, which ends with the value.
pub(in crate::coordination) struct RealZooKeeper {
    pub(in crate::coordination) port: u16,
    dir: tempfile::TempDir,
}

impl RealZooKeeper {
    /// `None` where there is no Java.
    pub(in crate::coordination) fn start() -> Option<RealZooKeeper> {
        if Command::new("java").arg("-version").stderr(Stdio::null()).status().is_err() {
            eprintln!("left out: there is no java to run ZooKeeper with");
            return None;
        }
        let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = probe.local_addr().unwrap().port();
        drop(probe);
        let server = RealZooKeeper { port, dir: tempfile::tempdir().unwrap() };
        server.start_again();
        Some(server)
    }

    fn start_again(&self) {
        let port = self.port.to_string();
        self.script(&["start", "--port", &port, "--override", "tickTime=500", "--dir"]);
    }

    fn stop(&self) {
        self.script(&["stop", "--dir"]);
    }

    fn script(&self, arguments: &[&str]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("protocol-tests/peers/zookeeper");
        let output = std::fs::File::create(self.dir.path().join("script.log")).unwrap();
        let status =
            Command::new(script).args(arguments).arg(self.dir.path()).stdout(output).status().unwrap();
        assert!(status.success(), "{arguments:?}: {status}");
    }

    fn ensemble(&self, chroot: &str, change: impl FnOnce(&mut ZooKeeperOptions)) -> ZooKeeperEnsemble {
        let mut options = ZooKeeperOptions {
            connect: ConnectString::parse(&format!("127.0.0.1:{}{chroot}", self.port)).unwrap(),
            session_timeout: Duration::from_secs(4),
            connection_timeout: Duration::from_secs(10),
            in_flight_max: 10,
            request_bytes_max: 0xf_ffff,
            acl: AclPolicy::Open,
            auth: Vec::new(),
            sasl: None,
            tls: None,
            random: Random::from_seed(1),
        };
        change(&mut options);
        ZooKeeperEnsemble::new(options).unwrap()
    }
}

impl Drop for RealZooKeeper {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Subject for ZooKeeperEnsemble {
    fn ensemble(&self) -> &dyn Ensemble {
        self
    }

    fn expire(&self, session: i64) -> BoxFuture<'_, ()> {
        Box::pin(self.expire_session(session))
    }
}

fn node(path: &str, mode: CreateMode, data: Option<Bytes>) -> Create {
    Create { path: path.to_owned(), data, mode }
}

#[tokio::test]
async fn a_real_zookeeper_conforms_and_outages_are_ridden_out() {
    let Some(server) = RealZooKeeper::start() else { return };
    let ensemble = server.ensemble("/deep/chroot", |_| {});
    ensemble.create_chroot().await.unwrap();
    ensemble.create_chroot().await.unwrap();
    conformance(&ensemble).await;

    a_request_that_is_too_large_is_not_sent(&ensemble).await;
    many_calls_are_pipelined(&ensemble).await;
    access_lists_are_kafkas(&server).await;
    the_session_and_its_watches_outlive_a_restart(&server, &ensemble).await;
    nobody_listening_is_told_in_time(&server).await;
}

async fn a_request_that_is_too_large_is_not_sent(ensemble: &ZooKeeperEnsemble) {
    let session = ensemble.session().await.unwrap();
    let fits = Bytes::from(vec![b'x'; 1_000_000]);
    session.create(node("/large", CreateMode::Persistent, Some(fits))).await.unwrap();
    let too_large = Bytes::from(vec![b'x'; 1024 * 1024]);
    let refused = session.set("/large", Some(too_large.clone()), None).await;
    assert!(matches!(refused, Err(StoreError::TooLarge { .. })), "{refused:?}");
    let set = Operation::Set { path: "/large".into(), data: Some(too_large), version: None };
    let refused = session.multi(vec![set]).await;
    assert!(matches!(refused, Err((0, StoreError::TooLarge { .. }))), "{refused:?}");
    assert_eq!(session.session_state(), SessionState::Connected);
    assert_eq!(session.read("/large").await.unwrap().stat.version, 0);
}

async fn many_calls_are_pipelined(ensemble: &ZooKeeperEnsemble) {
    let session = ensemble.session().await.unwrap();
    session.create(node("/many", CreateMode::Persistent, None)).await.unwrap();
    let creations: Vec<_> = (0..2_000)
        .map(|number| session.create(node(&format!("/many/{number:04}"), CreateMode::Persistent, None)))
        .collect();
    for creation in creations {
        creation.await.unwrap();
    }
    let names = session.children("/many").await.unwrap();
    assert_eq!((names.len(), names[1999].as_str()), (2_000, "1999"));
}

async fn access_lists_are_kafkas(server: &RealZooKeeper) {
    let secure = server.ensemble("/acl", |options| {
        options.acl = AclPolicy::Creator;
        options.auth = vec![("digest".to_owned(), Bytes::from_static(b"kafka:secret"))];
    });
    secure.create_chroot().await.unwrap();
    let session = secure.session().await.unwrap();
    for path in ["/config", "/config/users", "/config/users/a", "/consumers"] {
        session.create(node(path, CreateMode::Persistent, None)).await.unwrap();
    }
    let stranger = server.ensemble("/acl", |_| {}).session().await.unwrap();
    assert!(stranger.read("/config").await.is_ok());
    let not_authorized = |path: &str| StoreError::NotAuthorized { path: path.to_owned() };
    assert_eq!(stranger.set("/config", None, None).await, Err(not_authorized("/config")));
    assert_eq!(stranger.read("/config/users/a").await, Err(not_authorized("/config/users/a")));
    assert!(stranger.create(node("/consumers/g", CreateMode::Persistent, None)).await.is_ok());
    assert!(session.set("/config/users/a", None, None).await.is_ok());
}

async fn the_session_and_its_watches_outlive_a_restart(server: &RealZooKeeper, ensemble: &ZooKeeperEnsemble) {
    let session = ensemble.session().await.unwrap();
    session.create(node("/e", CreateMode::Ephemeral, None)).await.unwrap();
    let (_, data) = session.read_and_watch("/e").await.unwrap();
    let (_, appearance) = session.exists_and_watch("/later").await.unwrap();
    let (_, children) = session.children_and_watch("/").await.unwrap();
    server.stop();
    let unknown = session.read("/e").await;
    assert!(matches!(unknown, Err(StoreError::OutcomeUnknown { .. })), "{unknown:?}");
    assert_eq!(session.session_state(), SessionState::Disconnected);
    server.start_again();
    let other = ensemble.session().await.unwrap();
    other.create(node("/later", CreateMode::Persistent, None)).await.unwrap();
    other.set("/e", Some(Bytes::from_static(b"x")), None).await.unwrap();
    // Some changes come before the session is back and some after; all are told.
    assert_eq!(data.await.unwrap().kind, WatchKind::DataChanged);
    assert_eq!(appearance.await.unwrap().kind, WatchKind::Created);
    assert_eq!(children.await.unwrap().kind, WatchKind::ChildrenChanged);
    let stat = session.exists("/e").await.unwrap().unwrap();
    assert_eq!(stat.ephemeral_owner, session.session_id());
}

async fn nobody_listening_is_told_in_time(server: &RealZooKeeper) {
    let nobody = server.ensemble("", |options| {
        options.connect = ConnectString::parse("127.0.0.1:1").unwrap();
        options.connection_timeout = Duration::from_millis(300);
    });
    let error = nobody.session().await.unwrap_err().to_string();
    assert!(error.contains("within 300 ms: 127.0.0.1:1:"), "{error}");
}
