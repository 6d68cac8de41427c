use std::fmt;
use std::io;

/// Why a load did not go through.
#[derive(Debug)]
pub enum LoadError {
    /// The connection, a file or a process.
    Io { what: &'static str, source: io::Error },
    /// The answer is not what the protocol says.
    Malformed { api: &'static str, what: String },
    /// Kafka's error code in an answer.
    Refused { what: &'static str, code: i16 },
    /// An answer without an error that is not right.
    Wrong { what: String },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Io { what, source } => write!(f, "{what}: {source}"),
            LoadError::Malformed { api, what } => write!(f, "the answer to {api} cannot be read: {what}"),
            LoadError::Refused { what, code } => write!(f, "{what}: error code {code}"),
            LoadError::Wrong { what } => f.write_str(what),
        }
    }
}

impl std::error::Error for LoadError {}

impl LoadError {
    /// For `map_err`: says what was being done.
    pub(super) fn io(what: &'static str) -> impl FnOnce(io::Error) -> LoadError {
        move |source| LoadError::Io { what, source }
    }
}

/// The error code of an answer; 0 is none.
pub(super) fn check(what: &'static str, code: i16) -> Result<(), LoadError> {
    match code {
        0 => Ok(()),
        code => Err(LoadError::Refused { what, code }),
    }
}
