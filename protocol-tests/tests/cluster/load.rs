//! What `scripts/bench-cluster` measures, with few partitions.

use protocol_tests::load::LoadError;
use protocol_tests::load::cluster::{self, Ensemble, Failed, Failure, Members, Move, ReplicatedTopics};
use protocol_tests::{Cluster, announce, has_java};

#[track_caller]
fn run<T>(load: impl Future<Output = Result<T, LoadError>>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.expect("start a runtime").block_on(load);
    done.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_controller_that_dies_is_replaced_and_its_partitions_are_written_by_others() {
    if !has_java() {
        return;
    }
    let mut cluster = Cluster::of_three(&[Cluster::LONG_SESSIONS]);
    let topics = ReplicatedTopics { prefix: "many".to_owned(), topics: 3, partitions: 10, replicas: 3 };
    let (addresses, zookeeper) = (cluster.addresses(), cluster.zookeeper().address());
    run(async {
        let mut members = Members::await_all(&addresses).await?;
        cluster::create_all(&mut members, &topics).await?;
        let mut ensemble = Ensemble::open(&zookeeper).await?;
        cluster::change_controller(&mut members, &mut ensemble, "taken-over").await
    });
    let broker = cluster.controller(0);
    let pid = cluster.broker(broker).pid();
    let failed: Failed = run(async {
        let mut members = Members::await_all(&addresses).await?;
        let mut ensemble = Ensemble::open(&zookeeper).await?;
        cluster::fail(&mut members, &mut ensemble, &topics, Failure { broker, pid }).await
    });
    announce(&format!("load: {failed:?}"));
    assert!(failed.was_controller && failed.led > 0);
    assert!(failed.written.is_some(), "{failed:?}");
    cluster.broker(broker).kill();
    cluster.broker(broker).start_again();
    run(async {
        let mut members = Members::await_all(&addresses).await?;
        cluster::await_in_sync(&mut members, &topics).await
    });
}

#[test]
fn a_replica_that_moves_is_copied_to_its_new_broker() {
    if !has_java() {
        return;
    }
    let mut cluster = Cluster::of_three(&[Cluster::LONG_SESSIONS]);
    let addresses = cluster.addresses();
    let pids: Vec<u32> = (1..=3).map(|id| cluster.broker(id).pid()).collect();
    let moved = Move { topic: "moved".to_owned(), partitions: 3, bytes: 3_000_000 };
    let figures = run(async {
        let mut members = Members::await_all(&addresses).await?;
        cluster::fill_and_move(&mut members, &pids, &moved).await
    });
    announce(&format!("load: {figures:?}"));
    cluster.check_logs("moved", 0, &[1, 3]);
}
