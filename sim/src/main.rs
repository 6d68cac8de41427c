//! Whole clusters of Barnabas from one seed, in one process: see `docs/reference/simulation.md`.

mod chance;
mod checks;
mod client;
mod ensemble;
mod entropy;
mod faults;
mod history;
mod logs;
mod many;
mod plan;
mod simulation;
mod switch;
mod trace;
mod world;

use std::process::ExitCode;

use clap::Parser;
use simulation::Outcome;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// As the brokers have it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Simulates clusters, one for each seed, and tells which of them broke a promise.
#[derive(Parser)]
struct Arguments {
    /// Replays one seed, here, and prints what happened when it fails.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Prints what happens while it happens.
    #[arg(long, requires = "seed")]
    show: bool,
    /// What the brokers log, as `barnabas.log.level`.
    #[arg(long, requires = "seed")]
    log: Option<String>,
    /// How many seeds to run, each in a process of its own.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many at once; as many as there are cores unless said.
    #[arg(long)]
    jobs: Option<usize>,
    /// Runs each seed twice and fails where the two differ.
    #[arg(long)]
    twice: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let has_failed = match arguments.seed {
        Some(seed) => replay(seed, arguments.show, arguments.log.as_deref()),
        None => many::run(&many::Options {
            seeds: arguments.from..arguments.from.saturating_add(arguments.seeds),
            jobs: arguments.jobs,
            twice: arguments.twice,
        }),
    };
    if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Whether the seed has failed.
fn replay(seed: u64, is_shown: bool, log: Option<&str>) -> bool {
    if let Some(filter) = log {
        show_logs(filter);
    }
    entropy::seed(seed);
    // A thread of its own, whose hash maps have keys that the seed decides.
    let simulated = std::thread::spawn(move || simulate(seed, is_shown)).join();
    let Ok(outcome) = simulated else { return true };
    let Outcome { violations, trace, digest, acknowledged, transactions, committed_offsets, simulated } =
        outcome;
    if !violations.is_empty() && !is_shown {
        trace.iter().for_each(|line| println!("{line}"));
    }
    let seconds = simulated.as_secs();
    let verdict = if violations.is_empty() { "ok" } else { "FAILED" };
    println!(
        "seed {seed} {verdict}: {acknowledged} records, {transactions} transactions, {committed_offsets} offsets in \
         {seconds} s, digest {digest:016x}"
    );
    !violations.is_empty()
}

fn simulate(seed: u64, is_shown: bool) -> Outcome {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().expect("a runtime without sockets");
    let outcome = runtime.block_on(simulation::run(seed, is_shown));
    // Dropping some hundred tasks in the middle of what they do proves nothing.
    std::mem::forget(runtime);
    outcome
}

fn show_logs(filter: &str) {
    let targets: Targets = filter.parse().unwrap_or_else(|error| panic!("{filter}: {error}"));
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_timer(trace::LogTime)
        .with_writer(std::io::stderr);
    tracing_subscriber::registry().with(lines.with_filter(targets)).init();
}
