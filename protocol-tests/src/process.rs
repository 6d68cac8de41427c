use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A child process whose stdout is read line by line and whose stderr goes to a file. It is killed when dropped.
pub struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: PathBuf,
    _dir: Option<tempfile::TempDir>,
}

/// What [`Process::next_line`] saw.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Text(String),
    /// The process closed its stdout.
    End,
}

/// A process that has ended.
#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Process {
    /// Starts `command`; its stderr is appended to `stderr`, or kept in a folder of its own.
    #[track_caller]
    pub fn start(name: &str, mut command: Command, stderr: Option<&Path>) -> Process {
        let dir = stderr.is_none().then(|| tempfile::tempdir().expect("create a folder for stderr"));
        let path = match (stderr, &dir) {
            (Some(path), _) => path.to_owned(),
            (None, Some(dir)) => dir.path().join("stderr"),
            (None, None) => unreachable!("a folder was made when no path was given"),
        };
        let file = File::options().create(true).append(true).open(&path).expect("open the file for stderr");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("start {name}: {error}"));
        let stdout = child.stdout.take().expect("stdout is piped");
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n') {
                let Ok(line) = line else { break };
                let text = String::from_utf8_lossy(&line).into_owned();
                // Nobody listens any more once the process value is dropped.
                if sender.send(text).is_err() {
                    break;
                }
            }
        });
        let stdin = child.stdin.take();
        Process { name: name.to_owned(), child, stdin, lines, stderr: path, _dir: dir }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line of stdout; panics when none comes before `limit`.
    #[track_caller]
    pub fn next_line(&mut self, limit: Duration) -> Line {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Line::Text(line),
            Err(RecvTimeoutError::Disconnected) => Line::End,
            Err(RecvTimeoutError::Timeout) => {
                panic!("{} printed nothing for {limit:?}\n{}", self.name, self.stderr_text())
            }
        }
    }

    /// The lines of stdout that have come and not been read, without waiting.
    pub fn printed(&mut self) -> Vec<String> {
        self.lines.try_iter().collect()
    }

    #[track_caller]
    pub fn write_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is open until close_stdin");
        writeln!(stdin, "{line}").and_then(|()| stdin.flush()).unwrap_or_else(|error| {
            panic!(
                "write to {}: {error}\n{}",
                self.name,
                std::fs::read_to_string(&self.stderr).unwrap_or_default()
            )
        });
    }

    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub fn stderr_text(&self) -> String {
        let mut bytes = Vec::new();
        if let Ok(mut file) = File::open(&self.stderr) {
            let _ = file.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub fn signal(&self, signal: Signal) {
        // A process that is already gone needs no signal.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for the end and gives what was not read yet; kills the process and panics when it lasts beyond `limit`.
    #[track_caller]
    pub fn finish(mut self, limit: Duration) -> Finished {
        self.stdin = None;
        let deadline = Instant::now() + limit;
        let mut stdout = String::new();
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    stdout.push_str(&line);
                    stdout.push('\n');
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("{} still runs after {limit:?}\n{stdout}\n{}", self.name, self.stderr_text())
                }
            }
        }
        let status = self.child.wait().expect("wait for a child");
        Finished { status, stdout, stderr: self.stderr_text() }
    }

    /// Waits until the process has ended, or `None` when it lasts beyond `limit`.
    pub fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        // Its stdout ends with it, so that nothing has to be polled.
        while let Ok(_) | Err(RecvTimeoutError::Timeout) =
            self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            if Instant::now() >= deadline {
                return None;
            }
        }
        self.child.wait().ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Finished {
    /// Panics with both outputs unless the process ended with status 0.
    #[track_caller]
    pub fn expect_success(self, what: &str) -> Finished {
        assert!(self.status.success(), "{what}: {}\n{}\n{}", self.status, self.stdout, self.stderr);
        self
    }
}
