//! kcat, the command line of librdkafka: the walk of `clients/README.md`, with this file as its program.

use std::process::Command;
use std::time::Duration;

use protocol_tests::client::left_out;
use protocol_tests::{Broker, Connection, Line, Process, command_exists, wait_for, wait_for_group};
use wire::delete_topics_request::DeleteTopicsRequest;
use wire::metadata_request::MetadataRequest;

const LIMIT: Duration = Duration::from_secs(120);
const COUNT: usize = 40;
/// Everything that is checked of a record.
const FORMAT: &str = "%p|%o|%k|%h|%s\n";

#[test]
fn kcat() {
    if !command_exists("kcat") {
        return left_out("kcat", "this machine has no kcat");
    }
    // kcat has no admin commands: its topics come by auto-creation.
    let settings = [("group.initial.rebalance.delay.ms", "0"), ("num.partitions", "4")];
    let mut broker = Broker::start(&settings);
    let walk = Walk { address: broker.address() };
    walk.all_codecs_are_read_by_assignment();
    walk.a_group_shares_and_takes_over();
    // A kcat that reads ends when no broker is left: the group goes on with another member.
    broker.restart();
    walk.the_next_member_goes_on();
    walk.delete_topics();
}

struct Walk {
    address: String,
}

/// A group member that runs until it is told to stop.
struct Member {
    process: Process,
    /// How many records of other phases it was given.
    others: usize,
}

impl Walk {
    fn kcat(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kcat");
        command
            .args(["-b", &self.address, "-m", "60", "-X", "topic.metadata.refresh.interval.ms=1000"])
            .args(arguments);
        command
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> String {
        Process::start("kcat", self.kcat(arguments), None).finish(LIMIT).expect_success("kcat").stdout
    }

    #[track_caller]
    fn produce(&self, topic: &str, phase: &str, codec: &str) {
        for partition in 0..4_usize {
            let header = format!("phase={phase}");
            let number = partition.to_string();
            let arguments = ["-P", "-t", topic, "-p", &number, "-z", codec, "-K", ":", "-H", &header];
            let mut kcat = Process::start("kcat", self.kcat(&arguments), None);
            for (key, value) in records(phase, partition) {
                kcat.write_line(&format!("{key}:{value}"));
            }
            kcat.finish(LIMIT).expect_success("kcat produces");
        }
    }

    #[track_caller]
    fn all_codecs_are_read_by_assignment(&self) {
        let codecs = ["none", "gzip", "snappy", "lz4", "zstd"];
        for codec in codecs {
            self.produce("walk-kcat", codec, codec);
        }
        for partition in 0..4_usize {
            let number = partition.to_string();
            let text = self.run(&[
                "-C",
                "-q",
                "-t",
                "walk-kcat",
                "-p",
                &number,
                "-o",
                "beginning",
                "-e",
                "-f",
                FORMAT,
            ]);
            let mut expected = Vec::new();
            for codec in codecs {
                for (key, value) in records(codec, partition) {
                    expected.push(format!("{partition}|{}|{key}|phase={codec}|{value}", expected.len()));
                }
            }
            assert_eq!(text.lines().collect::<Vec<_>>(), expected, "partition {partition}");
        }
        // From the middle of a batch (C010).
        let text =
            self.run(&["-C", "-q", "-t", "walk-kcat", "-p", "0", "-o", "7", "-c", "1", "-f", "%o|%k\n"]);
        assert_eq!(text, "7|none-28\n");
    }

    #[track_caller]
    fn start_member(&self, name: &str) -> Member {
        let id = format!("client.id={name}");
        let group = [
            "-q",
            "-u",
            "-f",
            FORMAT,
            "-X",
            &id,
            "-X",
            "auto.offset.reset=earliest",
            "-G",
            "group-kcat",
            "shared-kcat",
        ];
        // Fast enough for a walk, and committed at the latest when it leaves.
        let often = ["-X", "heartbeat.interval.ms=200", "-X", "auto.commit.interval.ms=100"];
        Member {
            process: Process::start(name, self.kcat(&[&often[..], &group[..]].concat()), None),
            others: 0,
        }
    }

    #[track_caller]
    fn a_group_shares_and_takes_over(&self) {
        self.produce("shared-kcat", "before", "none");
        let mut connection = Connection::open(&self.address);
        let mut a = self.start_member("a");
        let mut b = self.start_member("b");
        wait_for_group(&mut connection, "group-kcat", &[("a", 2), ("b", 2)]);
        self.produce("shared-kcat", "together", "none");
        // Each member owns two partitions, so it gets half of the phase; what a reads before b joins may come twice.
        let (mut from_a, mut from_b) =
            (a.read_phase("together", COUNT / 2), b.read_phase("together", COUNT / 2));
        from_a.append(&mut from_b);
        assert_eq!(sorted(from_a), expected("together"));
        a.signal_and_finish();
        wait_for_group(&mut connection, "group-kcat", &[("b", 4)]);
        self.produce("shared-kcat", "alone", "none");
        assert_eq!(sorted(b.read_phase("alone", COUNT)), expected("alone"));
        b.signal_and_finish();
    }

    #[track_caller]
    fn the_next_member_goes_on(&self) {
        let mut c = self.start_member("c");
        self.produce("shared-kcat", "after", "none");
        assert_eq!(sorted(c.read_phase("after", COUNT)), expected("after"));
        assert_eq!(c.others, 0, "what was committed before the restart is not read again");
        c.signal_and_finish();
    }

    #[track_caller]
    fn delete_topics(&self) {
        let mut connection = Connection::open(&self.address);
        let topic_names = vec!["walk-kcat".into(), "shared-kcat".into()];
        let response = connection
            .call(4, &DeleteTopicsRequest { topic_names, timeout_ms: 30_000, ..Default::default() });
        assert!(response.responses.iter().all(|topic| topic.error_code == 0), "{response:?}");
        wait_for("the topics to go", || {
            let all = connection.call(4, &MetadataRequest { topics: None, ..Default::default() });
            (!all.topics.iter().any(|topic| topic.name.as_ref().is_some_and(|name| name.ends_with("-kcat"))))
                .then_some(())
        });
        let text = self.run(&["-L"]);
        assert!(!text.contains("topic \"walk-kcat\"") && text.contains("broker 1 at"), "{text}");
    }
}

impl Member {
    /// Reads until `count` records of `phase` have come; `KEY=VALUE` each.
    #[track_caller]
    fn read_phase(&mut self, phase: &str, count: usize) -> Vec<String> {
        let mut found = Vec::new();
        while found.len() < count {
            let Line::Text(line) = self.process.next_line(LIMIT) else {
                panic!("kcat ended\n{}", self.process.stderr_text());
            };
            let fields: Vec<&str> = line.split('|').collect();
            let [_, _, key, headers, value] = fields[..] else { panic!("kcat printed {line:?}") };
            if headers == format!("phase={phase}") {
                found.push(format!("{key}={value}"));
            } else {
                self.others += 1;
            }
        }
        found
    }

    /// SIGTERM: it commits and leaves the group.
    #[track_caller]
    fn signal_and_finish(self) {
        self.process.terminate();
        self.process.finish(LIMIT).expect_success("kcat leaves the group");
    }
}

/// The records of a phase that go to `partition`.
fn records(phase: &str, partition: usize) -> impl Iterator<Item = (String, String)> {
    (0..COUNT)
        .filter(move |i| i % 4 == partition)
        .map(move |i| (format!("{phase}-{i}"), format!("{phase} {i}")))
}

fn expected(phase: &str) -> Vec<String> {
    sorted((0..4).flat_map(|p| records(phase, p)).map(|(key, value)| format!("{key}={value}")).collect())
}

fn sorted(mut list: Vec<String>) -> Vec<String> {
    list.sort();
    list
}
