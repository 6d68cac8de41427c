//! Many clients, many connections, many partitions at once.

use std::time::{Duration, Instant};

use protocol_tests::load::{self, Clients, Coordinated, Generation, LoadError, ManyPartitions, Transactions};
use protocol_tests::{Broker, Connection, announce, raise_open_files_limit, scaled, wait_for};
use wire::describe_producers_request::{DescribeProducersRequest, TopicRequest};

/// Descriptors that broker and test use beside the connections.
const OTHER_FILES: u64 = 500;

#[test]
fn a_thousand_clients_produce_and_consume_at_once() {
    let count = enough_files_for(1_000);
    let broker = Broker::start(&[]);
    let clients = Clients { count, in_groups: 200, rounds: 20, prefix: "thousand".to_owned() };
    let started = Instant::now();
    run(load::produce_and_consume(&broker.address(), &clients));
    announce(&format!("load: {clients:?} took {:?}", started.elapsed()));
}

#[test]
fn ten_thousand_idle_connections_are_kept_and_a_normal_client_works() {
    let count = enough_files_for(10_000);
    let broker = Broker::start(&[]);
    let before = memory_of(&broker);
    let each = run(async {
        let mut idle = load::open_idle(&broker.address(), count).await?;
        let each = memory_of(&broker).saturating_sub(before) / idle.len() as u64;
        load::prove_normal_client(&broker.address(), "among-idle-ones").await?;
        idle.ask_each().await?;
        Ok(each)
    });
    announce(&format!("load: {count} idle connections take {each} bytes each"));
    // The budget is 20 KiB in a release build; futures of a debug build are larger.
    assert!(!broker.server().is_barnabas() || each < 40 * 1024, "{each} bytes for an idle connection");
}

#[test]
fn ten_thousand_partitions_are_created_written_and_found_again() {
    let count = i32::try_from(enough_files_for(10_000)).expect("10,000 at most");
    let many = ManyPartitions { prefix: "many".to_owned(), count };
    let mut broker = Broker::start(&[]);
    let address = broker.address();
    let step = |what: &str, started: Instant| announce(&format!("load: {what} in {:?}", started.elapsed()));

    let started = Instant::now();
    run(async {
        load::create_many(&address, &many).await?;
        load::await_end_offsets(&address, &many, 0).await
    });
    step(&format!("{} partitions created", many.count), started);
    let started = Instant::now();
    run(async {
        load::write_to_each(&address, &many).await?;
        load::await_end_offsets(&address, &many, 1).await
    });
    step("each written", started);

    let started = Instant::now();
    broker.kill();
    broker.start_again();
    run(load::await_end_offsets(&address, &many, 1));
    step("all found again after kill -9", started);
    let started = Instant::now();
    broker.restart();
    run(load::await_end_offsets(&address, &many, 1));
    step("all found again after a clean stop", started);
}

/// Settings of a broker that has the topics of its coordinators to itself.
const ALONE: [(&str, &str); 3] = [
    ("offsets.topic.replication.factor", "1"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
];

#[test]
fn transactions_of_both_generations_are_committed_and_read() {
    let broker = Broker::start(&ALONE);
    let address = broker.address();
    run(load::set_transaction_version(&address, 2));
    for generation in [Generation::Classic, Generation::EpochBump] {
        for partitions in [1, 10] {
            let topic = format!("committed-{generation:?}-{partitions}");
            let load = Transactions { topic, partitions, generation, record_bytes: 100 };
            let again = Transactions { topic: format!("{}-single", load.topic), ..load.clone() };
            let commits = run(async {
                load::create_topic(&address, &load.topic, partitions).await?;
                load::create_topic(&address, &again.topic, partitions).await?;
                let some = Duration::from_millis(300);
                let commits = load::commit_at_full_rate(&address, &load, 4, some, some).await?;
                load::read_one_at_a_time(&address, &again, 5, 5).await?;
                Ok(commits)
            });
            announce(&format!("load: {load:?}: {} commits/s", commits.per_s));
        }
    }
}

#[test]
fn transactional_ids_and_groups_are_found_again_after_a_restart() {
    let mut broker = Broker::start(&ALONE);
    let coordinated = Coordinated { prefix: "coordinated".to_owned(), count: scaled(1_000) };
    run(load::fill_coordinators(&broker.address(), &coordinated));
    broker.kill();
    broker.start_again();
    let started = Instant::now();
    run(load::await_coordinators(&broker.address(), &coordinated));
    announce(&format!("load: {coordinated:?} found again in {:?}", started.elapsed()));
}

/// Clients that take a new producer id for each run cost nothing lasting.
#[test]
fn producers_beyond_the_limit_are_forgotten() {
    let mut broker = Broker::start(&[("barnabas.producer.ids.max", "1000")]);
    broker.allow_log("more producers than barnabas.producer.ids.max: the oldest are forgotten");
    run(load::write_as_many_producers(&broker.address(), "many-producers", 5_000));
    let mut connection = Connection::open(&broker.address());
    let topics = vec![TopicRequest { name: "many-producers".into(), partition_indexes: (0..40).collect() }];
    let request = DescribeProducersRequest { topics };
    wait_for("few producers", || {
        let described = connection.call(0, &request);
        let partitions = described.topics.iter().flat_map(|topic| &topic.partitions);
        let count: usize = partitions.map(|partition| partition.active_producers.len()).sum();
        (0 < count && count <= 1_000).then_some(())
    });
}

#[track_caller]
fn run<T>(load: impl Future<Output = Result<T, LoadError>>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.expect("start a runtime").block_on(load);
    done.unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn memory_of(broker: &Broker) -> u64 {
    load::resident_bytes(broker.pid()).expect("the broker runs")
}

/// How many of `wanted` connections or logs this machine's limit of open files allows; says so when it is fewer.
fn enough_files_for(wanted: usize) -> usize {
    let allowed = usize::try_from(raise_open_files_limit().saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX);
    if allowed < wanted {
        announce(&format!("load: {allowed} in place of {wanted}: the limit of open files is lower"));
    }
    wanted.min(allowed)
}
