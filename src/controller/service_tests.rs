use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::testing::*;
use super::*;
use crate::coordination::*;
use crate::metadata::Image;
use crate::model::*;

async fn create(store: &dyn Store, path: &str, data: &str) {
    let data = (!data.is_empty()).then(|| Bytes::from(data.to_owned()));
    let node = Create { path: path.into(), data, mode: CreateMode::Persistent };
    match store.create(node).await {
        Ok(_) | Err(StoreError::NodeExists { .. } | StoreError::SessionExpired) => {}
        Err(error) => panic!("{path}: {error}"),
    }
}

async fn create_topic(store: &dyn Store, name: &str, partitions: &str) {
    create(store, &format!("/config/topics/{name}"), r#"{"version":1,"config":{}}"#).await;
    let node = format!(
        r#"{{"partitions":{partitions},"topic_id":"PxMbBfhbQWW-ShLkvmieSQ","adding_replicas":{{}},"removing_replicas":{{}},"version":3}}"#
    );
    create(store, &format!("/brokers/topics/{name}"), &node).await;
}

async fn until_partitions(broker: &FakeBroker, count: usize) {
    broker.metadata.wait_until(|image| image.partition_count() == count).await;
}

async fn until_gone(store: &dyn Store, path: &str) {
    while let (Some(_), watcher) = store.exists_and_watch(path).await.unwrap() {
        watcher.await.unwrap();
    }
}

#[tokio::test]
async fn the_tree_of_a_new_cluster_is_kafkas() {
    let running = start_alone().await;
    create_topic(&*running.store, "orders", r#"{"0":[1],"1":[1]}"#).await;
    until_partitions(&running.broker, 2).await;
    let cluster_id =
        registration::cluster_id(&*running.store, &crate::runtime::Random::from_seed(3)).await.unwrap();
    let expected = format!(
        r#"/admin 0 \N
/admin/delete_topics 0 \N
/brokers 0 \N
/brokers/ids 0 \N
/brokers/ids/1 ephemeral 1 {{"features":{{}},"listener_security_protocol_map":{{"PLAINTEXT":"PLAINTEXT"}},"endpoints":["PLAINTEXT://127.0.0.1:19101"],"jmx_port":-1,"port":19101,"host":"127.0.0.1","version":5,"timestamp":"1795982690929"}}
/brokers/seqid 0 \N
/brokers/topics 0 \N
/brokers/topics/orders 0 {{"partitions":{{"0":[1],"1":[1]}},"topic_id":"PxMbBfhbQWW-ShLkvmieSQ","adding_replicas":{{}},"removing_replicas":{{}},"version":3}}
/brokers/topics/orders/partitions 0 \N
/brokers/topics/orders/partitions/0 0 \N
/brokers/topics/orders/partitions/0/state 0 {{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}}
/brokers/topics/orders/partitions/1 0 \N
/brokers/topics/orders/partitions/1/state 0 {{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}}
/cluster 0 \N
/cluster/id 0 {{"version":"1","id":"{cluster_id}"}}
/config 0 \N
/config/brokers 0 \N
/config/changes 0 \N
/config/clients 0 \N
/config/ips 0 \N
/config/topics 0 \N
/config/topics/orders 0 {{"version":1,"config":{{}}}}
/config/users 0 \N
/consumers 0 \N
/controller ephemeral 0 {{"version":2,"brokerid":1,"timestamp":"1795982690929","kraftControllerEpoch":-1}}
/controller_epoch 1 1
/feature 0 {{"features":{{}},"version":2,"status":1}}
/isr_change_notification 0 \N
/latest_producer_id_block 0 \N
/log_dir_event_notification 0 \N"#
    );
    let found = dump(&*running.store).await;
    let expected: Vec<&str> = expected.lines().collect();
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert_same_node(found, expected);
    }
}

/// Equal but for the order of JSON keys.
#[track_caller]
fn assert_same_node(found: &str, expected: &str) {
    let split = |line: &str| -> (String, serde_json::Value) {
        let at = line.find('{').unwrap_or(line.len());
        let json = line.get(at..).unwrap_or_default();
        (line[..at].to_owned(), serde_json::from_str(json).unwrap_or_default())
    };
    assert_eq!(split(found), split(expected));
}

#[tokio::test]
async fn a_deleted_topic_leaves_nothing_and_its_replicas_are_dropped() {
    let running = start_alone().await;
    until_gone(&*running.store, "/nothing").await;
    running.broker.metadata.wait_until(|image| image.brokers().len() == 1).await;
    let before = dump(&*running.store).await;
    create_topic(&*running.store, "orders", r#"{"0":[1],"1":[1]}"#).await;
    until_partitions(&running.broker, 2).await;
    create(&*running.store, "/admin/delete_topics/orders", "").await;
    create(&*running.store, "/admin/delete_topics/unknown", "").await;
    until_gone(&*running.store, "/admin/delete_topics/orders").await;
    until_gone(&*running.store, "/admin/delete_topics/unknown").await;
    assert_eq!(dump(&*running.store).await, before);
    assert!(running.broker.hosted.lock().is_empty());
    assert_eq!(running.broker.metadata.image().topic_count(), 0);
}

#[tokio::test]
async fn added_partitions_and_ids_dropped_by_old_tools_are_handled() {
    let running = start_alone().await;
    create_topic(&*running.store, "orders", r#"{"0":[1]}"#).await;
    until_partitions(&running.broker, 1).await;
    let old_tool = Bytes::from_static(br#"{"version":1,"partitions":{"0":[1],"1":[1]}}"#);
    running.store.set("/brokers/topics/orders", Some(old_tool), None).await.unwrap();
    until_partitions(&running.broker, 2).await;
    let node = running.store.read("/brokers/topics/orders").await.unwrap();
    let text = String::from_utf8(node.data.unwrap().to_vec()).unwrap();
    assert!(text.contains("PxMbBfhbQWW-ShLkvmieSQ"), "{text}");
}

#[tokio::test]
async fn a_topic_without_id_gets_one() {
    let running = start_alone().await;
    create(&*running.store, "/brokers/topics/old", r#"{"version":1,"partitions":{"0":[1]}}"#).await;
    until_partitions(&running.broker, 1).await;
    let id = running.broker.metadata.image().topic_id("old");
    assert!(!id.is_zero());
    let node = running.store.read("/brokers/topics/old").await.unwrap();
    assert!(String::from_utf8(node.data.unwrap().to_vec()).unwrap().contains(&id.to_string()));
}

#[tokio::test(start_paused = true)]
async fn a_second_broker_takes_over_and_fences_the_first() {
    let ensemble = MemoryEnsemble::new();
    let first = start(Arc::new(ensemble.session()), 1, Arc::default()).await.unwrap();
    first.controller.subscribe().wait_for(|status| status.active_epoch.is_some()).await.unwrap();
    let second = start(Arc::new(ensemble.session()), 2, Arc::default()).await.unwrap();
    let mut status = second.controller.subscribe();
    status.wait_for(|status| status.controller_id == Some(BrokerId(1))).await.unwrap();
    assert!(!second.controller.is_active());

    // The first one does not hear of its end: it is cut off from the store.
    ensemble.disconnect(first.store.session_id());
    second.store.delete("/controller", None).await.unwrap();
    status.wait_for(|status| status.active_epoch == Some(ControllerEpoch(2))).await.unwrap();
    ensemble.reconnect(first.store.session_id());
    let mut status = first.controller.subscribe();
    status.wait_for(|status| status.controller_id == Some(BrokerId(2))).await.unwrap();
}

/// Nothing is written in a term that was fenced; the place is given up, as long as it is held nobody acts.
#[tokio::test]
async fn a_fenced_controller_stands_again() {
    let running = start_alone().await;
    running.controller.subscribe().wait_for(|status| status.active_epoch.is_some()).await.unwrap();
    // As an election elsewhere would.
    running.store.set("/controller_epoch", Some(Bytes::from_static(b"9")), None).await.unwrap();
    create_topic(&*running.store, "orders", r#"{"0":[1]}"#).await;
    let mut status = running.controller.subscribe();
    status.wait_for(|status| status.active_epoch == Some(ControllerEpoch(10))).await.unwrap();
    until_partitions(&running.broker, 1).await;
    let state = running.store.read("/brokers/topics/orders/partitions/0/state").await.unwrap();
    let state = znodes::PartitionState::decode(&state).unwrap();
    assert_eq!(state.controller_epoch, ControllerEpoch(10));
}

#[tokio::test]
async fn a_reported_log_directory_is_looked_into_and_the_report_removed() {
    let running = start_alone().await;
    create_topic(&*running.store, "orders", r#"{"0":[1]}"#).await;
    until_partitions(&running.broker, 1).await;
    running.broker.has_failed_disk.store(true, Ordering::SeqCst);
    let report = Create {
        path: "/log_dir_event_notification/log_dir_event_".into(),
        data: Some(znodes::LogDirEvent { broker_id: BrokerId(1) }.encode()),
        mode: CreateMode::PersistentSequential,
    };
    let (path, _) = running.store.create(report).await.unwrap();
    let is_offline = |image: &Image| {
        let partition = image.partition("orders", PartitionIndex(0));
        partition.is_some_and(|partition| partition.offline_replicas == [BrokerId(1)])
    };
    running.broker.metadata.wait_until(is_offline).await;
    until_gone(&*running.store, &path).await;
    assert_eq!(running.controller.counts().await.unwrap().offline_partitions, 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_repeated_until_the_broker_answers() {
    let running = start_alone().await;
    running.broker.losses.store(5, Ordering::SeqCst);
    create_topic(&*running.store, "orders", r#"{"0":[1]}"#).await;
    until_partitions(&running.broker, 1).await;
    assert_eq!(running.broker.hosted.lock().len(), 1);
}

#[tokio::test]
async fn requested_elections_are_answered() {
    let running = start_alone().await;
    create_topic(&*running.store, "orders", r#"{"0":[1]}"#).await;
    until_partitions(&running.broker, 1).await;
    let partition = TopicPartition::new(TopicName::new("orders").unwrap(), PartitionIndex(0));
    let results = running
        .controller
        .elect_leaders(ElectionKind::Preferred, Some(vec![partition.clone()]))
        .await
        .unwrap();
    assert_eq!(results, [(partition, Err(ElectionError::NotNeeded))]);
    assert_eq!(running.controller.counts().await.unwrap().partitions, 1);
}

/// The session ends at each write in turn, before or after it took effect; the next session finishes the work.
#[tokio::test(start_paused = true)]
async fn whatever_write_is_the_last_the_successor_finishes() {
    for dies_after_write in [false, true] {
        for writes in 0.. {
            let ensemble = MemoryEnsemble::new();
            let tool = ensemble.session();
            registration::create_top_level_nodes(&tool).await.unwrap();
            let broker = Arc::new(FakeBroker::default());
            let dying = Arc::new(DyingStore::new(&ensemble, writes, dies_after_write));
            let script = async {
                create_topic(&tool, "keep", r#"{"0":[1],"1":[1]}"#).await;
                create_topic(&tool, "drop", r#"{"0":[1],"1":[1]}"#).await;
                until_partitions(&broker, 4).await;
                create(&tool, "/admin/delete_topics/drop", "").await;
                until_gone(&tool, "/brokers/topics/drop").await;
                until_gone(&tool, "/admin/delete_topics/drop").await;
            };
            let brokers = async {
                if let Ok(mut running) = start(dying.clone(), 1, broker.clone()).await {
                    assert_eq!((&mut running.task).await.unwrap(), ControllerEnd::SessionExpired);
                }
                let running = start(Arc::new(ensemble.session()), 1, broker.clone()).await.unwrap();
                std::future::pending::<()>().await;
                drop(running);
            };
            tokio::select! {
                () = script => {}
                () = brokers => {}
            }
            let tree = dump(&tool).await;
            assert!(!tree.iter().any(|line| line.contains("drop")), "at write {writes}: {tree:#?}");
            assert!(tree.iter().any(|line| line.starts_with("/brokers/topics/keep/partitions/1/state")));
            let hosted: Vec<String> = broker.hosted.lock().iter().map(ToString::to_string).collect();
            assert_eq!(hosted, ["keep-0", "keep-1"], "at write {writes}");
            if !dying.has_died() {
                break;
            }
        }
    }
}
