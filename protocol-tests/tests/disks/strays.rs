//! Folders of partitions that no controller names, and those that a Kafka has set aside as stray: the same with
//! Kafka 3.9.2 on ZooKeeper, which sets nothing aside itself.

use std::fs;

use super::*;

const SETTINGS: [(&str, &str); 1] = [("log.retention.ms", "-1")];

fn segments(folder: &Path) -> Vec<u8> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder's entry").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    paths.sort();
    paths.iter().flat_map(|path| fs::read(path).expect("read a segment")).collect()
}

/// Rows 19 and 20, over two starts and the deletion of a topic whose log was set aside.
#[track_caller]
fn check_that_they_stay(broker: &mut Broker) {
    let mut connection = Connection::open(&broker.address());
    for name in ["parked", "renamed"] {
        connection.create_topic(name, 1, &[]);
        connection.append(name, 0, &Batch::of(name, 3, T0));
    }
    broker.stop();
    let data = broker.data_dir();
    let stray = data.join("parked-0.0123456789abcdef0123456789abcdef-stray");
    let unnamed = data.join("unnamed-0");
    fs::rename(data.join("parked-0"), &stray).expect("set a log aside");
    fs::rename(data.join("renamed-0"), &unnamed).expect("rename a log");
    let before = [segments(&stray), segments(&unnamed)];
    assert!(before.iter().all(|records| !records.is_empty()));
    broker.allow_log("a stray log stays set aside");
    for start in 0..2 {
        broker.start_again();
        connection = Connection::open(&broker.address());
        assert_eq!(connection.log_end("parked", 0), start, "a log of its own, begun at 0");
        // A broker that starts leads before it is told of all topics.
        wait_for("the topic", || {
            let answer = connection.produce("parked", vec![(0, Batch::of("new", 1, T0).encode())]).remove(0);
            (answer.error_code == NONE).then_some(())
        });
        assert_eq!(find(&mut connection, "unnamed", 0, false).expect("the log without a topic").0, data);
        if start == 0 {
            broker.stop();
        }
    }
    let topic_names = vec!["parked".into()];
    let request = DeleteTopicsRequest { topic_names, timeout_ms: 30_000, ..Default::default() };
    assert_eq!(connection.call(4, &request).responses[0].error_code, NONE);
    wait_for("the deletion", || (!data.join("parked-0").exists()).then_some(()));
    broker.stop();
    assert_eq!([segments(&stray), segments(&unnamed)], before);
}

#[test]
fn folders_that_no_controller_names_and_stray_ones_stay_where_they_are() {
    let mut broker = Broker::start(&SETTINGS);
    check_that_they_stay(&mut broker);
    let line = format!("{}/parked-0.", broker.data_dir().display());
    assert!(broker.log().lines().any(|said| said.contains(" WARN ") && said.contains(&line)));
}

#[test]
fn kafka_keeps_folders_that_no_controller_names_and_stray_ones() {
    if kafka::is_left_out("stray folders of Kafka") {
        return;
    }
    let mut broker = kafka::prepare_kafka(&SETTINGS);
    broker.start_again();
    check_that_they_stay(&mut broker);
    let log = kafka::kafkas_log(&broker);
    assert!(log.contains("Loaded stray log") && !log.contains("Found stray"), "{log}");
}
