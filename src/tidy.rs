//! Reads the project's sources and fails with a sentence when the house rules of `ARCHITECTURE.md` are broken.

use std::fs;
use std::path::{Path, PathBuf};

/// The rooms from top to bottom. A room may use those of later lines, never its own line or an earlier one.
const STOREYS: &[&[&str]] = &[
    &["cli"],
    &["broker"],
    &["network"],
    &["api"],
    &["group", "txn", "controller"],
    &["coordinator"],
    &["replica"],
    &["interbroker"],
    &["log", "metadata", "coordination", "purgatory", "quota"],
    &["security", "observe"],
    &["records", "config"],
    &["runtime"],
    &["model"],
];

/// Rooms, and files of mixed rooms, that do no I/O, know no clock and start no tasks.
const PURE: &[&str] = &[
    "config",
    "controller/core",
    "controller/placement",
    "coordination/text.rs",
    "coordination/tree.rs",
    "coordination/znodes",
    "coordinator/shard.rs",
    "group/classic",
    "log/checkpoint.rs",
    "log/compaction",
    "log/epoch_cache.rs",
    "log/producer_snapshot.rs",
    "log/producer_state.rs",
    "log/transaction_index.rs",
    "model",
    "purgatory",
    "quota",
    "records",
    "replica/fetch_session.rs",
    "security",
    "txn/records.rs",
    "txn/shard.rs",
    "txn/transaction.rs",
];

/// What a pure file must not name.
const IMPURE: &[&str] = &[
    "tokio::",
    "std::fs",
    "std::thread",
    "std::time::Instant",
    "SystemTime",
    "std::env",
    "tracing::",
    "rustix::",
];

/// Where the wire types may be named.
const WIRE: &[&str] = &["api/", "interbroker/", "network/", "coordination/server"];

struct Source {
    /// Below `src/`, with `/`.
    path: String,
    text: String,
}

impl Source {
    /// The file without its tests, which may use what they like.
    fn code(&self) -> &str {
        self.text.split("#[cfg(test)]").next().unwrap_or(&self.text)
    }

    fn is_test(&self) -> bool {
        self.path.contains("tests") || self.path.contains("testing") || self.path == "tidy.rs"
    }

    fn room(&self) -> Option<&str> {
        self.path.split_once('/').map(|(room, _)| room)
    }

    fn code_lines(&self) -> impl Iterator<Item = &str> {
        self.code().lines().filter(|line| !line.trim_start().starts_with("//"))
    }
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    collect(&root, &root, &mut found);
    assert!(found.len() > 10, "the sources are not where this test looks: {}", root.display());
    found
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(root, &path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let below = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
            found.push(Source { path: below, text: fs::read_to_string(&path).unwrap() });
        }
    }
}

#[track_caller]
fn check(broken: Vec<String>) {
    assert!(broken.is_empty(), "{} rules broken:\n  {}", broken.len(), broken.join("\n  "));
}

fn storey(room: &str) -> Option<usize> {
    STOREYS.iter().position(|rooms| rooms.contains(&room))
}

/// The rooms that a line of code names as `crate::room`.
fn rooms_named(line: &str) -> impl Iterator<Item = &str> {
    line.split("crate::").skip(1).filter_map(|rest| {
        let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
        storey(name).map(|_| name)
    })
}

#[test]
fn rooms_import_only_downwards() {
    let mut broken = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        let Some(room) = source.room() else { continue };
        let Some(own) = storey(room) else {
            broken.push(format!("{}: room `{room}` stands in no storey of src/tidy.rs", source.path));
            continue;
        };
        for line in source.code_lines() {
            for named in rooms_named(line).filter(|&named| named != room) {
                if storey(named).is_some_and(|other| other <= own) {
                    broken.push(format!("{}: `{room}` may not use `{named}`", source.path));
                }
            }
        }
    }
    broken.dedup();
    check(broken);
}

#[test]
fn pure_rooms_do_no_io() {
    let is_of = |pure: &str, path: &str| {
        let rest = path.strip_prefix(pure);
        rest.is_some_and(|rest| rest.is_empty() || rest == ".rs" || rest.starts_with('/'))
    };
    let sources = sources();
    let is_there = |pure: &&str| sources.iter().any(|source| is_of(pure, &source.path));
    let missing = PURE.iter().filter(|pure| !is_there(pure));
    let mut broken: Vec<String> = missing.map(|pure| format!("{pure} is not there")).collect();
    for source in &sources {
        if source.is_test() || !PURE.iter().any(|pure| is_of(pure, &source.path)) {
            continue;
        }
        for line in source.code_lines() {
            for impure in IMPURE.iter().filter(|impure| line.contains(**impure)) {
                broken.push(format!("{} is pure, yet names `{impure}`", source.path));
            }
        }
    }
    check(broken);
}

#[test]
fn wire_types_end_at_the_api() {
    let mut broken = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        let is_allowed = WIRE.iter().any(|place| source.path.starts_with(place))
            || source.path.ends_with("/records.rs")
            || source.path.contains("/records/") && !source.path.starts_with("records/");
        if is_allowed {
            continue;
        }
        for line in source.code_lines().filter(|line| line.contains("wire::")) {
            broken.push(format!("{}: wire types are not named here: {}", source.path, line.trim()));
        }
    }
    check(broken);
}

#[test]
fn every_room_has_a_door_that_says_what_it_is() {
    let doors = sources().into_iter().filter(|source| source.path.ends_with("mod.rs"));
    let closed = doors.filter(|door| !door.text.starts_with("//!"));
    check(closed.map(|door| format!("{}: begin with a `//!` doc", door.path)).collect());
}

#[test]
fn handlers_say_how_they_behave_and_which_versions_they_serve() {
    let handlers = sources().into_iter().filter(|source| {
        source.path.starts_with("api/")
            && (source.text.contains("pub async fn handle(") || source.text.contains("pub async fn answer("))
    });
    let silent = handlers.filter(|handler| {
        !handler.text.contains("//! Behaviour:") || !handler.text.contains("//! Versions:")
    });
    check(
        silent.map(|handler| format!("{}: `Behaviour:` or `Versions:` is missing", handler.path)).collect(),
    );
}

#[test]
fn tasks_start_in_one_place() {
    let mut broken = Vec::new();
    let starts_tasks = ["runtime/task.rs", "runtime/process.rs"];
    for source in sources().iter().filter(|source| !source.is_test()) {
        if starts_tasks.contains(&source.path.as_str()) {
            continue;
        }
        let is_start = |line: &&str| line.contains("tokio::spawn(") || line.contains("spawn_blocking(");
        for line in source.code_lines().filter(is_start) {
            broken.push(format!("{}: start tasks through runtime::task: {}", source.path, line.trim()));
        }
    }
    check(broken);
}

#[test]
fn kafka_codes_are_written_in_one_table() {
    let mut broken = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        let is_domain = !["api/", "network/", "interbroker/", "observe/"]
            .iter()
            .any(|place| source.path.starts_with(place));
        if is_domain && source.code_lines().any(|line| line.contains("ErrorCode")) {
            broken.push(format!("{}: domain rooms name facts, not Kafka's codes", source.path));
        }
    }
    check(broken);
}
