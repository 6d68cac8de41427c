use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use protocol_tests::{Broker, Port, Process, free_port, wait_within};

use super::{SILENCE, can_run, http, start_java};

#[test]
fn connect_moves_a_file_through_a_topic_past_restarts() {
    walk("disabled");
}

#[test]
fn connect_with_exactly_once_sources_moves_a_file_past_restarts() {
    walk("enabled");
}

const VERSION: &str = "4.3.1";

/// Two distributed workers, a file source, a file sink, one transform each.
#[track_caller]
fn walk(exactly_once: &str) {
    if !can_run("Connect") {
        return;
    }
    let mut settings = vec![("group.initial.rebalance.delay.ms", "0")];
    settings.extend(super::ONE_TRANSACTION_LOG);
    let mut broker = Broker::start(&settings);
    // Of workers that are slow to stop.
    broker.allow_log("aborting a transaction that outlived its timeout");
    let lines = Lines::new(broker.dir());
    let mut workers = [Worker::start(&broker, "a", exactly_once), Worker::start(&broker, "b", exactly_once)];
    workers[0].create("source", &lines.source_config());
    workers[1].create("sink", &lines.sink_config());
    lines.append_and_await(0..100);

    // The group rebalances.
    workers[0].stop();
    lines.append_and_await(100..200);
    broker.restart();
    lines.append_and_await(200..300);
    workers[0] = Worker::start(&broker, "a", exactly_once);
    lines.append_and_await(300..400);
    workers[1].stop();
    lines.append_and_await(400..500);
}

struct Lines {
    source: PathBuf,
    sink: PathBuf,
}

impl Lines {
    fn new(dir: &Path) -> Lines {
        let lines = Lines { source: dir.join("source.txt"), sink: dir.join("sink.txt") };
        File::create(&lines.source).expect("create the source file");
        lines
    }

    fn source_config(&self) -> String {
        format!(
            r#"{{"connector.class":"FileStreamSource","tasks.max":"1","file":"{}","topic":"lines","transforms":"hoist",
                "transforms.hoist.type":"org.apache.kafka.connect.transforms.HoistField$Value","transforms.hoist.field":"line"}}"#,
            self.source.display()
        )
    }

    fn sink_config(&self) -> String {
        format!(
            r#"{{"connector.class":"FileStreamSink","tasks.max":"1","file":"{}","topics":"lines","transforms":"extract",
                "transforms.extract.type":"org.apache.kafka.connect.transforms.ExtractField$Value","transforms.extract.field":"line",
                "consumer.override.isolation.level":"read_committed"}}"#,
            self.sink.display()
        )
    }

    /// Adds lines to the source and waits until the sink has every line so far, each once and in order.
    #[track_caller]
    fn append_and_await(&self, numbers: std::ops::Range<usize>) {
        let mut file = OpenOptions::new().append(true).open(&self.source).expect("open the source file");
        for number in numbers.clone() {
            writeln!(file, "line {number}").expect("append to the source file");
        }
        let wanted: String = (0..numbers.end).map(|number| format!("line {number}\n")).collect();
        let read = || std::fs::read_to_string(&self.sink).unwrap_or_default();
        wait_within(SILENCE, "the lines in the sink", || {
            (read().matches('\n').count() >= numbers.end).then_some(())
        });
        assert_eq!(read(), wanted);
    }
}

struct Worker {
    process: Option<Process>,
    port: Port,
}

impl Worker {
    #[track_caller]
    fn start(broker: &Broker, name: &str, exactly_once: &str) -> Worker {
        let port = free_port();
        let config = [
            ("bootstrap.servers", broker.address()),
            ("group.id", "workers".into()),
            ("key.converter", "org.apache.kafka.connect.json.JsonConverter".into()),
            ("value.converter", "org.apache.kafka.connect.json.JsonConverter".into()),
            ("config.storage.topic", "connect-configs".into()),
            ("offset.storage.topic", "connect-offsets".into()),
            ("offset.storage.partitions", "3".into()),
            ("status.storage.topic", "connect-status".into()),
            ("config.storage.replication.factor", "1".into()),
            ("offset.storage.replication.factor", "1".into()),
            ("status.storage.replication.factor", "1".into()),
            ("offset.flush.interval.ms", "500".into()),
            ("scheduled.rebalance.max.delay.ms", "1000".into()),
            // A task that is not waited for leaves its offsets uncommitted, and what it did is done twice.
            ("task.shutdown.graceful.timeout.ms", "60000".into()),
            ("connector.client.config.override.policy", "All".into()),
            ("exactly.once.source.support", exactly_once.into()),
            ("listeners", format!("http://127.0.0.1:{}", port.number)),
            ("rest.advertised.host.name", "127.0.0.1".into()),
        ];
        let path = broker.dir().join(format!("worker-{name}.properties"));
        let text: String = config.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        std::fs::write(&path, text).expect("write the worker's settings");
        let process = start_java(
            VERSION,
            "org.apache.kafka.connect.cli.ConnectDistributed",
            &[&path.display().to_string()],
        );
        let worker = Worker { process: Some(process), port };
        wait_within(SILENCE, "the worker's REST interface", || {
            worker.ask("GET", "/connectors", "").map(|_| ())
        });
        worker
    }

    /// PUT of a connector's configuration, asked again while the workers rebalance.
    #[track_caller]
    fn create(&self, name: &str, config: &str) {
        wait_within(SILENCE, "the connector to be taken", || {
            let (status, body) = self.ask("PUT", &format!("/connectors/{name}/config"), config)?;
            assert!(matches!(status, 200 | 201 | 404 | 409 | 500 | 503), "{status}: {body}");
            matches!(status, 200 | 201).then_some(())
        });
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        http::request(self.port.number, method, path, body)
    }

    #[track_caller]
    fn stop(&mut self) {
        let mut process = self.process.take().expect("the worker runs");
        process.terminate();
        let status = process.wait(SILENCE);
        assert!(status.is_some(), "the worker still runs\n{}", process.stderr_text());
    }
}
