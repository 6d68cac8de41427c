//! Client libraries in other languages: how each one's program is built, and the walk that each one does
//! (`clients/README.md`).

mod event;
mod judge;
mod program;
pub mod programs;

pub use event::{Event, Read};
pub use judge::Walk;
pub use program::{cached, cached_dir, java_classes, java_program, left_out, run};

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::{Broker, Line, Process};

/// A program is quiet for no longer than this unless it hangs.
const SILENCE: Duration = Duration::from_secs(120);

/// One client library, as the walk needs to know it.
#[derive(Clone, Copy)]
pub struct Client {
    pub name: &'static str,
    /// The codecs it can write, `none` among them, in the order in which its program uses them.
    pub codecs: &'static [&'static str],
    /// Whether it has consumer groups.
    pub groups: bool,
    /// Builds the program; the error says which tool the machine lacks.
    pub program: fn() -> Result<Command, String>,
}

/// All five codecs of Kafka.
pub const ALL_CODECS: &[&str] = &["none", "gzip", "snappy", "lz4", "zstd"];

impl Client {
    /// Runs the walk against `broker`, which is restarted in the middle of it, and judges what the program saw.
    /// Where the program cannot be built, says so in the output of the run and does nothing.
    #[track_caller]
    pub fn walk(&self, broker: &mut Broker) {
        match (self.program)() {
            Err(missing) => left_out(self.name, &missing),
            Ok(command) => self.run(command, broker).judge(),
        }
    }

    #[track_caller]
    fn run(&self, mut command: Command, broker: &mut Broker) -> Walk {
        let topic = format!("walk-{}", self.name);
        command.args([&broker.address(), &topic, &format!("group-{}", self.name)]);
        let mut process = Process::start(self.name, command, None);
        let mut walk = Walk::new(*self);
        loop {
            let Line::Text(line) = process.next_line(SILENCE) else {
                let finished = process.finish(SILENCE);
                panic!(
                    "{} ended with {} before it was done\n{}",
                    self.name, finished.status, finished.stderr
                );
            };
            match Event::parse(&line) {
                Event::Restart => {
                    broker.restart();
                    process.write_line("restarted");
                    walk.events.push(Event::Restart);
                }
                Event::Done => break,
                event => walk.events.push(event),
            }
        }
        process.finish(SILENCE).expect_success(self.name);
        walk
    }
}

/// A folder or file below `clients/` in the source tree.
pub fn source(path: &str) -> std::path::PathBuf {
    Path::new(crate::protocol_tests_dir()).join("clients").join(path)
}
