//! Many seeds, each in a process of its own: one that aborts or hangs is a seed that failed, and none leaves anything
//! to the next.

use std::io::Read;
use std::ops::Range;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub struct Options {
    pub seeds: Range<u64>,
    /// `None` = as many as there are cores.
    pub jobs: Option<usize>,
    pub twice: bool,
}

/// By the machine's clock. A seed takes a second.
const SEED_MAX: Duration = Duration::from_secs(300);

/// Whether a seed has failed.
pub fn run(options: &Options) -> bool {
    let jobs = options.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let next = AtomicU64::new(options.seeds.start);
    let failed: Mutex<Vec<u64>> = Mutex::default();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= options.seeds.end {
                        return;
                    }
                    if let Err(output) = run_seed(seed, options.twice) {
                        let mut failed = failed.lock();
                        failed.push(seed);
                        println!("{output}\nreplay: cargo run -p sim -- --seed {seed}\n");
                    }
                    let done = seed + 1 - options.seeds.start;
                    if done.is_multiple_of(1_000) {
                        println!("{done} seeds, {} failed, {:?}", failed.lock().len(), began.elapsed());
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    let count = options.seeds.end - options.seeds.start;
    println!("{count} seeds in {:.1} s, {} failed: {failed:?}", began.elapsed().as_secs_f64(), failed.len());
    !failed.is_empty()
}

fn run_seed(seed: u64, twice: bool) -> Result<(), String> {
    let first = run_once(seed)?;
    if twice {
        let second = run_once(seed)?;
        if first != second {
            return Err(format!("the seed does not repeat itself:\n{first}{second}"));
        }
    }
    Ok(())
}

/// What the seed printed; the error is the same of one that failed.
fn run_once(seed: u64) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(program);
    command.args(["--seed", &seed.to_string()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let (ends, end) = mpsc::channel();
    std::thread::scope(|scope| {
        let output = scope.spawn(move || {
            let output = text(&mut stdout);
            let _ = ends.send(());
            output
        });
        let errors = scope.spawn(move || text(&mut stderr));
        // Its output ends with the process, and not before.
        let hangs = end.recv_timeout(SEED_MAX).is_err();
        if hangs {
            let _ = child.kill();
        }
        let status = match child.wait() {
            Ok(_) if hangs => "hangs".to_owned(),
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let output = output.join().unwrap_or_default();
        let errors = errors.join().unwrap_or_default();
        if status == "exit status: 0" {
            Ok(output)
        } else {
            Err(format!("{output}{errors}seed {seed}: {status}"))
        }
    })
}

fn text(source: &mut Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(source) = source {
        let _ = source.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
