//! C052: producers that are silent for longer than a broker keeps their state. An error for them would be fatal to
//! librdkafka.

use std::time::Duration;

use protocol_tests::client::{left_out, programs};
use protocol_tests::requests::values;
use protocol_tests::{Broker, Connection, Line, Process, wait_for};
use wire::describe_producers_request::{DescribeProducersRequest, TopicRequest};

use crate::start;

const SILENCE: Duration = Duration::from_secs(90);
const SETTINGS: [(&str, &str); 3] = [
    ("producer.id.expiration.ms", "500"),
    ("producer.id.expiration.check.interval.ms", "100"),
    ("log.initial.task.delay.ms", "0"),
];

/// What happens to the partition while the producer is silent.
#[derive(Clone, Copy, Debug)]
enum Meanwhile {
    Nothing,
    /// With every record that the producer has written.
    RecordsDeleted,
    CleanRestart,
    Kill,
}

#[test]
fn the_idempotent_producer_of_librdkafka_goes_on_after_its_state_expired() {
    let mut command = match programs::python("idle_confluent.py") {
        Ok(command) => command,
        Err(missing) => return left_out("librdkafka", &missing),
    };
    let mut broker = start(&SETTINGS);
    Connection::open(&broker.address()).create_topic("t", 1, &[]);
    command.args([&*broker.address(), "t"]);
    let mut producer = Process::start("librdkafka", command, None);
    let mut wanted: Vec<String> = Vec::new();
    let silences = [
        Meanwhile::Nothing,
        Meanwhile::RecordsDeleted,
        Meanwhile::CleanRestart,
        Meanwhile::Kill,
        Meanwhile::Nothing,
    ];
    for (round, meanwhile) in silences.into_iter().enumerate() {
        write_seven(&mut producer);
        wanted.extend((round * 7..round * 7 + 7).map(|number| format!("i-{number}")));
        wait_for_expiry(&broker);
        match meanwhile {
            Meanwhile::Nothing => {}
            Meanwhile::RecordsDeleted => {
                let deleted = Connection::open(&broker.address()).delete_records("t", 0, -1);
                assert_eq!(deleted.error_code, 0);
                wanted.clear();
            }
            Meanwhile::CleanRestart => broker.restart(),
            Meanwhile::Kill => {
                broker.kill();
                broker.start_again();
            }
        }
        wait_for_expiry(&broker);
    }
    write_seven(&mut producer);
    wanted.extend((35..42).map(|number| format!("i-{number}")));
    let mut connection = Connection::open(&broker.address());
    let first = connection.log_start("t", 0);
    assert_eq!(values(&connection.fetch_all("t", 0, first)), wanted);
    producer.close_stdin();
    producer.finish(SILENCE).expect_success("librdkafka");
}

#[track_caller]
fn write_seven(producer: &mut Process) {
    producer.write_line("go");
    let said = producer.next_line(SILENCE);
    assert_eq!(said, Line::Text("written".to_owned()), "{}", producer.stderr_text());
}

/// Waits until the partition knows of no producer.
#[track_caller]
fn wait_for_expiry(broker: &Broker) {
    let mut connection = Connection::open(&broker.address());
    let topics = vec![TopicRequest { name: "t".into(), partition_indexes: vec![0] }];
    let request = DescribeProducersRequest { topics };
    wait_for("the expiry", || {
        let response = connection.call(0, &request);
        let partition = &response.topics[0].partitions[0];
        (partition.error_code == 0 && partition.active_producers.is_empty()).then_some(())
    });
}
