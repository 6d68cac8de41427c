use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::broker::{kill_by_pid_file, run_peer_script};
use crate::machine::{Port, free_port, protocol_tests_dir};
use crate::wait::wait_for;

/// One real ZooKeeper server, or an ensemble of several. Dropping it stops all.
pub struct ZooKeeper {
    members: Vec<Member>,
    settings: Vec<String>,
    jvm_options: Vec<String>,
}

/// A server with a port and a folder of its own.
struct Member {
    port: Port,
    /// Towards the others: for what is agreed on, and for elections.
    peer_ports: Option<(Port, Port)>,
    dir: TempDir,
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

/// The line for a server whose [`ZooKeeper::dump`] reads what is not for everybody: Base64 of SHA-1 of
/// [`ZooKeeper::READER`].
const READER_DIGEST: &str = "DigestAuthenticationProvider.superDigest=super:lK75jTNcA+U9vtVEw5vB51mj/w4=";

impl ZooKeeper {
    const READER: &str = "super:secret";

    /// Starts a server with lines on top of the peers' configuration, such as `tickTime=500`.
    #[track_caller]
    pub fn start(settings: &[&str]) -> ZooKeeper {
        ZooKeeper::start_with(settings, &[])
    }

    /// As [`ZooKeeper::start`], with options of the JVM.
    #[track_caller]
    pub fn start_with(settings: &[&str], jvm_options: &[&str]) -> ZooKeeper {
        let member = Member { port: free_port(), peer_ports: None, dir: folder() };
        let zookeeper = ZooKeeper::new(vec![member], settings, jvm_options);
        zookeeper.start_again();
        zookeeper
    }

    /// Starts three servers that agree with each other.
    #[track_caller]
    pub fn ensemble_of_three(settings: &[&str]) -> ZooKeeper {
        let member =
            || Member { port: free_port(), peer_ports: Some((free_port(), free_port())), dir: folder() };
        let mut zookeeper = ZooKeeper::new((0..3).map(|_| member()).collect(), settings, &[]);
        for (index, member) in zookeeper.members.iter().enumerate() {
            let id = index + 1;
            if let Some((agreeing, electing)) = &member.peer_ports {
                zookeeper
                    .settings
                    .push(format!("server.{id}=127.0.0.1:{}:{}", agreeing.number, electing.number));
            }
            let data = member.dir.path().join("data");
            std::fs::create_dir_all(&data).expect("create a server's data folder");
            std::fs::write(data.join("myid"), id.to_string()).expect("write a server's id");
        }
        zookeeper.settings.extend(["initLimit=10".to_owned(), "syncLimit=4".to_owned()]);
        zookeeper.start_again();
        zookeeper.leader();
        zookeeper
    }

    fn new(members: Vec<Member>, settings: &[&str], jvm_options: &[&str]) -> ZooKeeper {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let mut settings = owned(settings);
        settings.push(READER_DIGEST.to_owned());
        ZooKeeper { members, settings, jvm_options: owned(jvm_options) }
    }

    /// Starts all servers after [`ZooKeeper::stop`].
    #[track_caller]
    pub fn start_again(&self) {
        (0..self.members.len()).for_each(|index| self.start_member(index));
    }

    /// Stops all servers; their data stay for [`ZooKeeper::start_again`].
    #[track_caller]
    pub fn stop(&self) {
        (0..self.members.len()).for_each(|index| self.stop_member(index));
    }

    #[track_caller]
    pub fn start_member(&self, index: usize) {
        let member = &self.members[index];
        let (port, dir) = (member.port.number.to_string(), member.dir_text());
        let mut arguments = vec!["start", "--port", &port, "--dir", &dir];
        for setting in &self.settings {
            arguments.extend(["--override", setting]);
        }
        for option in &self.jvm_options {
            arguments.extend(["--jvm", option]);
        }
        run_peer_script("zookeeper", &arguments, &[]);
    }

    #[track_caller]
    pub fn stop_member(&self, index: usize) {
        run_peer_script("zookeeper", &["stop", "--dir", &self.members[index].dir_text()], &[]);
    }

    /// SIGKILL.
    #[track_caller]
    pub fn kill_member(&self, index: usize) {
        kill_by_pid_file(&self.members[index].dir.path().join("zookeeper.pid"));
        // The script waits until the process is gone.
        self.stop_member(index);
    }

    /// The member of an ensemble that leads, once one does.
    #[track_caller]
    pub fn leader(&self) -> usize {
        wait_for("a leader of the ensemble", || {
            (0..self.members.len()).find(|index| self.mode(*index).as_deref() == Some("leader"))
        })
    }

    /// Waits until a member serves, whatever it is to the others.
    #[track_caller]
    pub fn wait_until_serving(&self, index: usize) {
        wait_for("a server that serves", || self.mode(index));
    }

    /// What a member says that it is; `None` while it does not serve.
    fn mode(&self, index: usize) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.members[index].port.number)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(b"srvr").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
    }

    /// Of the only server, or of the first.
    pub fn port(&self) -> u16 {
        self.members[0].port.number
    }

    /// `host:port` of all servers, as `zookeeper.connect` takes it.
    pub fn address(&self) -> String {
        let addresses = self.members.iter().map(|member| format!("127.0.0.1:{}", member.port.number));
        addresses.collect::<Vec<_>>().join(",")
    }

    /// The whole tree below `chroot`, by path, also what is not for everybody.
    #[track_caller]
    pub fn dump(&self, chroot: &str) -> BTreeMap<String, Znode> {
        dump_tree_as(&format!("{}{chroot}", self.address()), Some(ZooKeeper::READER))
    }
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("create a ZooKeeper folder")
}

impl Member {
    fn dir_text(&self) -> String {
        self.dir.path().display().to_string()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = Command::new(protocol_tests_dir().join("peers/zookeeper"))
            .args(["stop", "--dir", &self.dir_text()])
            .output();
    }
}

/// The whole tree of whoever speaks ZooKeeper's protocol at `host:port/chroot`, by path, as a Java client reads it.
#[track_caller]
pub fn dump_tree(address: &str) -> BTreeMap<String, Znode> {
    dump_tree_as(address, None)
}

#[track_caller]
fn dump_tree_as(address: &str, reader: Option<&str>) -> BTreeMap<String, Znode> {
    let script = protocol_tests_dir().join("peers/zk-dump");
    let mut command = Command::new(script);
    command.arg(address);
    if let Some(reader) = reader {
        command.env("ZK_DUMP_DIGEST", reader);
    }
    let output = command.output().expect("run zk-dump");
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
