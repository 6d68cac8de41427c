//! The levels of the loggers, changed while the process runs (KIP-412). Nothing of it outlives the process.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use snafu::{Snafu, ensure};
use tracing_subscriber::filter::{LevelFilter, Targets};

/// The logger above all others.
pub const ROOT: &str = "root";

/// The rooms of the broker: a logger each, `barnabas.network` and so on, for what lies in it. Kafka's tools take no
/// colons in names, so dots stand for those of the modules.
const ROOMS: [&str; 21] = [
    "api",
    "broker",
    "cli",
    "config",
    "controller",
    "coordination",
    "coordinator",
    "group",
    "interbroker",
    "log",
    "metadata",
    "model",
    "network",
    "observe",
    "purgatory",
    "quota",
    "records",
    "replica",
    "runtime",
    "security",
    "txn",
];

/// Why a level was not changed, in the words of Kafka.
#[derive(Debug, PartialEq, Eq, Snafu)]
pub enum LoggerError {
    /// INVALID_CONFIG
    #[snafu(display("Logger {logger} does not exist!"))]
    UnknownLogger { logger: String },
    /// INVALID_CONFIG
    #[snafu(display(
        "Cannot set the log level of {logger} to {level} as it is not a supported log level. Valid log levels are \
         DEBUG, ERROR, FATAL, INFO, TRACE, WARN"
    ))]
    UnknownLevel { logger: String, level: String },
    /// INVALID_REQUEST
    #[snafu(display("Removing the log level of the {ROOT} logger is not allowed"))]
    NoRootLevel,
}

/// A change of one logger's level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LevelChange {
    /// One of TRACE, DEBUG, INFO, WARN, ERROR, FATAL.
    Set(String),
    /// From then on it has the level of the logger above it.
    Inherit,
}

/// The loggers of a process.
pub struct Loggers {
    levels: Mutex<Levels>,
    apply: Box<dyn Fn(Targets) + Send + Sync>,
}

impl Loggers {
    /// `apply` makes a filter the one that is in force.
    pub(super) fn new(filter: Targets, apply: impl Fn(Targets) + Send + Sync + 'static) -> Loggers {
        Loggers { levels: Mutex::new(Levels::of(filter)), apply: Box::new(apply) }
    }

    /// Every logger with the level that it has or inherits, as Kafka writes levels, or OFF.
    pub fn list(&self) -> Vec<(String, String)> {
        let levels = self.levels.lock();
        let of = |module: &String| {
            (module.replace("::", "."), levels.of_module(module).to_string().to_uppercase())
        };
        levels.modules().iter().map(of).collect()
    }

    /// Says what is wrong with the changes, and makes none.
    pub fn check(&self, changes: &[(String, LevelChange)]) -> Result<(), LoggerError> {
        let levels = self.levels.lock();
        changes.iter().try_for_each(|(logger, change)| levels.check(logger, change).map(drop))
    }

    /// Makes all changes, or none when one of them is wrong.
    pub fn change(&self, changes: &[(String, LevelChange)]) -> Result<(), LoggerError> {
        let mut levels = self.levels.lock();
        let mut changed = levels.clone();
        for (logger, change) in changes {
            let level = changed.check(logger, change)?;
            changed.set(&module(logger), level);
        }
        *levels = changed;
        (self.apply)(levels.filter());
        Ok(())
    }
}

/// What is set; all else is inherited.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Levels {
    root: LevelFilter,
    set: BTreeMap<String, LevelFilter>,
}

impl Levels {
    fn of(filter: Targets) -> Levels {
        let root = filter.default_level().unwrap_or(LevelFilter::OFF);
        Levels { root, set: filter.into_iter().collect() }
    }

    fn filter(&self) -> Targets {
        let set = self.set.iter().map(|(logger, level)| (logger.clone(), *level));
        Targets::new().with_default(self.root).with_targets(set)
    }

    fn modules(&self) -> BTreeSet<String> {
        let rooms = ROOMS.iter().map(|room| format!("barnabas::{room}"));
        let above = [ROOT, "barnabas"].map(str::to_owned);
        above.into_iter().chain(rooms).chain(self.set.keys().cloned()).collect()
    }

    fn of_module(&self, module: &str) -> LevelFilter {
        let above = self.set.iter().filter(|(set, _)| module.starts_with(set.as_str()));
        above.max_by_key(|(set, _)| set.len()).map_or(self.root, |(_, level)| *level)
    }

    /// The level that the change gives, `None` = inherited.
    fn check(&self, logger: &str, change: &LevelChange) -> Result<Option<LevelFilter>, LoggerError> {
        ensure!(self.modules().contains(&module(logger)), UnknownLoggerSnafu { logger });
        match change {
            LevelChange::Set(level) => match level.as_str() {
                "TRACE" => Ok(Some(LevelFilter::TRACE)),
                "DEBUG" => Ok(Some(LevelFilter::DEBUG)),
                "INFO" => Ok(Some(LevelFilter::INFO)),
                "WARN" => Ok(Some(LevelFilter::WARN)),
                "ERROR" | "FATAL" => Ok(Some(LevelFilter::ERROR)),
                _ => UnknownLevelSnafu { logger, level }.fail(),
            },
            LevelChange::Inherit => {
                ensure!(logger != ROOT, NoRootLevelSnafu);
                Ok(None)
            }
        }
    }

    fn set(&mut self, module: &str, level: Option<LevelFilter>) {
        match level {
            Some(level) if module == ROOT => self.root = level,
            Some(level) => drop(self.set.insert(module.to_owned(), level)),
            None => drop(self.set.remove(module)),
        }
    }
}

fn module(logger: &str) -> String {
    logger.replace('.', "::")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn loggers(filter: &str) -> (Loggers, Arc<Mutex<String>>) {
        let applied = Arc::new(Mutex::new(String::new()));
        let seen = Arc::clone(&applied);
        let apply = move |targets: Targets| *seen.lock() = targets.to_string();
        (Loggers::new(filter.parse().unwrap(), apply), applied)
    }

    fn level(loggers: &Loggers, wanted: &str) -> String {
        loggers.list().into_iter().find(|(logger, _)| logger == wanted).unwrap().1
    }

    fn set(logger: &str, level: &str) -> (String, LevelChange) {
        (logger.to_owned(), LevelChange::Set(level.to_owned()))
    }

    #[test]
    fn each_room_of_the_crate_is_a_logger() {
        let crate_root = include_str!("../lib.rs").lines();
        let rooms: Vec<&str> =
            crate_root.filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
        assert_eq!(rooms, ROOMS);
    }

    #[test]
    fn a_logger_without_a_level_has_that_of_the_one_above() {
        let (loggers, applied) = loggers("warn,barnabas::log=debug");
        assert_eq!(level(&loggers, "barnabas.log"), "DEBUG");
        assert_eq!((level(&loggers, "barnabas.api"), level(&loggers, ROOT)), ("WARN".into(), "WARN".into()));
        loggers.change(&[set("barnabas", "ERROR"), set(ROOT, "INFO")]).unwrap();
        assert_eq!(level(&loggers, "barnabas.api"), "ERROR");
        loggers.change(&[("barnabas".to_owned(), LevelChange::Inherit)]).unwrap();
        assert_eq!((level(&loggers, "barnabas.api"), level(&loggers, ROOT)), ("INFO".into(), "INFO".into()));
        assert_eq!(level(&loggers, "barnabas.log"), "DEBUG");
        assert_eq!(*applied.lock(), "barnabas::log=debug,info");
    }

    #[test]
    fn a_wrong_change_spoils_those_beside_it() {
        let (loggers, applied) = loggers("info");
        let unknown = LoggerError::UnknownLogger { logger: "kafka".into() };
        assert_eq!(loggers.change(&[set("barnabas", "WARN"), set("kafka", "WARN")]), Err(unknown));
        assert_eq!(level(&loggers, "barnabas"), "INFO");
        let level = LoggerError::UnknownLevel { logger: ROOT.into(), level: "info".into() };
        assert_eq!(loggers.check(&[set(ROOT, "info")]), Err(level));
        let inherit = (ROOT.to_owned(), LevelChange::Inherit);
        assert_eq!(loggers.check(&[inherit]), Err(LoggerError::NoRootLevel));
        assert!(applied.lock().is_empty());
    }
}
