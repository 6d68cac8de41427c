use std::io;
use std::path::PathBuf;

use snafu::Snafu;

/// Why the embedded store cannot be opened. Nothing was changed on disk. One line each, for the operator.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
pub enum OpenStoreError {
    #[snafu(display("the store in {} is used by another process", dir.display()))]
    InUse { dir: PathBuf },
    #[snafu(display("the store's file {} is damaged at byte {position}: {what}", file.display()))]
    Damaged { file: PathBuf, position: u64, what: &'static str },
    #[snafu(display("the store's file {} is missing", file.display()))]
    Missing { file: PathBuf },
    #[snafu(display("opening the store's file {}: {source}", path.display()))]
    Io { path: PathBuf, source: io::Error },
}

/// Why a write did not become durable.
#[derive(Debug, Snafu)]
#[snafu(visibility(pub(super)))]
pub(super) enum WriteError {
    /// Nothing was written, and the next write may find space.
    #[snafu(display("no space left"))]
    NoSpace,
    /// The files are in an unknown state and must not be written again by this process.
    #[snafu(display("writing the store's log: {source}"))]
    Broken { source: io::Error },
}
