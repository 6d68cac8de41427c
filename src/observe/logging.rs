//! Logs: readable lines on stderr, one an event, whatever clients put into the values.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::OnceLock;

use snafu::Snafu;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::prelude::*;
use tracing_subscriber::reload;

use super::Loggers;

/// The filter is not a level, nor `module=level` pairs separated by commas.
#[derive(Debug, Snafu, PartialEq, Eq)]
#[snafu(display(
    "{filter:?} is not a log level (error, warn, info, debug, trace, off) or module=level list"
))]
pub struct InvalidFilter {
    filter: String,
}

static LOGGERS: OnceLock<Loggers> = OnceLock::new();

/// Starts logging for the whole process; panics become ERROR lines. Does nothing when called again.
pub fn init(filter: &str) -> Result<(), InvalidFilter> {
    let targets = parse(filter).ok_or_else(|| InvalidFilter { filter: filter.to_owned() })?;
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(EscapedStderr);
    let (in_force, handle) = reload::Layer::new(targets.clone());
    if tracing_subscriber::registry().with(lines.with_filter(in_force)).try_init().is_ok() {
        std::panic::set_hook(Box::new(log_panic));
        // The filter is gone only with the process.
        let _ = LOGGERS.set(Loggers::new(targets, move |changed| drop(handle.reload(changed))));
    }
    Ok(())
}

/// Those of the process; `None` = it does not log, or not by [`init`].
pub fn loggers() -> Option<&'static Loggers> {
    LOGGERS.get()
}

/// A lone word must be a level: taken for a module, as [`Targets`] would, a slip would silence the log.
fn parse(filter: &str) -> Option<Targets> {
    let is_level = |word: &str| !word.is_empty() && word.parse::<LevelFilter>().is_ok();
    let is_known = |item: &str| match item.rsplit_once('=') {
        Some((_, level)) => is_level(level.trim()),
        None => is_level(item),
    };
    if filter.split(',').all(|item| is_known(item.trim())) { filter.parse().ok() } else { None }
}

fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    let thread = std::thread::current();
    let payload = panic.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let reason = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown");
    let trace = std::backtrace::Backtrace::capture();
    tracing::error!(thread = thread.name(), place, reason, %trace, "panic");
}

/// Writes to stderr with everything but the last line break made visible.
///
/// Names and ids in events come from clients: without this, one of them could forge a line or drive a terminal.
struct EscapedStderr;

impl MakeWriter<'_> for EscapedStderr {
    type Writer = EscapedStderr;

    fn make_writer(&self) -> EscapedStderr {
        EscapedStderr
    }
}

impl Write for EscapedStderr {
    /// Takes a whole event, as the formatter hands it over.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        io::stderr().lock().write_all(escape(&String::from_utf8_lossy(event)).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn escape(event: &str) -> String {
    let line = event.strip_suffix('\n').unwrap_or(event);
    let mut escaped = String::with_capacity(event.len());
    for character in line.chars() {
        match character {
            '\n' => escaped.push_str("\\n"),
            '\t' => escaped.push_str("\\t"),
            '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                let _ = write!(escaped, "\\u{{{:x}}}", u32::from(character));
            }
            control if control.is_control() => {
                let _ = write!(escaped, "\\u{{{:x}}}", u32::from(control));
            }
            other => escaped.push(other),
        }
    }
    escaped.push('\n');
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_cannot_begin_a_line_or_drive_a_terminal() {
        assert_eq!(escape("joined id=a\nERROR forged\n"), "joined id=a\\nERROR forged\n");
        assert_eq!(escape("id=\x1b[31m\r\u{9b}\n"), "id=\\u{1b}[31m\\u{d}\\u{9b}\n");
        assert_eq!(escape("id=\u{202e}x ünïcode\n"), "id=\\u{202e}x ünïcode\n");
    }

    #[test]
    fn filters_are_levels_or_lists() {
        for filter in ["info", "warn,barnabas::log=debug", "off"] {
            assert!(parse(filter).is_some(), "{filter}");
        }
        for filter in ["loud", "barnabas=loud", "", "info,"] {
            assert!(parse(filter).is_none(), "{filter}");
        }
    }
}
