//! The programs in `clients/`, built where the machine has their tools; the error says which tool it lacks.

use std::path::PathBuf;
use std::process::Command;

use super::program::{cached, cached_dir, java_classes, java_program, run};
use super::source;
use crate::command_exists;

fn needs(command: &str) -> Result<(), String> {
    if command_exists(command) { Ok(()) } else { Err(format!("this machine has no {command}")) }
}

/// A failed build of a client whose tools are there is a failure, not a client to leave out.
fn must(built: Result<PathBuf, String>) -> PathBuf {
    built.unwrap_or_else(|error| panic!("{error}"))
}

/// A program in `clients/python`.
pub fn python(script: &str) -> Result<Command, String> {
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

/// A program in `clients/node`.
pub fn node(script: &str) -> Result<Command, String> {
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
    command.arg(source("node").join(script)).env("NODE_PATH", dir.join("node_modules"));
    Ok(command)
}

/// A program in `clients/go`.
pub fn go(program: &str) -> Result<Command, String> {
    needs("go")?;
    let dir = must(cached_dir("go", |dir| {
        let mut build = Command::new("go");
        build.args(["build", "-mod=readonly", "-o"]).arg(dir).arg("./...");
        run(build.current_dir(source("go")))
    }));
    Ok(Command::new(dir.join(program)))
}

/// The tests of a package that `clients/go` depends on, as one program.
pub fn go_tests_of(package: &str) -> Result<Command, String> {
    needs("go")?;
    let name = format!("{}.test", package.rsplit('/').next().unwrap_or(package));
    let dir = must(cached_dir("go-tests", |dir| {
        let mut build = Command::new("go");
        build.args(["test", "-mod=readonly", "-c", "-o"]).arg(dir.join(&name)).arg(package);
        run(build.current_dir(source("go")))
    }));
    Ok(Command::new(dir.join(name)))
}

/// A program in `clients/rust`.
pub fn rust(program: &str) -> Result<Command, String> {
    needs("make")?;
    let dir = must(cached_dir("rust", |dir| {
        let mut build = Command::new("cargo");
        // The flags of this run are meant for the project, and would only build librdkafka anew.
        build.env_remove("RUSTFLAGS").env("CARGO_TARGET_DIR", dir);
        run(build.args(["build", "--locked", "--manifest-path"]).arg(source("rust/Cargo.toml")))
    }));
    Ok(Command::new(dir.join("debug").join(program)))
}

/// A class in `clients/java`, with the jars of Kafka `version`.
pub fn java(version: &str, class: &str) -> Result<Command, String> {
    needs("javac")?;
    needs("mvn")?;
    if class != "JavaClient" {
        return Ok(java_program(version, class, Some(&format!("{class}.java")))
            .unwrap_or_else(|error| panic!("{error}")));
    }
    let class_path = java_classes(version).unwrap_or_else(|error| panic!("{error}"));
    let mut command = Command::new("java");
    command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", &class_path, class]);
    Ok(command)
}
