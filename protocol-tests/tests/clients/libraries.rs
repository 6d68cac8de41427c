use std::path::PathBuf;
use std::process::Command;

use protocol_tests::client::{ALL_CODECS, Client, cached, cached_dir, java_classes, run, source};
use protocol_tests::{Broker, command_exists};

/// A group must not wait for further members, so that no test waits for them.
const SETTINGS: &[(&str, &str)] = &[("group.initial.rebalance.delay.ms", "0")];

#[track_caller]
fn walk(name: &'static str, groups: bool, program: fn() -> Result<Command, String>) {
    let mut broker = Broker::start(SETTINGS);
    Client { name, codecs: ALL_CODECS, groups, program }.walk(&mut broker);
}

#[test]
fn confluent_kafka() {
    walk("confluent-kafka", true, || python("client_confluent.py"));
}

#[test]
fn kafka_python() {
    walk("kafka-python", true, || python("client_kafka_python.py"));
}

#[test]
fn aiokafka() {
    walk("aiokafka", true, || python("client_aiokafka.py"));
}

#[test]
fn kafkajs() {
    walk("kafkajs", true, node);
}

#[test]
fn franz_go() {
    walk("franz-go", true, || go("franz"));
}

#[test]
fn sarama() {
    walk("sarama", true, || go("sarama"));
}

#[test]
fn segmentio_kafka_go() {
    walk("kafka-go", true, || go("kafkago"));
}

#[test]
fn rdkafka() {
    walk("rdkafka", true, || rust("client_rdkafka"));
}

#[test]
fn rskafka() {
    walk("rskafka", false, || rust("client_rskafka"));
}

#[test]
fn java_4_3_1() {
    walk("java-4.3.1", true, || java("4.3.1"));
}

#[test]
fn java_3_9_2() {
    walk("java-3.9.2", true, || java("3.9.2"));
}

#[test]
fn java_2_8_2() {
    walk("java-2.8.2", true, || java("2.8.2"));
}

fn needs(command: &str) -> Result<(), String> {
    if command_exists(command) { Ok(()) } else { Err(format!("this machine has no {command}")) }
}

/// A failed build of a client whose tools are there is a failure, not a client to leave out.
fn must(built: Result<PathBuf, String>) -> PathBuf {
    built.unwrap_or_else(|error| panic!("{error}"))
}

fn python(script: &str) -> Result<Command, String> {
    needs("python3")?;
    let requirements = source("python/requirements.txt");
    let dir = must(cached("python", std::slice::from_ref(&requirements), |dir| {
        run(Command::new("python3").args(["-m", "venv"]).arg(dir))?;
        let mut pip = Command::new(dir.join("bin/pip"));
        run(pip.args(["install", "--quiet", "--require-hashes", "-r"]).arg(&requirements))
    }));
    let mut command = Command::new(dir.join("bin/python"));
    command.arg("-B").arg(source("python").join(script));
    Ok(command)
}

fn node() -> Result<Command, String> {
    needs("node")?;
    needs("npm")?;
    let files = ["package.json", "package-lock.json"].map(|name| source("node").join(name));
    let dir = must(cached("node", &files, |dir| {
        for file in &files {
            let name = file.file_name().unwrap_or_default();
            std::fs::copy(file, dir.join(name)).map_err(|error| error.to_string())?;
        }
        run(Command::new("npm").args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(dir))
    }));
    let mut command = Command::new("node");
    command.arg(source("node/client_kafkajs.js")).env("NODE_PATH", dir.join("node_modules"));
    Ok(command)
}

fn go(program: &str) -> Result<Command, String> {
    needs("go")?;
    let dir = must(cached_dir("go", |dir| {
        let mut build = Command::new("go");
        build.args(["build", "-mod=readonly", "-o"]).arg(dir).args(["./franz", "./sarama", "./kafkago"]);
        run(build.current_dir(source("go")))
    }));
    Ok(Command::new(dir.join(program)))
}

fn rust(program: &str) -> Result<Command, String> {
    needs("make")?;
    let dir = must(cached_dir("rust", |dir| {
        let mut build = Command::new("cargo");
        // The flags of this run are meant for the project, and would only build librdkafka anew.
        build.env_remove("RUSTFLAGS").env("CARGO_TARGET_DIR", dir);
        run(build.args(["build", "--locked", "--manifest-path"]).arg(source("rust/Cargo.toml")))
    }));
    Ok(Command::new(dir.join("debug").join(program)))
}

fn java(version: &str) -> Result<Command, String> {
    needs("javac")?;
    needs("mvn")?;
    let class_path = java_classes(version).unwrap_or_else(|error| panic!("{error}"));
    let mut command = Command::new("java");
    command.args([
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-Xmx256m",
        "-cp",
        &class_path,
        "JavaClient",
    ]);
    Ok(command)
}
