use std::collections::BTreeMap;
use std::process::Command;

use tempfile::TempDir;

use crate::broker::run_peer_script;
use crate::machine::{Port, free_port, protocol_tests_dir};

/// One real ZooKeeper server. Dropping it stops it.
pub struct ZooKeeper {
    port: Port,
    dir: TempDir,
    settings: Vec<String>,
}

/// A node as `peers/zk-dump` prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Znode {
    /// `persistent` or `ephemeral`.
    pub kind: String,
    pub version: i32,
    pub acl: String,
    /// `\N` = null.
    pub data: String,
}

impl ZooKeeper {
    /// Starts a server with lines on top of the peers' configuration, such as `tickTime=500`.
    #[track_caller]
    pub fn start(settings: &[&str]) -> ZooKeeper {
        let zookeeper = ZooKeeper {
            port: free_port(),
            dir: tempfile::tempdir().expect("create a ZooKeeper folder"),
            settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
        };
        zookeeper.start_again();
        zookeeper
    }

    #[track_caller]
    pub fn start_again(&self) {
        let (port, dir) = (self.port.number.to_string(), self.dir_text());
        let mut arguments = vec!["start", "--port", &port, "--dir", &dir];
        for setting in &self.settings {
            arguments.extend(["--override", setting]);
        }
        run_peer_script("zookeeper", &arguments);
    }

    /// Stops the server; its data stay for [`ZooKeeper::start_again`].
    #[track_caller]
    pub fn stop(&self) {
        run_peer_script("zookeeper", &["stop", "--dir", &self.dir_text()]);
    }

    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// `host:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port.number)
    }

    /// The whole tree below `chroot`, by path.
    #[track_caller]
    pub fn dump(&self, chroot: &str) -> BTreeMap<String, Znode> {
        dump_tree(&format!("{}{chroot}", self.address()))
    }

    fn dir_text(&self) -> String {
        self.dir.path().display().to_string()
    }
}

impl Drop for ZooKeeper {
    fn drop(&mut self) {
        let _ = Command::new(protocol_tests_dir().join("peers/zookeeper"))
            .args(["stop", "--dir", &self.dir_text()])
            .output();
    }
}

/// The whole tree of whoever speaks ZooKeeper's protocol at `host:port/chroot`, by path, as a Java client reads it.
#[track_caller]
pub fn dump_tree(address: &str) -> BTreeMap<String, Znode> {
    let script = protocol_tests_dir().join("peers/zk-dump");
    let output = Command::new(script).arg(address).output().expect("run zk-dump");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let node = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [path, kind, version, acl, data] = fields[..] else { panic!("zk-dump printed {line:?}") };
        let node = Znode {
            kind: kind.to_owned(),
            version: version.parse().expect("a version"),
            acl: acl.to_owned(),
            data: data.to_owned(),
        };
        (path.to_owned(), node)
    };
    text.lines().skip(1).map(node).collect()
}
