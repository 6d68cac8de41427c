//! What the client programs need: packages from their registries, compiled programs. All of it is kept outside the
//! source tree, in a cache folder that later runs reuse.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::machine::{announce, protocol_tests_dir};

/// Names a client that this run leaves out, and why.
pub fn left_out(client: &str, reason: &str) {
    announce(&format!("LEFT OUT: {client}: {reason}"));
}

/// `$BARNABAS_CLIENTS_CACHE`, or `barnabas-clients` in the user's cache folder.
fn cache() -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    variable("BARNABAS_CLIENTS_CACHE")
        .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("barnabas-clients")))
        .or_else(|| Some(variable("HOME")?.join(".cache/barnabas-clients")))
        .unwrap_or_else(|| std::env::temp_dir().join("barnabas-clients"))
}

/// The folder `name` in the cache, made by `build` unless it was made from the same `inputs` (files) before.
/// Other tests and other runs wait while it is being made.
pub fn cached(
    name: &str,
    inputs: &[PathBuf],
    build: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let dir = cache().join(name);
    std::fs::create_dir_all(&dir).map_err(|error| format!("create {}: {error}", dir.display()))?;
    let lock = File::create(cache().join(format!("{name}.lock"))).map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| error.to_string())?;
    let stamp = dir.join("made-from");
    let fingerprint = fingerprint(inputs);
    if std::fs::read_to_string(&stamp).is_ok_and(|found| found == fingerprint) {
        return Ok(dir);
    }
    std::fs::remove_dir_all(&dir)
        .and_then(|()| std::fs::create_dir_all(&dir))
        .map_err(|error| error.to_string())?;
    build(&dir)?;
    std::fs::write(&stamp, fingerprint).map_err(|error| error.to_string())?;
    Ok(dir)
}

/// The folder `name` in the cache, for tools that find out themselves what is stale; `build` runs each time, by one
/// test at a time.
pub fn cached_dir(name: &str, build: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let dir = cache().join(name);
    std::fs::create_dir_all(&dir).map_err(|error| format!("create {}: {error}", dir.display()))?;
    let lock = File::create(cache().join(format!("{name}.lock"))).map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| error.to_string())?;
    build(&dir)?;
    Ok(dir)
}

fn fingerprint(inputs: &[PathBuf]) -> String {
    let sum = |path: &PathBuf| {
        let bytes = std::fs::read(path).unwrap_or_default();
        // Another checkout with the same files has the same programs.
        let name = path.file_name().unwrap_or_default().display();
        format!("{name} {:08x} {}\n", crc32c::crc32c(&bytes), bytes.len())
    };
    inputs.iter().map(sum).collect()
}

/// Runs a build step; the error is its output.
pub fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&text)))
}

/// The classes of `clients/java`, compiled against the jars of Kafka `version`; the second value is the class path.
pub fn java_classes(version: &str) -> Result<String, String> {
    let jars = peer_jars(version)?;
    let sources: Vec<PathBuf> =
        ["ToolSession.java", "JavaClient.java"].map(|name| super::source("java").join(name)).into();
    let dir = cached(&format!("java-{version}"), &sources, |dir| {
        let class_path = format!("{}/*", jars.display());
        // The oldest clients have another API; only the tools are run with them.
        let compiled = if version.starts_with("0.") { &sources[..1] } else { &sources[..] };
        run(Command::new("javac").args(["-nowarn", "-cp", &class_path, "-d"]).arg(dir).args(compiled))
    })?;
    Ok(format!("{}:{}/*", dir.display(), jars.display()))
}

/// A Java program beside Kafka's jars of `version`: a class of those jars, or (`source`) one of `clients/java`.
pub fn java_program(version: &str, main_class: &str, source: Option<&str>) -> Result<Command, String> {
    let jars = peer_jars(version)?;
    let mut class_path = format!("{}/*", jars.display());
    if let Some(source) = source {
        let file = super::source("java").join(source);
        let dir = cached(&format!("java-{version}-{main_class}"), std::slice::from_ref(&file), |dir| {
            run(Command::new("javac").args(["-nowarn", "-cp", &class_path, "-d"]).arg(dir).arg(&file))
        })?;
        class_path = format!("{}:{class_path}", dir.display());
    }
    let peers = protocol_tests_dir().join("peers/conf");
    let logging = match version.starts_with('4') {
        true => format!("-Dlog4j2.configurationFile={}/tools-log4j2.properties", peers.display()),
        false => format!("-Dlog4j.configuration=file:{}/tools-log4j.properties", peers.display()),
    };
    let mut command = Command::new("java");
    command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xmx384m", &logging]);
    command.args(["-Dpeer.level=WARN", "-cp", &class_path, main_class]);
    Ok(command)
}

fn peer_jars(version: &str) -> Result<PathBuf, String> {
    let peers = protocol_tests_dir().join("peers");
    run(Command::new(peers.join("fetch-jars.sh")).arg(version))?;
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = variable("KAFKA_PEERS_CACHE")
        .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("kafka-peers")))
        .or_else(|| Some(variable("HOME")?.join(".cache/kafka-peers")))
        .ok_or("neither KAFKA_PEERS_CACHE nor HOME is set")?;
    Ok(cache.join(version).join("lib"))
}
