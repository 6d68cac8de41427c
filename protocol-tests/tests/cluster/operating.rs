//! Stopping brokers without harm: probes, `barnabas drain`, rolling restarts.

use std::process::Command;
use std::time::Duration;

use protocol_tests::client::programs;
use protocol_tests::{
    Cluster, Finished, Line, Port, Process, Server, barnabas_binary, free_port, has_java, metric, page,
    wait_for,
};

/// A program is quiet for no longer than this unless it hangs.
const SILENCE: Duration = Duration::from_secs(120);

/// Three brokers with pages, by id.
fn with_pages(settings: &[(&str, &str)]) -> (Cluster, Vec<Port>) {
    let mut cluster = Cluster::new(&[settings, &[Cluster::LONG_SESSIONS]].concat());
    let ports: Vec<Port> = (1..=3).map(|_| free_port()).collect();
    for (id, port) in (1..).zip(&ports) {
        cluster.add_with(id, Server::Barnabas, &[("barnabas.http.listener", &at(port))]);
    }
    cluster.wait_for_brokers(3);
    (cluster, ports)
}

fn at(port: &Port) -> String {
    format!("127.0.0.1:{}", port.number)
}

fn drain(cluster: &Cluster, arguments: &[&str]) -> Finished {
    let mut command = Command::new(barnabas_binary().expect("build it: cargo build -p barnabas"));
    command.args(["drain", "--bootstrap-server", &cluster.bootstrap()]).args(arguments);
    Process::start("barnabas drain", command, None).finish(Duration::from_secs(120))
}

#[test]
fn a_probe_tells_when_a_broker_may_be_stopped() {
    if !has_java() {
        return;
    }
    let (mut cluster, pages) = with_pages(&[("min.insync.replicas", "2")]);
    cluster.create_topic("t", &[&[1, 2, 3], &[2, 3, 1]]);
    let status = |id: usize| page(&at(&pages[id - 1]), "/safe-to-stop").map(|(status, _)| status);
    for id in 1..=3 {
        wait_for("a broker that may be stopped", || (status(id) == Some(200)).then_some(()));
    }
    cluster.broker(3).kill();
    for id in 1..=2 {
        wait_for("a broker that is needed", || (status(id) == Some(503)).then_some(()));
    }
    // The ISR of one partition shrinks before that of another.
    wait_for("a broker that is needed for both partitions", || {
        let (_, reason) = page(&at(&pages[0]), "/safe-to-stop")?;
        reason.starts_with("replication: needed for 2 partitions: t-0, t-1").then_some(())
    });
    wait_for("under-replicated partitions", || {
        (metric(&at(&pages[0]), "barnabas_under_replicated_partitions")? >= 1.0).then_some(())
    });
    cluster.broker(3).start_again();
    for id in 1..=3 {
        wait_for("a broker that may be stopped", || (status(id) == Some(200)).then_some(()));
        wait_for("a broker that is ready", || (page(&at(&pages[id - 1]), "/readyz")?.0 == 200).then_some(()));
    }
    let sum = |name: &str| -> f64 { pages.iter().filter_map(|page| metric(&at(page), name)).sum() };
    assert!(sum("barnabas_isr_shrinks_total") + sum("barnabas_isr_expands_total") >= 1.0);
    assert!(metric(&at(&pages[0]), "barnabas_controller_elections_total").is_some());
    // One broker hears of a change before another.
    for (name, wanted) in [
        ("barnabas_active_controller", 1.0),
        ("barnabas_under_replicated_partitions", 0.0),
        ("barnabas_store_session{state=\"connected\"}", 3.0),
    ] {
        wait_for(name, || (sum(name) == wanted).then_some(()));
    }
}

#[test]
fn a_drained_broker_leads_nothing_and_may_be_stopped() {
    if !has_java() {
        return;
    }
    let (mut cluster, _pages) = with_pages(&[("min.insync.replicas", "2")]);
    cluster.create_topic("t", &[&[1, 2, 3], &[1, 3, 2], &[2, 1, 3]]);
    let saved = tempfile::NamedTempFile::new().expect("create a file");
    let path = saved.path().display().to_string();
    let drained = drain(&cluster, &["--broker", "1", "--save", &path]).expect_success("barnabas drain");
    assert!(drained.stdout.ends_with("broker 1 is safe to stop\n"), "{}", drained.stdout);
    // The drained broker itself may hear of it last.
    for index in 0..3 {
        cluster.leader("t", index, 1);
    }
    let before = std::fs::read_to_string(saved.path()).expect("read the saved assignment");
    assert!(before.contains(r#"{"topic":"t","partition":0,"replicas":[1,2,3]}"#), "{before}");
    cluster.broker(3).kill();
    // Who leads a partition hears of its ISR last.
    wait_for("a broker that is needed for all partitions", || {
        let refused = drain(&cluster, &["--broker", "1", "--check"]);
        let is_needed = refused.stderr.contains("it is needed for 3 partitions");
        (refused.status.code() == Some(1) && is_needed).then_some(())
    });
    cluster.broker(3).start_again();
    for index in 0..3 {
        cluster.wait_for_isr("t", index, &[1, 2, 3], 0);
    }
    let stuck = drain(&cluster, &["--broker", "1", "--replicas"]);
    assert!(stuck.stderr.contains("every other broker has a replica already"), "{}", stuck.stderr);
}

/// C096: A client library sees brokers go and come, and none of its callers sees an error.
#[test]
fn a_rolling_restart_shows_no_client_an_error() {
    if !has_java() {
        return;
    }
    let command = match programs::java("4.3.1", "SteadyClient") {
        Ok(command) => command,
        Err(missing) => return protocol_tests::client::left_out("java", &missing),
    };
    let (mut cluster, pages) =
        with_pages(&[("min.insync.replicas", "2"), ("transaction.state.log.min.isr", "2")]);
    for topic in ["plain", "transactional"] {
        cluster.create_topic(topic, &[&[1, 2, 3], &[2, 3, 1], &[3, 1, 2]]);
    }
    let mut command = command;
    command.args([&*cluster.bootstrap(), "plain", "transactional", "rolling"]);
    let mut client = Process::start("java", command, None);
    hear(&mut client, "acked", 100);
    for id in 1..=3_usize {
        wait_for("a broker that may be stopped", || {
            (page(&at(&pages[id - 1]), "/safe-to-stop")?.0 == 200).then_some(())
        });
        cluster.broker(i32::try_from(id).expect("a small id")).restart();
        wait_for("a broker that has caught up", || {
            (page(&at(&pages[id - 1]), "/readyz")?.0 == 200).then_some(())
        });
        hear(&mut client, "acked", 50);
        hear(&mut client, "committed", 5);
    }
    client.write_line("stop");
    hear(&mut client, "stopped", 1);
    client.write_line("enough");
    // An error that a library tells its caller ends the program with another status; an aborted transaction is one too.
    let finished = client.finish(SILENCE).expect_success("java");
    assert!(!finished.stdout.contains("aborted"), "{}", finished.stdout);
}

#[track_caller]
fn hear(client: &mut Process, event: &str, count: usize) {
    let mut heard = 0;
    while heard < count {
        let Line::Text(line) = client.next_line(SILENCE) else {
            panic!("the client ended\n{}", client.stderr_text())
        };
        assert!(!line.starts_with("aborted"), "{line}\n{}", client.stderr_text());
        heard += usize::from(line.starts_with(event));
    }
}
