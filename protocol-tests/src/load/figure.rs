use std::fmt;
use std::process::ExitCode;

use super::LoadError;
use crate::raise_open_files_limit;

/// One measured value; its unit is the end of its name. Printed as a line of `NAME<tab>VALUE`.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub name: String,
    pub value: f64,
}

impl Figure {
    pub fn new(name: impl Into<String>, value: f64) -> Figure {
        Figure { name: name.into(), value }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\t{:.4}", self.name, self.value)
    }
}

/// The whole of a program that takes figures: runs to its end, and prints them or what went wrong.
pub fn print_figures(program: &str, run: impl Future<Output = Result<Vec<Figure>, LoadError>>) -> ExitCode {
    raise_open_files_limit();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("{program}: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run) {
        Ok(figures) => {
            figures.iter().for_each(|figure| println!("{figure}"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What a process on this machine holds in memory, in bytes.
pub fn resident_bytes(pid: u32) -> Result<u64, LoadError> {
    let text = read(&format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| LoadError::Wrong { what: format!("process {pid} has no VmRSS") })
}

/// CPU time that a process has used, its ended threads included, in steps of 10 ms.
pub fn cpu_seconds(pid: u32) -> Result<f64, LoadError> {
    let text = read(&format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold anything.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Of several processes together.
pub fn cpu_seconds_of(pids: &[u32]) -> Result<f64, LoadError> {
    pids.iter().map(|&pid| cpu_seconds(pid)).sum()
}

fn read(path: &str) -> Result<String, LoadError> {
    std::fs::read_to_string(path).map_err(LoadError::io("read the process's state"))
}
