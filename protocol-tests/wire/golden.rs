//! What Kafka's own classes write is read and written again to the same bytes.
//!
//! The frames are made by `java/GoldenFrames.java` at test time, from the jars of two releases: every message
//! and version, with default, empty, null, full and mixed values.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use bytes::Bytes;

use crate::catalog;

/// One release's frames, made once.
static KAFKA_3_9_2: LazyLock<Vec<Frame>> = LazyLock::new(|| frames("3.9.2"));
static KAFKA_4_3_1: LazyLock<Vec<Frame>> = LazyLock::new(|| frames("4.3.1"));

const JARS: [&str; 5] = [
    "kafka-clients",
    "kafka-group-coordinator",
    "kafka-metadata",
    "kafka-share-coordinator",
    "kafka-transaction-coordinator",
];

/// Tested below.
const HEADERS: [&str; 2] = ["RequestHeader", "ResponseHeader"];

#[test]
fn frames_of_kafka_4_3_1_come_back() {
    frames_come_back(&KAFKA_4_3_1, &[]);
}

#[test]
fn frames_of_kafka_3_9_2_come_back() {
    // Early forms of share groups, which 4.x changed within the version.
    let changed_since = [("ReadShareGroupStateSummaryResponse", 0), ("ShareGroupMetadataValue", 0)];
    frames_come_back(&KAFKA_3_9_2, &changed_since);
}

#[test]
fn every_version_is_written_by_one_of_the_releases() {
    let mut covered = BTreeSet::new();
    for frame in KAFKA_3_9_2.iter().chain(KAFKA_4_3_1.iter()) {
        covered.insert((frame.name.clone(), frame.version));
    }
    for entry in catalog::all() {
        for version in entry.min_version..=entry.max_version {
            let is_covered = covered.contains(&(entry.name.to_owned(), version));
            assert!(is_covered, "{} v{version} is in neither release", entry.name);
        }
    }
}

#[test]
fn defaults_are_those_of_kafka_4_3_1() {
    let entries = catalog::by_name();
    for frame in KAFKA_4_3_1.iter().filter(|frame| frame.fill == "default") {
        let Some(entry) = entries.get(frame.name.as_str()) else { continue };
        let ours = (entry.default)(frame.version);
        assert_eq!(ours.as_ref(), Ok(&frame.bytes), "{} v{}", frame.name, frame.version);
    }
}

struct Frame {
    name: String,
    version: i16,
    fill: String,
    bytes: Bytes,
}

fn frames_come_back(frames: &[Frame], changed_since: &[(&str, i16)]) {
    let entries = catalog::by_name();
    let mut wrong = Vec::new();
    let mut count = 0;
    for frame in frames {
        if HEADERS.contains(&frame.name.as_str()) {
            header_comes_back(frame);
            continue;
        }
        if changed_since.contains(&(frame.name.as_str(), frame.version)) {
            continue;
        }
        let Some(entry) = entries.get(frame.name.as_str()) else {
            wrong.push(format!("{} is unknown", frame.name));
            continue;
        };
        count += 1;
        match (entry.again)(&frame.bytes, frame.version) {
            Ok(bytes) if bytes == frame.bytes => {}
            Ok(_) => wrong.push(format!("{} v{} {}: other bytes", frame.name, frame.version, frame.fill)),
            Err(error) => wrong.push(format!("{} v{} {}: {error}", frame.name, frame.version, frame.fill)),
        }
    }
    assert!(wrong.is_empty(), "{} of {count} frames:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 4000, "only {count} frames");
}

fn header_comes_back(frame: &Frame) {
    let mut r = wire::Reader::new(frame.bytes.clone());
    let mut w = wire::Writer::new();
    match frame.name.as_str() {
        "RequestHeader" => {
            let header = wire::RequestHeader::decode(&mut r, frame.version).unwrap();
            header.encode(&mut w, frame.version).unwrap();
        }
        "ResponseHeader" => {
            let header = wire::ResponseHeader::decode(&mut r, frame.version).unwrap();
            header.encode(&mut w, frame.version).unwrap();
        }
        _ => return,
    }
    assert_eq!(w.into_bytes(), frame.bytes, "{} v{}", frame.name, frame.version);
}

fn frames(release: &str) -> Vec<Frame> {
    let output = emit(release);
    output.lines().map(|line| parse(release, line)).collect()
}

fn parse(release: &str, line: &str) -> Frame {
    let words: Vec<&str> = line.split(' ').collect();
    let [name, version, fill, hex] = words[..] else { panic!("not a frame: {line}") };
    let bytes: Vec<u8> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    let (name, version) = as_we_name_it(release, name, version.parse().unwrap());
    Frame { name, version, fill: fill.to_owned(), bytes: bytes.into() }
}

/// Names that changed between the releases: the type of a coordinator record was the version of its key
/// before it had a number of its own.
fn as_we_name_it(release: &str, name: &str, version: i16) -> (String, i16) {
    if release == "3.9.2" && name.ends_with("Key") {
        return (name.to_owned(), 0);
    }
    (name.replace("ListClientMetricsResources", "ListConfigResources"), version)
}

/// Compiles and runs `GoldenFrames` against the jars of a release; fetches them first if they are not there.
fn emit(release: &str) -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    run(Command::new(here.join("peers/fetch-jars.sh")).arg(release));
    let lib = cache().join(release).join("lib");
    let classes =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("golden-{release}-{}", std::process::id()));
    let class_path = format!("{}/*", lib.display());
    let source = here.join("java/GoldenFrames.java");
    run(Command::new("javac").args(["-cp", &class_path, "-d"]).arg(&classes).arg(source));
    let jars = JARS.iter().map(|jar| lib.join(format!("{jar}-{release}.jar"))).filter(|jar| jar.exists());
    let output = run(Command::new("java")
        .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp"])
        .arg(format!("{}:{class_path}", classes.display()))
        .arg("GoldenFrames")
        .args(jars));
    std::fs::remove_dir_all(classes).unwrap();
    String::from_utf8(output).unwrap()
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn cache() -> PathBuf {
    let from =
        |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    from("KAFKA_PEERS_CACHE")
        .or_else(|| from("XDG_CACHE_HOME").map(|cache| cache.join("kafka-peers")))
        .or_else(|| from("HOME").map(|home| home.join(".cache/kafka-peers")))
        .expect("HOME is set")
}
