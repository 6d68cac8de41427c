//! The seeds that run with all other tests.

use std::process::Command;

#[track_caller]
fn run(arguments: &[&str]) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_sim")).args(arguments).output().expect("start the simulation");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn clusters_keep_their_promises() {
    run(&["--seeds", "200"]);
}

#[test]
fn a_seed_repeats_itself() {
    run(&["--seeds", "5", "--from", "1000000", "--twice"]);
}
