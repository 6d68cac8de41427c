//! Controllers of several brokers on one store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::sleep;

use super::registration::{self};
use super::testing::*;
use super::*;
use crate::coordination::znodes::{PartitionState, ReplicaAssignment};
use crate::coordination::*;
use crate::model::*;

fn tp(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition::new(TopicName::new(topic).unwrap(), PartitionIndex(partition))
}

fn ids(numbers: &[i32]) -> Vec<BrokerId> {
    numbers.iter().copied().map(BrokerId).collect()
}

async fn create(store: &dyn Store, path: &str, data: &str) {
    let data = (!data.is_empty()).then(|| Bytes::from(data.to_owned()));
    let node = Create { path: path.into(), data, mode: CreateMode::Persistent };
    store.create(node).await.unwrap();
}

async fn create_topic(store: &dyn Store, name: &str, partitions: &str) {
    create(store, &format!("/config/topics/{name}"), r#"{"version":1,"config":{}}"#).await;
    let node = format!(
        r#"{{"partitions":{partitions},"topic_id":"PxMbBfhbQWW-ShLkvmieSQ","adding_replicas":{{}},"removing_replicas":{{}},"version":3}}"#
    );
    create(store, &format!("/brokers/topics/{name}"), &node).await;
}

async fn state(store: &dyn Store, of: &TopicPartition) -> Option<(PartitionState, i32)> {
    let node = store.read(&znodes::partition_state(&of.topic, of.partition)).await.ok()?;
    Some((PartitionState::decode(&node).unwrap(), node.stat.version))
}

async fn until_state(store: &dyn Store, of: &TopicPartition, is_reached: impl Fn(&PartitionState) -> bool) {
    while !state(store, of).await.is_some_and(|(state, _)| is_reached(&state)) {
        sleep(Duration::from_millis(10)).await;
    }
}

async fn assignment(store: &dyn Store, of: &TopicPartition) -> ReplicaAssignment {
    let node = store.read(&znodes::topic(&of.topic)).await.unwrap();
    znodes::TopicAssignment::decode(&node).unwrap().partitions.remove(&of.partition).unwrap_or_default()
}

async fn until_gone(store: &dyn Store, path: &str) {
    while let (Some(_), watcher) = store.exists_and_watch(path).await.unwrap() {
        watcher.await.unwrap();
    }
}

/// The leader takes every live replica into the ISR, as it would once they have caught up.
async fn catch_up(cluster: &FakeCluster, of: &TopicPartition) {
    let store = cluster.store();
    let Some((state, version)) = state(&store, of).await else { return };
    let Some(leader) = cluster.running.get(&state.leader.0) else { return };
    let Ok(Some(registered)) = store.exists(&znodes::broker(state.leader)).await else { return };
    let replicas = assignment(&store, of).await.replicas;
    let isr: Vec<BrokerId> = replicas.into_iter().filter(|id| cluster.running.contains_key(&id.0)).collect();
    if !leader.broker.hosted.lock().contains(of) || isr.len() <= state.isr.len() {
        return;
    }
    let wanted = WantedIsr {
        partition: of.clone(),
        leader_epoch: state.leader_epoch,
        partition_epoch: version,
        isr: isr.into_iter().map(Into::into).collect(),
        is_recovering: false,
    };
    let request = AlterPartition {
        broker: state.leader,
        broker_epoch: BrokerEpoch(registered.czxid),
        partitions: vec![wanted],
    };
    let _ = cluster.controller().await.alter_partition(request).await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_brokers_leaderships_move_and_come_back() {
    let mut cluster = FakeCluster::start([1, 2, 3]).await;
    let store = cluster.store();
    let of = tp("orders", 0);
    create_topic(&store, "orders", r#"{"0":[2,3],"1":[3,1]}"#).await;
    until_state(&store, &of, |state| state.isr == ids(&[2, 3])).await;
    cluster.kill(2);
    until_state(&store, &of, |state| state.leader == BrokerId(3) && state.isr == ids(&[3])).await;
    let (untouched, version) = state(&store, &tp("orders", 1)).await.unwrap();
    assert_eq!((untouched.leader, version), (BrokerId(3), 0));
    cluster.broker(1).metadata.wait_until(|image| image.brokers().len() == 2).await;

    cluster.add(2).await;
    cluster.broker(2).metadata.wait_until(|image| image.brokers().len() == 3).await;
    while !cluster.broker(2).hosted.lock().contains(&of) {
        sleep(Duration::from_millis(10)).await;
    }
    catch_up(&cluster, &of).await;
    let elected = cluster.controller().await.elect_leaders(ElectionKind::Preferred, None).await.unwrap();
    assert_eq!(elected, [(of.clone(), Ok(BrokerId(2)))]);
    let (state, _) = state(&store, &of).await.unwrap();
    assert_eq!((state.leader, state.leader_epoch), (BrokerId(2), LeaderEpoch(2)));
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_lost_its_session_is_a_broker_again_and_no_controller() {
    let mut cluster = FakeCluster::start([1, 2]).await;
    let store = cluster.store();
    create_topic(&store, "orders", r#"{"0":[1,2]}"#).await;
    let of = tp("orders", 0);
    until_state(&store, &of, |state| state.leader == BrokerId(1)).await;
    // Its process goes on: the session's end reaches it as any client hears of it.
    let mut first = cluster.running.remove(&1).unwrap();
    cluster.ensemble.expire_session(first.store.session_id());
    assert_eq!((&mut first.task).await.unwrap(), ControllerEnd::SessionExpired);
    assert!(!first.controller.is_active());
    until_state(&store, &of, |state| state.leader == BrokerId(2)).await;
    let (state, _) = state(&store, &of).await.unwrap();
    assert_eq!((state.controller_epoch, state.isr), (ControllerEpoch(2), ids(&[2])));

    cluster.add(1).await;
    let mut status = cluster.running[&1].controller.subscribe();
    status.wait_for(|status| status.controller_id == Some(BrokerId(2))).await.unwrap();
    cluster.broker(1).metadata.wait_until(|image| image.brokers().len() == 2).await;
    catch_up(&cluster, &of).await;
    until_state(&store, &of, |state| state.isr == ids(&[1, 2])).await;
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_is_about_to_stop_hands_over() {
    let cluster = FakeCluster::start([1, 2]).await;
    let store = cluster.store();
    create_topic(&store, "orders", r#"{"0":[2,1],"1":[2]}"#).await;
    let of = tp("orders", 0);
    until_state(&store, &of, |state| state.leader == BrokerId(2)).await;
    let epoch = BrokerEpoch(store.exists("/brokers/ids/2").await.unwrap().unwrap().czxid);
    let controller = cluster.controller().await;
    assert_eq!(
        controller.shut_down(BrokerId(2), BrokerEpoch(epoch.0 - 1)).await,
        Ok(Err(BrokerError::StaleEpoch))
    );
    assert_eq!(controller.shut_down(BrokerId(2), epoch).await, Ok(Ok(vec![])));
    let (state, _) = state(&store, &of).await.unwrap();
    assert_eq!((state.leader, state.isr), (BrokerId(1), ids(&[1])));
    let other = &cluster.running[&2].controller;
    assert_eq!(other.shut_down(BrokerId(2), epoch).await, Err(NotController));
    assert_eq!(controller.check_broker(BrokerId(2), epoch).await, Ok(Ok(())));
    assert_eq!(controller.check_broker(BrokerId(9), epoch).await, Ok(Err(BrokerError::Unknown)));
}

#[tokio::test(start_paused = true)]
async fn a_move_is_listed_until_it_is_done() {
    let cluster = FakeCluster::start([1, 2, 3]).await;
    let store = cluster.store();
    create_topic(&store, "orders", r#"{"0":[1,2]}"#).await;
    let of = tp("orders", 0);
    until_state(&store, &of, |state| state.leader == BrokerId(1)).await;
    let controller = cluster.controller().await;
    let target = Some(ids(&[3, 2]));
    let moved = vec![Reassignment { partition: of.clone(), target: target.clone(), may_change_factor: true }];
    assert_eq!(controller.reassign(moved.clone()).await, Ok(vec![(of.clone(), Ok(()))]));
    let under_way = ReplicaAssignment { replicas: ids(&[3, 2, 1]), adding: ids(&[3]), removing: ids(&[1]) };
    assert_eq!(controller.reassignments(None).await, Ok(vec![(of.clone(), under_way.clone())]));
    assert_eq!(assignment(&store, &of).await, under_way);
    while !cluster.broker(3).hosted.lock().contains(&of) {
        sleep(Duration::from_millis(10)).await;
    }
    catch_up(&cluster, &of).await;
    until_state(&store, &of, |state| state.isr == ids(&[3, 2])).await;
    while cluster.broker(1).hosted.lock().contains(&of) {
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(controller.reassignments(Some(vec![of.clone()])).await, Ok(vec![]));
    let done = ReplicaAssignment { replicas: ids(&[3, 2]), ..ReplicaAssignment::default() };
    assert_eq!(assignment(&store, &of).await, done);
    assert_eq!(cluster.running[&2].controller.reassign(moved).await, Err(NotController));
}

/// C067: moves that are written to the tree, as tools before Kafka 2.6 do.
#[tokio::test(start_paused = true)]
async fn moves_written_to_the_tree_are_done_noticed_again_and_removed() {
    let cluster = FakeCluster::start([1, 2, 3]).await;
    let store = cluster.store();
    create_topic(&store, "a", r#"{"0":[1],"1":[1],"2":[1],"3":[1],"4":[1]}"#).await;
    until_state(&store, &tp("a", 4), |state| state.leader == BrokerId(1)).await;
    let node = |entries: &[(&str, i32, i32)]| {
        let entry = |(topic, partition, broker): &(&str, i32, i32)| {
            format!(r#"{{"topic":"{topic}","partition":{partition},"replicas":[{broker}]}}"#)
        };
        let entries: Vec<String> = entries.iter().map(entry).collect();
        format!(r#"{{"version":1,"partitions":[{}]}}"#, entries.join(","))
    };
    let path = "/admin/reassign_partitions";
    let first = node(&[("a", 0, 2), ("a", 1, 2), ("a", 2, 3), ("a", 3, 9), ("x", 0, 1)]);
    create(&store, path, &first).await;
    let until_node = async |expected: &str| {
        while store.read(path).await.is_ok_and(|node| node.data.as_deref() != Some(expected.as_bytes())) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    // An unknown broker and an unknown topic go, the others proceed.
    until_node(&node(&[("a", 0, 2), ("a", 1, 2), ("a", 2, 3)])).await;
    until_state(&store, &tp("a", 0), |state| state.leader_epoch == LeaderEpoch(1)).await;
    catch_up(&cluster, &tp("a", 0)).await;
    until_node(&node(&[("a", 1, 2), ("a", 2, 3)])).await;
    let more = node(&[("a", 1, 2), ("a", 2, 3), ("a", 3, 2), ("a", 4, 3)]);
    store.set(path, Some(Bytes::from(more)), None).await.unwrap();
    let all_done = async {
        loop {
            for partition in 1..5 {
                catch_up(&cluster, &tp("a", partition)).await;
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        () = until_gone(&store, path) => {}
        () = all_done => {}
    }
    let mut replicas = Vec::new();
    for partition in 0..5 {
        replicas.extend(assignment(&store, &tp("a", partition)).await.replicas);
    }
    assert_eq!(replicas, ids(&[2, 2, 3, 2, 3]));

    // Nonsense only stands in the way; the next wish is noticed.
    create(&store, path, "{nonsense").await;
    until_gone(&store, path).await;
    create(&store, path, &node(&[("a", 0, 2)])).await;
    until_gone(&store, path).await;
}

#[tokio::test(start_paused = true)]
async fn an_election_written_to_the_tree_is_held_and_removed() {
    let mut cluster = FakeCluster::start([1, 2]).await;
    let store = cluster.store();
    create_topic(&store, "a", r#"{"0":[2,1]}"#).await;
    let of = tp("a", 0);
    until_state(&store, &of, |state| state.leader == BrokerId(2)).await;
    cluster.kill(2);
    until_state(&store, &of, |state| state.leader == BrokerId(1)).await;
    cluster.add(2).await;
    while !cluster.broker(2).hosted.lock().contains(&of) {
        sleep(Duration::from_millis(10)).await;
    }
    catch_up(&cluster, &of).await;
    let path = "/admin/preferred_replica_election";
    for _ in 0..2 {
        create(&store, path, r#"{"version":1,"partitions":[{"topic":"a","partition":0}]}"#).await;
        until_gone(&store, path).await;
    }
    let (state, _) = state(&store, &of).await.unwrap();
    assert_eq!((state.leader, state.leader_epoch), (BrokerId(2), LeaderEpoch(2)));
}

/// As leaders do where `inter.broker.protocol.version` is below 2.7.
#[tokio::test(start_paused = true)]
async fn what_leaders_write_themselves_is_told_to_all_and_the_notification_removed() {
    let cluster = FakeCluster::start([1, 2]).await;
    let store = cluster.store();
    create_topic(&store, "a", r#"{"0":[1,2]}"#).await;
    let of = tp("a", 0);
    until_state(&store, &of, |state| state.leader == BrokerId(1)).await;
    cluster.broker(2).metadata.wait_until(|image| image.topic_count() == 1).await;
    let (mut written, version) = state(&store, &of).await.unwrap();
    written.isr = ids(&[1]);
    let path = znodes::partition_state(&of.topic, of.partition);
    store.set(&path, Some(written.encode()), Some(version)).await.unwrap();
    let notification = Create {
        path: "/isr_change_notification/isr_change_".into(),
        data: Some(znodes::IsrChange(vec![of.clone()]).encode()),
        mode: CreateMode::PersistentSequential,
    };
    let (notification, _) = store.create(notification).await.unwrap();
    let is_known = |image: &crate::metadata::Image| {
        image.partition("a", PartitionIndex(0)).is_some_and(|partition| partition.isr == ids(&[1]))
    };
    cluster.broker(2).metadata.wait_until(is_known).await;
    until_gone(&store, &notification).await;
}

/// C065: a tool older than topic ids writes a topic's node; the id survives, also a failover.
#[tokio::test(start_paused = true)]
async fn a_tool_that_drops_the_topic_id_does_no_harm() {
    let mut cluster = FakeCluster::start([1, 2, 3]).await;
    let store = cluster.store();
    create_topic(&store, "a", r#"{"0":[2,3]}"#).await;
    until_state(&store, &tp("a", 0), |state| state.leader == BrokerId(2)).await;
    let id = |node: NodeData| znodes::TopicAssignment::decode(&node).unwrap().topic_id;
    let before = id(store.read("/brokers/topics/a").await.unwrap());
    let old_tool = Bytes::from_static(br#"{"version":1,"partitions":{"0":[2,3],"1":[3,2]}}"#);
    store.set("/brokers/topics/a", Some(old_tool), None).await.unwrap();
    until_state(&store, &tp("a", 1), |state| state.leader == BrokerId(3)).await;
    while id(store.read("/brokers/topics/a").await.unwrap()) != before {
        sleep(Duration::from_millis(10)).await;
    }
    cluster.kill(1);
    let mut status = cluster.controller().await.subscribe();
    status.wait_for(|status| status.active_epoch == Some(ControllerEpoch(2))).await.unwrap();
    cluster.broker(2).metadata.wait_until(|image| image.brokers().len() == 2).await;
    assert_eq!(cluster.broker(2).metadata.image().topic_id("a"), before.unwrap());
    assert_eq!(id(store.read("/brokers/topics/a").await.unwrap()), before);
}

/// C067. Dead at each write in turn, before or after it took effect: the successor finishes the move, and nobody
/// keeps what he should have dropped.
#[tokio::test(start_paused = true)]
async fn a_move_outlives_its_controller_at_every_write() {
    for dies_after_write in [false, true] {
        for writes in 0.. {
            let mut cluster = FakeCluster::start([]).await;
            let tool = cluster.store();
            registration::create_top_level_nodes(&tool).await.unwrap();
            let dying = Arc::new(DyingStore::new(&cluster.ensemble, writes, dies_after_write));
            let _ = cluster.add_on(dying.clone(), 1).await;
            cluster.add(2).await;
            cluster.add(3).await;
            let of = tp("a", 0);
            create_topic(&tool, "a", r#"{"0":[2]}"#).await;
            let path = "/admin/reassign_partitions";
            let wish = r#"{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[3]}]}"#;
            until_state(&tool, &of, |state| state.leader == BrokerId(2)).await;
            create(&tool, path, wish).await;
            let catching_up = async {
                loop {
                    if cluster.broker(3).hosted.lock().contains(&of) {
                        let tried = catch_up(&cluster, &of);
                        let _ = tokio::time::timeout(Duration::from_secs(1), tried).await;
                    }
                    sleep(Duration::from_millis(100)).await;
                }
            };
            tokio::select! {
                () = until_gone(&tool, path) => {}
                () = catching_up => {}
                () = sleep(Duration::from_secs(600)) => {
                    panic!("at write {writes}: {:#?}", dump(&tool).await)
                }
            }
            let (state, _) = state(&tool, &of).await.unwrap();
            assert_eq!((state.leader, &state.isr), (BrokerId(3), &ids(&[3])), "at write {writes}");
            assert_eq!(assignment(&tool, &of).await.replicas, ids(&[3]), "at write {writes}");
            assert!(!cluster.broker(2).hosted.lock().contains(&of), "at write {writes}");
            if !dying.has_died() {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_feature_node_takes_the_form_of_the_controllers_protocol() {
    let cases = [
        (None, r#"{"features":{},"version":2,"status":1}"#, 0),
        (Some(r#"{"version":2,"status":1,"features":{}}"#), r#"{"version":2,"status":1,"features":{}}"#, 0),
        (Some(r#"{"features":{},"version":1,"status":0}"#), r#"{"features":{},"version":2,"status":1}"#, 1),
        (
            Some(
                r#"{"features":{"f":{"min_version_level":1,"max_version_level":3}},"version":1,"status":1}"#,
            ),
            r#"{"features":{"f":{"max_version_level":3}},"version":2,"status":1}"#,
            1,
        ),
    ];
    for (before, after, version) in cases {
        let ensemble = MemoryEnsemble::new();
        let store = ensemble.session();
        if let Some(before) = before {
            create(&store, "/feature", before).await;
        }
        let running = start(Arc::new(ensemble.session()), 1, Arc::default()).await.unwrap();
        running.controller.subscribe().wait_for(|status| status.active_epoch.is_some()).await.unwrap();
        let node = store.read("/feature").await.unwrap();
        assert_eq!((node.data.as_deref(), node.stat.version), (Some(after.as_bytes()), version));
    }
}
