use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::log_scan::unexpected_lines;
use crate::machine::{Port, barnabas_binary, free_port, protocol_tests_dir};
use crate::process::{Line, Process};
use crate::server::Server;
use crate::wait_for;
use crate::zookeeper::ZooKeeper;

/// A start or stop that takes longer is a failure; it is no measure of speed.
const LIMIT: Duration = Duration::from_secs(120);

/// What Barnabas says at the start after a kill: a write that is killed may end at the end of any page, and a cleaner
/// between two of its files.
const AFTER_A_KILL: &[&str] = &[
    "rebuilding an index that is missing or damaged",
    "removing an index without records",
    "cut an unfinished write off the store's log",
    "cutting the log off at the first batch that is not sound",
];

/// One running server with a data folder and a port of its own. Dropping it stops the server, reads its log
/// (Barnabas only) and removes the folder.
pub struct Broker {
    server: Server,
    /// The address that it listens on.
    host: String,
    /// The network namespace that it runs in; `None` = this machine's.
    namespace: Option<String>,
    port: Port,
    dir: TempDir,
    settings: Vec<(String, String)>,
    /// Variables of the process.
    environment: Vec<(String, String)>,
    allowed_log_lines: Vec<String>,
    running: Option<Running>,
    zookeeper: Option<ZooKeeper>,
    /// For a Kafka that joins others: their ZooKeeper, and its id.
    joins: Option<(String, i32)>,
}

enum Running {
    Barnabas(Process),
    /// Started by the peers' script, which holds its process id.
    Kafka,
}

impl Broker {
    /// Starts the server that the environment names, with these settings on top of its defaults.
    #[track_caller]
    pub fn start(settings: &[(&str, &str)]) -> Broker {
        Broker::start_as(Server::from_environment(), settings)
    }

    /// Prepares a Barnabas and does not start it.
    pub fn prepare(settings: &[(&str, &str)]) -> Broker {
        Broker::prepare_as(Server::Barnabas, settings)
    }

    /// As [`Broker::start_as`], without the start.
    pub fn prepare_as(server: Server, settings: &[(&str, &str)]) -> Broker {
        Broker::new(server, settings)
    }

    #[track_caller]
    pub fn start_as(server: Server, settings: &[(&str, &str)]) -> Broker {
        let mut broker = Broker::new(server, settings);
        broker.start_again();
        broker
    }

    /// Starts a broker of the cluster on this ZooKeeper.
    #[track_caller]
    pub fn join(server: Server, id: i32, zookeeper: &str, settings: &[(&str, &str)]) -> Broker {
        let mut broker = Broker::prepare_to_join(server, id, zookeeper, settings);
        broker.start_again();
        broker
    }

    /// As [`Broker::join`], without the start.
    pub fn prepare_to_join(server: Server, id: i32, zookeeper: &str, settings: &[(&str, &str)]) -> Broker {
        let mut broker = Broker::without_zookeeper(server, settings);
        broker.will_join(id, zookeeper);
        broker
    }

    /// As [`Broker::join`], a Barnabas in a network namespace where it has this address.
    #[track_caller]
    pub(crate) fn join_in(
        (namespace, host): (String, String),
        id: i32,
        zookeeper: &str,
        settings: &[(&str, &str)],
    ) -> Broker {
        let mut broker = Broker::without_zookeeper(Server::Barnabas, settings);
        (broker.namespace, broker.host) = (Some(namespace), host);
        broker.will_join(id, zookeeper);
        broker.start_again();
        broker
    }

    fn will_join(&mut self, id: i32, zookeeper: &str) {
        match self.server {
            Server::Barnabas => {
                self.set("broker.id", &id.to_string());
                self.set("zookeeper.connect", zookeeper);
            }
            Server::KafkaWithZooKeeper(_) | Server::KafkaWithoutZooKeeper(_) => {
                self.joins = Some((zookeeper.to_owned(), id));
            }
        }
    }

    /// Adds a variable for the next start.
    pub fn set_variable(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    fn new(server: Server, settings: &[(&str, &str)]) -> Broker {
        let zookeeper = match &server {
            Server::KafkaWithZooKeeper(_) => Some(ZooKeeper::start(&[])),
            Server::Barnabas | Server::KafkaWithoutZooKeeper(_) => None,
        };
        let mut broker = Broker::without_zookeeper(server, settings);
        broker.zookeeper = zookeeper;
        broker
    }

    fn without_zookeeper(server: Server, settings: &[(&str, &str)]) -> Broker {
        Broker {
            server,
            host: "127.0.0.1".to_owned(),
            namespace: None,
            port: free_port(),
            dir: tempfile::tempdir().expect("create a data folder"),
            settings: settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            environment: Vec::new(),
            allowed_log_lines: Vec::new(),
            running: None,
            zookeeper: None,
            joins: None,
        }
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// `host:port`, as clients take it.
    pub fn address(&self) -> String {
        format!("{}:{}", self.host, self.port.number)
    }

    /// A line of `/proc/PID/status` in bytes: `VmRSS:` is the memory in use, `VmHWM:` its peak.
    pub fn memory_bytes(&self, line: &str) -> u64 {
        let path = format!("/proc/{}/status", self.pid());
        let status = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let text = status.lines().find_map(|found| found.strip_prefix(line)).unwrap_or_default();
        let kibibytes = text.trim().trim_end_matches(" kB").parse::<u64>();
        kibibytes.unwrap_or_else(|_| panic!("{path} has no {line}")) * 1024
    }

    /// Open file descriptors of the server.
    pub fn descriptors(&self) -> usize {
        let path = format!("/proc/{}/fd", self.pid());
        std::fs::read_dir(&path).unwrap_or_else(|error| panic!("{path}: {error}")).count()
    }

    /// The one folder of `log.dirs`.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Its own folder, for files that a test wants to go with it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The ZooKeeper that was started for a Kafka; Barnabas has one only where its settings say so.
    pub fn zookeeper(&self) -> Option<&ZooKeeper> {
        self.zookeeper.as_ref()
    }

    /// The ZooKeeper that was started for a Kafka, which has stopped.
    pub fn zookeeper_taken(&mut self) -> Option<ZooKeeper> {
        self.zookeeper.take()
    }

    /// Lets another program serve the same folder and port from the next start on; a Kafka of ZooKeeper mode with
    /// this ZooKeeper.
    #[track_caller]
    pub fn hand_over(&mut self, server: Server, zookeeper: Option<ZooKeeper>) {
        assert!(self.running.is_none(), "the broker runs");
        self.server = server;
        self.zookeeper = zookeeper;
    }

    /// As [`Broker::hand_over`], for a broker of a cluster on this ZooKeeper.
    #[track_caller]
    pub(crate) fn hand_over_within(&mut self, server: Server, id: i32, zookeeper: &str) {
        self.hand_over(server, None);
        self.joins = None;
        match self.server {
            Server::Barnabas => {
                self.set("broker.id", &id.to_string());
                self.set("zookeeper.connect", zookeeper);
            }
            Server::KafkaWithZooKeeper(_) | Server::KafkaWithoutZooKeeper(_) => {
                self.settings.retain(|(key, _)| !["broker.id", "zookeeper.connect"].contains(&key.as_str()));
                self.set("zookeeper.session.timeout.ms", Broker::KAFKAS_SESSION_MS);
                self.joins = Some((zookeeper.to_owned(), id));
            }
        }
    }

    /// A starting JVM on a busy machine pauses for longer than the others' sessions last, and gives up then.
    pub(crate) const KAFKAS_SESSION_MS: &str = "6000";

    /// Panics when it does not run.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        match self.running.as_ref().expect("the broker runs") {
            Running::Barnabas(process) => process.pid(),
            Running::Kafka => {
                let text =
                    std::fs::read_to_string(self.dir.path().join("kafka.pid")).expect("read kafka.pid");
                text.split(' ').next().and_then(|pid| pid.parse().ok()).expect("kafka.pid begins with the id")
            }
        }
    }

    /// From now on the log may have WARN and ERROR lines that contain `text`.
    pub fn allow_log(&mut self, text: &str) {
        self.allowed_log_lines.push(text.to_owned());
    }

    /// Changes a setting for the next start.
    pub fn set(&mut self, key: &str, value: &str) {
        self.settings.retain(|(known, _)| known != key);
        self.settings.push((key.to_owned(), value.to_owned()));
    }

    /// Starts it on the same port and folder, after [`Broker::stop`] or [`Broker::kill`].
    #[track_caller]
    pub fn start_again(&mut self) {
        assert!(self.running.is_none(), "the broker runs already");
        self.running = Some(match self.server {
            Server::Barnabas => Running::Barnabas(self.start_barnabas()),
            Server::KafkaWithZooKeeper(_) | Server::KafkaWithoutZooKeeper(_) => {
                self.start_kafka();
                Running::Kafka
            }
        });
    }

    /// Starts a Kafka without waiting for anything: it may end instead of getting ready.
    #[track_caller]
    pub fn begin_start(&mut self) {
        assert!(self.running.is_none() && !self.server.is_barnabas(), "a Kafka that does not run");
        let arguments = [self.kafka_arguments(), vec!["--no-wait".to_owned()]].concat();
        self.peer_script("kafka-server", &arguments.iter().map(String::as_str).collect::<Vec<_>>());
        self.running = Some(Running::Kafka);
    }

    /// Starts Barnabas without waiting for anything: for tests of the start itself.
    #[track_caller]
    pub fn spawn(&self) -> Process {
        assert!(self.running.is_none(), "the broker runs already");
        std::fs::create_dir_all(self.data_dir()).expect("create the data folder");
        let properties = self.dir.path().join("server.properties");
        std::fs::write(&properties, self.properties()).expect("write server.properties");
        let binary = barnabas_binary().expect("build it: cargo build --release -p barnabas");
        let mut command = match &self.namespace {
            // It becomes the program, under the same process id.
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).arg(binary);
                command
            }
            None => Command::new(binary),
        };
        command.arg("serve").arg(&properties).current_dir(self.dir.path()).env("NO_COLOR", "1");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Process::start("barnabas", command, Some(&self.dir.path().join("stderr.log")))
    }

    /// A clean stop (SIGTERM) and a new start.
    #[track_caller]
    pub fn restart(&mut self) {
        self.stop();
        self.start_again();
    }

    /// SIGTERM, and exit status 0 is asked for.
    #[track_caller]
    pub fn stop(&mut self) {
        match self.running.take() {
            None => {}
            Some(Running::Kafka) => self.peer_script("kafka-server", &["stop", "--dir", &self.dir_text()]),
            Some(Running::Barnabas(mut process)) => {
                process.signal(Signal::TERM);
                let Some(status) = process.wait(LIMIT) else {
                    panic!("barnabas still runs {LIMIT:?} after SIGTERM\n{}", process.stderr_text());
                };
                assert!(status.success(), "barnabas stopped with {status}\n{}", process.stderr_text());
            }
        }
    }

    /// Sends a signal that does not end it. After SIGSTOP it stands still: on a busy machine its threads go on until the one
    /// that takes the signal has its turn.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.expect("a process id"), signal).expect("send a signal");
        if signal == Signal::STOP {
            wait_for("all threads to stand still", || self.stands_still().then_some(()));
        }
    }

    fn stands_still(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("list the threads");
        let is_stopped = |task: std::fs::DirEntry| {
            // A thread that has ended meanwhile has no state.
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['T', 't']))
        };
        tasks.flatten().all(is_stopped)
    }

    /// Whether a broker that was started has ended by itself.
    pub fn has_ended(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap_or_default();
        // What nobody has waited for is a zombie.
        stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('Z'))
    }

    /// Tries to start and gives what it wrote to stderr when it ended instead, with another status than 0; of a Kafka
    /// that did not get ready, the end of its log.
    #[track_caller]
    pub fn start_refused(&mut self) -> String {
        assert!(self.running.is_none(), "the broker runs already");
        if !self.server.is_barnabas() {
            let arguments = self.kafka_arguments();
            let (is_ready, text) = peer_script_output("kafka-server", &arguments, &self.environment);
            assert!(!is_ready, "Kafka starts: {text}");
            return text;
        }
        let process = self.spawn();
        let finished = process.finish(LIMIT);
        assert!(!finished.status.success() && !finished.stdout.contains("barnabas ready"), "{finished:?}");
        finished.stderr
    }

    /// SIGKILL. The next start may say what it mends.
    #[track_caller]
    pub fn kill(&mut self) {
        AFTER_A_KILL.iter().for_each(|text| self.allow_log(text));
        match self.running.take() {
            None => {}
            Some(Running::Barnabas(process)) => drop(process),
            Some(Running::Kafka) => {
                kill_by_pid_file(&self.dir.path().join("kafka.pid"));
                // The script waits until the process is gone.
                self.peer_script("kafka-server", &["stop", "--dir", &self.dir_text()]);
            }
        }
    }

    /// All that Barnabas has logged since the first start; empty for Kafka.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("stderr.log")).unwrap_or_default()
    }

    fn start_barnabas(&self) -> Process {
        let mut process = self.spawn();
        loop {
            match process.next_line(LIMIT) {
                Line::Text(line) if line.starts_with("barnabas ready") => return process,
                Line::Text(_) => {}
                Line::End => panic!("barnabas ended before it was ready\n{}", process.stderr_text()),
            }
        }
    }

    /// The file for Barnabas: the test's settings win over the one-node defaults of Kafka's stock file.
    fn properties(&self) -> String {
        let defaults = [
            ("broker.id", "1".to_owned()),
            ("listeners", format!("PLAINTEXT://{}", self.address())),
            ("log.dirs", self.data_dir().display().to_string()),
            ("offsets.topic.replication.factor", "1".to_owned()),
            // Records of tests are of any time.
            ("log.retention.ms", "-1".to_owned()),
        ];
        let mut text = String::new();
        for (key, value) in &defaults {
            if !self.settings.iter().any(|(known, _)| known == key) {
                text.push_str(&format!("{key}={value}\n"));
            }
        }
        for (key, value) in &self.settings {
            // A listener beside others is named with the broker's own address.
            let value = value.replace("$ADDRESS", &self.address());
            text.push_str(&format!("{key}={value}\n"));
        }
        text
    }

    #[track_caller]
    fn start_kafka(&self) {
        let arguments = self.kafka_arguments();
        self.peer_script("kafka-server", &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// Of the peers' script, to start it.
    fn kafka_arguments(&self) -> Vec<String> {
        let (Server::KafkaWithZooKeeper(version) | Server::KafkaWithoutZooKeeper(version)) = &self.server
        else {
            return Vec::new();
        };
        let port = self.port.number.to_string();
        let mut arguments = vec!["start".to_owned(), version.clone(), "--port".into(), port];
        arguments.extend(["--dir".to_owned(), self.dir_text()]);
        if let Some(zookeeper) = &self.zookeeper {
            arguments.extend(["--zk".to_owned(), zookeeper.address()]);
        }
        if let Some((zookeeper, id)) = &self.joins {
            arguments.extend(["--zk".to_owned(), zookeeper.clone(), "--id".to_owned(), id.to_string()]);
        }
        for (key, value) in &self.settings {
            arguments.extend(["--override".to_owned(), format!("{key}={value}")]);
        }
        arguments
    }

    fn dir_text(&self) -> String {
        self.dir.path().display().to_string()
    }

    #[track_caller]
    fn peer_script(&self, name: &str, arguments: &[&str]) {
        run_peer_script(name, arguments, &self.environment);
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The test has failed already: show the log, and let nothing hide the first reason.
            let log = self.log();
            // What came of an error may have driven the error itself out of the tail.
            let errors = log.lines().filter(|line| line.contains(" ERROR ")).take(5);
            errors.for_each(|line| eprintln!("{line}"));
            let tail: Vec<&str> = log.lines().rev().take(60).collect();
            for line in tail.iter().rev() {
                eprintln!("{line}");
            }
            if let Some(Running::Kafka) = self.running.take() {
                let _ = Command::new(protocol_tests_dir().join("peers/kafka-server"))
                    .args(["stop", "--dir", &self.dir_text()])
                    .output();
            }
            return;
        }
        self.stop();
        let log = self.log();
        let unexpected = unexpected_lines(&log, &self.allowed_log_lines);
        assert!(unexpected.is_empty(), "unexpected lines in the log of barnabas:\n{}", unexpected.join("\n"));
    }
}

#[track_caller]
pub(crate) fn run_peer_script(name: &str, arguments: &[&str], environment: &[(String, String)]) {
    let (is_well, text) = peer_script_output(name, arguments, environment);
    assert!(is_well, "peers/{name} {}:\n{text}", arguments.join(" "));
}

/// Whether a script of the peers ended with status 0, and what it printed.
#[track_caller]
fn peer_script_output(
    name: &str,
    arguments: &[impl AsRef<OsStr>],
    environment: &[(String, String)],
) -> (bool, String) {
    // The server inherits what it is given and outlives the script: pipes would never end, so the output is a file.
    let output = tempfile::NamedTempFile::new().expect("create a file for the script's output");
    let file = output.reopen().expect("open the file for the script's output");
    let status = Command::new(protocol_tests_dir().join("peers").join(name))
        .args(arguments)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdout(file.try_clone().expect("share the file"))
        .stderr(file)
        .status()
        .unwrap_or_else(|error| panic!("run peers/{name}: {error}"));
    (status.success(), std::fs::read_to_string(output.path()).unwrap_or_default())
}

/// Sends SIGKILL to the process that a script of the peers has started.
#[track_caller]
pub(crate) fn kill_by_pid_file(path: &Path) {
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()));
    let pid = text.split(' ').next().unwrap_or_default().to_owned();
    let status = Command::new("kill").args(["-KILL", &pid]).status().expect("run kill");
    assert!(status.success(), "kill -KILL {pid}: {status}");
}
