use std::process::Command;

use protocol_tests::{Broker, Cluster, Connection, Line, Process, announce, scaled, seed};

use super::{SILENCE, can_run, java};

#[test]
fn streams_4_3_1_exactly_once_gives_the_reference_result_through_kills() {
    walk("4.3.1", "exactly_once_v2", 1);
}

#[test]
fn streams_3_9_2_exactly_once_gives_the_reference_result_through_kills() {
    walk("3.9.2", "exactly_once_v2", 2);
}

#[test]
fn streams_4_3_1_at_least_once_loses_nothing_through_kills() {
    walk("4.3.1", "at_least_once", 3);
}

#[test]
fn streams_3_9_2_at_least_once_loses_nothing_through_kills() {
    walk("3.9.2", "at_least_once", 4);
}

/// What the application reads and writes.
const TOPICS: [&str; 4] = ["customers", "purchases", "totals", "counts"];
const PURCHASES: usize = 1_500;
const FAULTS: usize = 5;

/// Two workers, their input and its reader all work at once, and faults befall workers and broker when so much of the input
/// is written, or so much of the result is there.
#[track_caller]
fn walk(version: &str, guarantee: &str, default_seed: u64) {
    let name = format!("Streams {version} {guarantee}");
    if !can_run(&name) {
        return;
    }
    let mut random = fastrand::Rng::with_seed(seed(&name, default_seed));
    let mut settings = vec![("group.initial.rebalance.delay.ms", "0"), ("num.partitions", "4")];
    settings.extend(super::ONE_TRANSACTION_LOG);
    let mut broker = Broker::start(&settings);
    // Of instances that were killed.
    broker.allow_log("aborting a transaction that outlived its timeout");
    // What a kill may leave behind, and the start says that it mends.
    for text in ["rebuilding an index", "cut an unfinished write", "at the first batch that is not sound"] {
        broker.allow_log(text);
    }
    let address = broker.address();
    let mut connection = Connection::open(&address);
    TOPICS.iter().for_each(|topic| connection.create_topic(topic, 4, &[]));
    drop(connection);
    // The customers first: a purchase is joined with nobody where its customer is not there.
    expect(version, &["feed", &address, "0", "1", "0"], "fed");
    let folders = ["a", "b"].map(|name| broker.dir().join(name).display().to_string());
    let mut workers = Workers::start(|number| start(version, &address, &folders[number], guarantee, 1));
    let purchases = scaled(PURCHASES);
    let mut written = Progress::of(version, &["feed", &address, "1", &purchases.to_string(), "10"]);
    let check = ["check", &address, &purchases.to_string(), comparison(guarantee)];
    let mut counted = Progress::of(version, &check);
    let faults = Fault::draw(scaled(FAULTS), &mut random);
    let mut moments: Vec<usize> = faults.iter().map(|_| random.usize(purchases / 20..purchases)).collect();
    moments.sort_unstable();
    for (fault, moment) in faults.into_iter().zip(moments) {
        let (what, progress) =
            if random.bool() { ("written", &mut written) } else { ("counted", &mut counted) };
        progress.await_number(moment);
        announce(&format!("{name}: {fault:?} at {moment} {what}"));
        fault.strike(&mut workers, &mut broker);
    }
    written.finish("fed");
    counted.finish("right");
    workers.running.into_iter().flatten().for_each(check_app);
}

/// What befalls the run while it works.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// SIGKILL for this one of the two workers, or for the other where this one is dead.
    WorkerKilled { number: usize, stays_dead: bool },
    /// SIGKILL, and a new start.
    BrokerKilled,
    /// SIGTERM, and a new start.
    BrokerStopped,
}

impl Fault {
    fn of_worker(random: &mut fastrand::Rng) -> Fault {
        Fault::WorkerKilled { number: random.usize(..2), stays_dead: random.bool() }
    }

    fn any(random: &mut fastrand::Rng) -> Fault {
        match random.u8(..4) {
            0 | 1 => Fault::of_worker(random),
            2 => Fault::BrokerKilled,
            _ => Fault::BrokerStopped,
        }
    }

    /// So many at least, of which one kills a worker and one the broker.
    fn draw(count: usize, random: &mut fastrand::Rng) -> Vec<Fault> {
        let mut faults = vec![Fault::of_worker(random), Fault::BrokerKilled];
        while faults.len() < count {
            faults.push(Fault::any(random));
        }
        random.shuffle(&mut faults);
        faults
    }

    /// A worker that the last one left dead comes back first, or nobody might be there to go on.
    #[track_caller]
    fn strike<F: Fn(usize) -> Process>(self, workers: &mut Workers<F>, broker: &mut Broker) {
        let alive = workers.running.each_ref().map(Option::is_some);
        workers.revive();
        match self {
            Fault::WorkerKilled { number, stays_dead } => {
                let victim = if alive[number] { number } else { 1 - number };
                workers.running[victim] = None;
                if !stays_dead {
                    workers.revive();
                }
            }
            Fault::BrokerKilled => {
                broker.kill();
                broker.start_again();
            }
            Fault::BrokerStopped => broker.restart(),
        }
    }
}

/// The two instances of the application.
struct Workers<F> {
    start: F,
    /// `None` = killed.
    running: [Option<Process>; 2],
}

impl<F: Fn(usize) -> Process> Workers<F> {
    /// Starts both, and waits until they work.
    #[track_caller]
    fn start(start: F) -> Workers<F> {
        let mut running = [Some(start(0)), Some(start(1))];
        running.iter_mut().flatten().for_each(await_running);
        Workers { start, running }
    }

    fn revive(&mut self) {
        for (number, worker) in self.running.iter_mut().enumerate() {
            worker.get_or_insert_with(|| (self.start)(number));
        }
    }
}

fn comparison(guarantee: &str) -> &'static str {
    if guarantee == "exactly_once_v2" { "exact" } else { "least" }
}

/// A part of the program that tells in lines "NAME NUMBER" how far it has come.
struct Progress {
    process: Process,
    number: usize,
}

impl Progress {
    #[track_caller]
    fn of(version: &str, arguments: &[&str]) -> Progress {
        let mut command = program(version);
        command.args(arguments);
        Progress { process: Process::start("streams", command, None), number: 0 }
    }

    #[track_caller]
    fn await_number(&mut self, wanted: usize) {
        while self.number < wanted {
            let Line::Text(line) = self.process.next_line(SILENCE) else {
                panic!("it ended before {wanted}\n{}", self.process.stderr_text())
            };
            let number = line.split_once(' ').and_then(|(_, number)| number.parse().ok());
            self.number = number.unwrap_or_else(|| panic!("{line}\n{}", self.process.stderr_text()));
        }
    }

    /// Waits for the end and asks for its last line.
    #[track_caller]
    fn finish(self, last: &str) {
        let finished = self.process.finish(SILENCE).expect_success("streams");
        assert_eq!(finished.stdout.lines().last(), Some(last), "{}", finished.stderr);
    }
}

/// C057: on three brokers while leaderships move, of its topics, of offsets and of transactions, and brokers are killed:
/// no client of it ends, and its result is right.
#[test]
fn streams_4_3_1_exactly_once_lives_through_moves_of_leaders() {
    walk_through_moves("4.3.1", "exactly_once_v2");
}

#[test]
fn streams_3_9_2_exactly_once_lives_through_moves_of_leaders() {
    walk_through_moves("3.9.2", "exactly_once_v2");
}

#[test]
fn streams_4_3_1_at_least_once_lives_through_moves_of_leaders() {
    walk_through_moves("4.3.1", "at_least_once");
}

#[test]
fn streams_3_9_2_at_least_once_lives_through_moves_of_leaders() {
    walk_through_moves("3.9.2", "at_least_once");
}

const MOVES: usize = 30;
/// Every so many moves are a broker's death.
const MOVES_A_KILL: usize = 10;
/// A record each 15 ms takes about as long as the moves.
const FED: usize = 2_000;
/// What the application has and makes, with the partitions that move.
const MOVED: [(&str, i32); 7] = [
    ("purchases", 4),
    ("streams-walk-by-customer-repartition", 4),
    ("streams-walk-totals-store-changelog", 4),
    ("__consumer_offsets", 3),
    ("totals", 4),
    ("customers", 4),
    ("counts", 4),
];

#[track_caller]
fn walk_through_moves(version: &str, guarantee: &str) {
    let name = format!("Streams {version} {guarantee}, moves");
    if !can_run(&name) {
        return;
    }
    let mut random = fastrand::Rng::with_seed(seed(&name, 57));
    let mut cluster =
        Cluster::of_three(&[("min.insync.replicas", "2"), ("transaction.state.log.min.isr", "2")]);
    let address = cluster.bootstrap();
    for topic in TOPICS {
        cluster.create_topic(topic, &[&[1, 2, 3], &[2, 3, 1], &[3, 1, 2], &[1, 2, 3]]);
    }
    let folder = tempfile::tempdir().expect("create a folder for the application");
    let start = |name: &str| {
        let folder = folder.path().join(name).display().to_string();
        start(version, &address, &folder, guarantee, 3)
    };
    // The customers first: a purchase that Streams reads before its customer, whose leader moves just then, is joined with
    // nobody. What lies there at the start it waits for.
    expect(version, &["feed", &address, "0", "1", "0"], "fed");
    let mut apps = [start("a"), start("b")];
    apps.iter_mut().for_each(await_running);
    let feeding = Progress::of(version, &["feed", &address, "1", &FED.to_string(), "15"]);
    let mut moves = vec![];
    MOVED.iter().for_each(|(topic, partitions)| moves.extend((0..*partitions).map(|index| (*topic, index))));
    if guarantee != "at_least_once" {
        moves.extend((0..3).map(|index| ("__transaction_state", index)));
    }
    random.shuffle(&mut moves);
    let mut moves = moves.iter().cycle();
    for number in 1..=scaled(MOVES) {
        let (topic, index) = *moves.next().expect("a cycle has no end");
        let leader = cluster.leader(topic, index, 0);
        if number % MOVES_A_KILL == 0 {
            cluster.lose(leader);
            cluster.broker(leader).start_again();
            for (topic, partitions) in MOVED {
                (0..partitions).for_each(|index| cluster.wait_for_isr(topic, index, &[1, 2, 3], 0));
            }
        } else {
            cluster.lead(topic, index, leader % 3 + 1);
        }
    }
    announce("streams: the moves are done");
    feeding.finish("fed");
    expect(version, &["check", &address, &FED.to_string(), comparison(guarantee)], "right");
    apps.into_iter().for_each(check_app);
}

/// It runs, and no thread of it had to be replaced.
#[track_caller]
fn check_app(mut app: Process) {
    let said = app.printed();
    let is_bad = |line: &&String| line.starts_with("died") || line.ends_with("ERROR");
    let bad: Vec<&String> = said.iter().filter(is_bad).collect();
    assert!(bad.is_empty() && app.is_running(), "{bad:?}\n{}", app.stderr_text());
}

fn program(version: &str) -> Command {
    java(version, "StreamsWalk", Some("StreamsWalk.java"))
}

#[track_caller]
fn start(version: &str, address: &str, folder: &str, guarantee: &str, replicas: usize) -> Process {
    let mut command = program(version);
    command.args(["app", address, folder, guarantee, &replicas.to_string()]);
    Process::start("streams", command, None)
}

#[track_caller]
fn await_running(app: &mut Process) {
    loop {
        match app.next_line(SILENCE) {
            Line::Text(line) if line == "state RUNNING" => return,
            Line::Text(_) => {}
            Line::End => panic!("the application ended\n{}", app.stderr_text()),
        }
    }
}

/// Runs a part of the program to its end and asks for its last line.
#[track_caller]
fn expect(version: &str, arguments: &[&str], last: &str) {
    Progress::of(version, arguments).finish(last);
}
