//! `barnabas check`: whether a folder that Kafka or Barnabas wrote is whole.

mod batches;
#[cfg(test)]
mod crash_tests;
mod finding;
mod folder;
mod partition;
mod producers;
mod repair;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use snafu::{ResultExt, Snafu};

use self::finding::{Report, Severity};
use crate::log::{LogDirectories, LogError, SegmentReadError};
use crate::runtime::fs::{DiskFileSystem, FileSystem};

/// Verify the folders of a stopped broker: batches and their checksums, offsets, indexes, snapshots, checkpoints.
///
/// The exit status is 0 when nothing is wrong, 3 when only caches are (a broker builds them anew), 4 when records
/// are damaged, and 1 when the check could not be made.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Folders of log.dirs, or of single partitions.
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,

    /// Print one JSON object instead of words.
    #[arg(long)]
    json: bool,

    /// Say what would be done, and put caches right: indexes, snapshots, epochs. Records are never touched.
    #[arg(long)]
    repair: bool,
}

#[derive(Debug, Snafu)]
#[snafu(visibility(pub(in crate::cli::check)))]
pub(super) enum CheckError {
    #[snafu(display("cannot read {}: {source}", path.display()))]
    Read { path: PathBuf, source: io::Error },
    #[snafu(display("cannot write {}: {source}", path.display()))]
    Write { path: PathBuf, source: io::Error },
    #[snafu(display("{}: {source}", path.display()))]
    Segment { path: PathBuf, source: SegmentReadError },
    #[snafu(display("{} does not exist", path.display()))]
    NoFolder { path: PathBuf },
    #[snafu(transparent)]
    Folders { source: LogError },
    #[snafu(display("cannot write: {source}"))]
    Print { source: io::Error },
}

const EXIT_CACHES: u8 = 3;
const EXIT_DAMAGED: u8 = 4;

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode, CheckError> {
    let fs: Arc<dyn FileSystem> = Arc::new(DiskFileSystem);
    for path in &arguments.folders {
        snafu::ensure!(path.is_dir(), NoFolderSnafu { path });
    }
    // A broker that writes meanwhile would make everything look unfinished.
    let whole: Vec<PathBuf> =
        arguments.folders.iter().filter(|path| !folder::is_partition(&*fs, path)).cloned().collect();
    let locks =
        if whole.is_empty() { None } else { Some(LogDirectories::open(Arc::clone(&fs), &whole, 16)?) };
    let mut progress = Progress::new();
    let mut report = check_all(&*fs, &arguments.folders, &mut progress)?;
    progress.end();
    if arguments.repair {
        repair_all(&*fs, &report, arguments.json)?;
        report = check_all(&*fs, &arguments.folders, &mut progress)?;
        progress.end();
    }
    drop(locks);
    let text = if arguments.json { format!("{}\n", report.to_json()) } else { report.to_string() };
    io::stdout().write_all(text.as_bytes()).context(PrintSnafu)?;
    Ok(match report.worst() {
        None | Some(Severity::Note) => ExitCode::SUCCESS,
        Some(Severity::Warning) => ExitCode::from(EXIT_CACHES),
        Some(Severity::Error) => ExitCode::from(EXIT_DAMAGED),
    })
}

fn check_all(
    fs: &dyn FileSystem,
    folders: &[PathBuf],
    progress: &mut Progress,
) -> Result<Report, CheckError> {
    let mut report = Report::default();
    for path in folders {
        folder::check(fs, path, &mut report, &mut |report| progress.tell(report))?;
    }
    Ok(report)
}

fn repair_all(fs: &dyn FileSystem, report: &Report, is_quiet: bool) -> Result<(), CheckError> {
    for finding in &report.findings {
        let Some(repair) = finding.repair else { continue };
        if !is_quiet {
            println!("{}: {}: {repair}", finding.path.display(), finding.what);
        }
        repair::repair(fs, finding)?;
    }
    Ok(())
}

/// A line on the terminal while much is to be read.
struct Progress {
    is_shown: bool,
    last: Instant,
    is_dirty: bool,
}

const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

impl Progress {
    fn new() -> Progress {
        Progress { is_shown: io::stderr().is_terminal(), last: Instant::now(), is_dirty: false }
    }

    fn tell(&mut self, report: &Report) {
        if self.is_shown && self.last.elapsed() >= PROGRESS_INTERVAL {
            eprint!("\r{} partitions, {} MiB checked ", report.partitions, report.bytes >> 20);
            (self.last, self.is_dirty) = (Instant::now(), true);
        }
    }

    fn end(&mut self) {
        if self.is_dirty {
            eprintln!();
            self.is_dirty = false;
        }
    }
}
