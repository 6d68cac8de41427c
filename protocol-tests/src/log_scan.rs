//! Barnabas's own log, read after each test: a WARN or ERROR that the test did not announce is a failure.

/// Lines that every healthy run may have.
const ALWAYS_ALLOWED: &[&str] = &[];

/// The lines of a log that nobody expected: WARN and ERROR without one of `allowed` in them, and panics always.
pub fn unexpected_lines<'a>(log: &'a str, allowed: &[String]) -> Vec<&'a str> {
    log.lines().filter(|line| is_unexpected(line, allowed)).collect()
}

fn is_unexpected(line: &str, allowed: &[String]) -> bool {
    if line.contains("panicked at") {
        return true;
    }
    // The level is the second word; the first is the time.
    let level = line.split_whitespace().nth(1);
    let is_bad = matches!(level, Some("WARN" | "ERROR"));
    is_bad
        && !ALWAYS_ALLOWED.iter().any(|known| line.contains(known))
        && !allowed.iter().any(|known| line.contains(known.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unannounced_warnings_and_errors_and_all_panics_are_reported() {
        let log = "2026-01-01T00:00:00Z  INFO barnabas: started\n\
                   2026-01-01T00:00:00Z  WARN barnabas: odd thing\n\
                   2026-01-01T00:00:00Z ERROR barnabas: broken segment file=7\n\
                   thread 'x' panicked at src/a.rs:1:1:\n";
        let found = unexpected_lines(log, &["odd thing".to_owned(), "panicked".to_owned()]);
        assert_eq!(found.len(), 2);
        assert!(found[0].contains("broken segment"));
        assert!(found[1].contains("panicked at"));
    }
}
