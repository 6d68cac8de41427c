//! Kafka's own command-line tools, of one version, all in one JVM (`clients/java/ToolSession.java`).

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::client::java_classes;
use crate::machine::protocol_tests_dir;
use crate::{Line, Process};

/// A tool is quiet for no longer than this unless it hangs.
const SILENCE: Duration = Duration::from_secs(120);

/// A session in which tools are run.
pub struct Tools {
    version: String,
    process: Process,
    main_classes: HashMap<String, String>,
    started: usize,
    outputs: HashMap<usize, Output>,
    dir: tempfile::TempDir,
}

/// A tool that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolRun(usize);

/// What a tool has printed, and its exit status once it has ended.
#[derive(Clone, Debug, Default)]
pub struct Output {
    pub stdout: String,
    pub stderr: String,
    pub status: Option<i32>,
}

impl Tools {
    /// The tools of Kafka `version`.
    #[track_caller]
    pub fn of(version: &str) -> Tools {
        let class_path = java_classes(version).unwrap_or_else(|error| panic!("{error}"));
        let peers = protocol_tests_dir().join("peers");
        let logging = if version.starts_with('4') {
            format!("-Dlog4j2.configurationFile={}/conf/tools-log4j2.properties", peers.display())
        } else {
            format!("-Dlog4j.configuration=file:{}/conf/tools-log4j.properties", peers.display())
        };
        let mut command = Command::new("java");
        command.args([
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            "-Xmx384m",
            "-Dpeer.level=WARN",
        ]);
        // For the shutdown hooks of the tools.
        command.arg("--add-opens=java.base/java.lang=ALL-UNNAMED");
        command.args([&logging, "-cp", &class_path, "ToolSession"]);
        Tools {
            version: version.to_owned(),
            process: Process::start(&format!("the tools of {version}"), command, None),
            main_classes: main_classes(version),
            started: 0,
            outputs: HashMap::new(),
            dir: tempfile::tempdir().expect("create a folder for the tools"),
        }
    }

    pub fn version(&self) -> &str {
        &self.version
    }

    /// A folder that goes with the session, for files that tools are given.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts a tool by the name of its script, with nothing on stdin.
    #[track_caller]
    pub fn start(&mut self, name: &str, arguments: &[&str]) -> ToolRun {
        self.start_with("-", name, arguments)
    }

    /// Runs a tool to its end and asks for status 0; gives its stdout.
    #[track_caller]
    pub fn run(&mut self, name: &str, arguments: &[&str]) -> String {
        let run = self.start(name, arguments);
        self.finish(run)
    }

    /// As [`Tools::run`], with lines on stdin.
    #[track_caller]
    pub fn run_with_input(&mut self, name: &str, arguments: &[&str], input: &str) -> String {
        let file = self.dir.path().join(format!("stdin-{}", self.started));
        std::fs::write(&file, input).expect("write a tool's stdin");
        let run = self.start_with(&file.display().to_string(), name, arguments);
        self.finish(run)
    }

    /// Waits until a tool has ended, asks for status 0 and gives its stdout.
    #[track_caller]
    pub fn finish(&mut self, run: ToolRun) -> String {
        let output = self.finish_with_any_status(run);
        assert_eq!(output.status, Some(0), "{}\n{}\n{}", self.version, output.stdout, output.stderr);
        output.stdout
    }

    /// Waits until a tool has ended, however it did.
    #[track_caller]
    pub fn finish_with_any_status(&mut self, run: ToolRun) -> Output {
        while self.outputs.get(&run.0).is_none_or(|output| output.status.is_none()) {
            self.read_line();
        }
        self.outputs.remove(&run.0).unwrap_or_default()
    }

    #[track_caller]
    fn start_with(&mut self, stdin: &str, name: &str, arguments: &[&str]) -> ToolRun {
        let Some(main_class) = self.main_classes.get(name) else {
            panic!("Kafka {} has no {name}", self.version)
        };
        let run = ToolRun(self.started);
        self.started += 1;
        let mut line = format!("{}\t{main_class}\t{stdin}", run.0);
        for argument in arguments {
            line.push('\t');
            line.push_str(argument);
        }
        self.process.write_line(&line);
        run
    }

    #[track_caller]
    fn read_line(&mut self) {
        let Line::Text(line) = self.process.next_line(SILENCE) else {
            panic!("the tools of {} ended\n{}", self.version, self.process.stderr_text())
        };
        let mut fields = line.splitn(3, '\t');
        let (Some(Ok(id)), Some(kind), Some(text)) =
            (fields.next().map(str::parse), fields.next(), fields.next())
        else {
            panic!("the tools of {} printed {line:?}", self.version)
        };
        let output = self.outputs.entry(id).or_default();
        match kind {
            "exit" => output.status = text.parse().ok(),
            "out" => output.stdout.extend([text, "\n"]),
            _ => output.stderr.extend([text, "\n"]),
        }
    }
}

/// A tool of a release of Kafka, in a process of its own. Some do not work in a session of [`Tools`], whose class loaders
/// keep them from Kafka's own classes.
pub fn kafka_tool(version: &str, name: &str) -> Command {
    let mut command = Command::new(protocol_tests_dir().join("peers/kafka-tool"));
    command.args([version, name]);
    command
}

/// Script name to main class, as the peers' `kafka-tool` knows them.
#[track_caller]
fn main_classes(version: &str) -> HashMap<String, String> {
    let output = kafka_tool(version, "--list").output().expect("run peers/kafka-tool");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let pair = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    text.lines().filter_map(pair).collect()
}
