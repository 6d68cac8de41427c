use super::world::*;
use super::*;
use crate::metadata::control::{BrokerRegistration, ControlOutcome};
use crate::model::*;

#[test]
fn a_new_controller_of_an_empty_cluster_introduces_the_brokers() {
    World::new(&[1]).check("1 <- UpdateMetadata [1]");
}

#[test]
fn a_new_topic_gets_leaders_in_one_request_per_broker() {
    let mut world = World::new(&[1]);
    world.lines.clear();
    world.create(vec![topic("a", &[&[1], &[1]]), topic("b", &[&[1]])]);
    world.check(
        "create a-0 leader 1 epoch 0 isr [1] version 0
        create a-1 leader 1 epoch 0 isr [1] version 0
        create b-0 leader 1 epoch 0 isr [1] version 0
        1 <- LeaderAndIsr a-0=1 new a-1=1 new b-0=1 new
        1 <- UpdateMetadata [1] a-0=1 a-1=1 b-0=1",
    );
    world.create(vec![topic("a", &[&[1], &[1]])]);
    world.check("");
}

#[test]
fn replicas_on_unknown_brokers_do_not_keep_a_topic_from_starting() {
    let mut world = World::new(&[1]);
    world.lines.clear();
    world.create(vec![topic("a", &[&[2, 1], &[2]])]);
    world.check(
        "create a-0 leader 1 epoch 0 isr [1] version 0
        1 <- LeaderAndIsr a-0=1 new
        1 <- UpdateMetadata [1] a-0=1 offline [2]",
    );
    assert_eq!(world.core.counts().offline_partitions, 1);
}

#[test]
fn a_broker_that_appears_learns_everything_and_starts_what_waited_for_it() {
    let mut world = World::new(&[1]);
    world.create(vec![topic("a", &[&[2, 1], &[2]])]);
    world.lines.clear();
    world.brokers(&[(1, 1), (2, 1)]);
    world.check(
        "1 <- UpdateMetadata [1, 2]
        2 <- UpdateMetadata [1, 2] a-0=1
        2 <- LeaderAndIsr a-0=1
        1 <- UpdateMetadata [1, 2] a-0=1
        2 <- UpdateMetadata [1, 2] a-0=1
        create a-1 leader 2 epoch 0 isr [2] version 0
        2 <- LeaderAndIsr a-1=2 new
        1 <- UpdateMetadata [1, 2] a-1=2
        2 <- UpdateMetadata [1, 2] a-1=2",
    );
}

#[test]
fn a_dead_broker_loses_leadership_and_isr_membership_in_one_write_each() {
    let mut world = World::new(&[1, 2, 3]);
    world.create(vec![topic("a", &[&[1, 2], &[2, 1], &[2], &[1, 3]])]);
    world.lines.clear();
    world.brokers(&[(1, 1), (3, 1)]);
    world.check(
        "set a-0 leader 1 epoch 1 isr [1] version 0
        set a-1 leader 1 epoch 1 isr [1] version 0
        set a-2 leader -1 epoch 1 isr [2] version 0
        1 <- LeaderAndIsr a-0=1 a-1=1
        1 <- UpdateMetadata [1, 3] a-0=1 offline [2] a-1=1 offline [2] a-2=-1 offline [2]
        3 <- UpdateMetadata [1, 3] a-0=1 offline [2] a-1=1 offline [2] a-2=-1 offline [2]",
    );
    assert_eq!(world.core.counts().offline_partitions, 1);
    world.brokers(&[(1, 1), (2, 5), (3, 1)]);
    world.check(
        "1 <- UpdateMetadata [1, 2, 3]
        2 <- UpdateMetadata [1, 2, 3] a-0=1 a-1=1 a-2=-1 a-3=1
        3 <- UpdateMetadata [1, 2, 3]
        2 <- LeaderAndIsr a-0=1 a-1=1
        1 <- UpdateMetadata [1, 2, 3] a-0=1 a-1=1
        2 <- UpdateMetadata [1, 2, 3] a-0=1 a-1=1
        3 <- UpdateMetadata [1, 2, 3] a-0=1 a-1=1
        set a-2 leader 2 epoch 2 isr [2] version 1
        2 <- LeaderAndIsr a-2=2
        1 <- UpdateMetadata [1, 2, 3] a-2=2
        2 <- UpdateMetadata [1, 2, 3] a-2=2
        3 <- UpdateMetadata [1, 2, 3] a-2=2",
    );
}

#[test]
fn a_bounced_broker_is_a_failure_and_a_start() {
    let mut world = World::new(&[1, 2]);
    world.create(vec![topic("a", &[&[2, 1]])]);
    world.lines.clear();
    world.brokers(&[(1, 1), (2, 7)]);
    world.check(
        "set a-0 leader 1 epoch 1 isr [1] version 0
        1 <- LeaderAndIsr a-0=1
        1 <- UpdateMetadata [1] a-0=1 offline [2]
        1 <- UpdateMetadata [1, 2]
        2 <- UpdateMetadata [1, 2] a-0=1
        2 <- LeaderAndIsr a-0=1
        1 <- UpdateMetadata [1, 2] a-0=1
        2 <- UpdateMetadata [1, 2] a-0=1",
    );
}

#[test]
fn changed_endpoints_are_told_to_everyone() {
    let mut world = World::new(&[1]);
    world.lines.clear();
    world.run(Event::BrokersChanged(vec![BrokerRegistration { rack: Some("r".into()), ..broker(1, 1) }]));
    world.check("1 <- UpdateMetadata [1]");
    world.run(Event::BrokersChanged(vec![BrokerRegistration { rack: Some("r".into()), ..broker(1, 1) }]));
    world.check("");
}

#[test]
fn a_new_controller_resumes_what_it_reads() {
    let topics = vec![topic("a", &[&[1], &[1], &[1]])];
    let states = [(tp("a", 0), leadership(1, 3, &[1], 4)), (tp("a", 1), leadership(-1, 5, &[1], 8))];
    World::elected(&[1], topics, &states, &[]).check(
        "1 <- UpdateMetadata [1]
        1 <- LeaderAndIsr a-0=1
        1 <- UpdateMetadata [1] a-0=1
        set a-1 leader 1 epoch 6 isr [1] version 8
        create a-2 leader 1 epoch 0 isr [1] version 0
        1 <- LeaderAndIsr a-1=1 a-2=1 new
        1 <- UpdateMetadata [1] a-1=1 a-2=1",
    );
}

/// Found by the simulation: all brokers restarted, then the leader and the controller lost power together. A state that
/// nobody wrote again would not show the next controller who went.
#[test]
fn a_state_that_is_older_than_all_its_replicas_is_written_again() {
    let topics = vec![topic("a", &[&[1, 2], &[1, 2], &[1, 3]])];
    let states = [
        (tp("a", 0), leadership(2, 3, &[2, 1], 4)),
        (tp("a", 1), leadership(2, 3, &[2, 1], 4)),
        (tp("a", 2), leadership(3, 3, &[1, 3], 4)),
    ];
    let mut world = World::elected(&[1, 2], topics, &states, &[]);
    world.all_returned.extend([tp("a", 0), tp("a", 2)]);
    world.states.extend(states);
    world.lines.clear();
    world.elect(vec![broker(1, 9), broker(2, 9)]);
    world.check(
        "1 <- UpdateMetadata [1, 2]
        2 <- UpdateMetadata [1, 2]
        1 <- LeaderAndIsr a-0=2 a-1=2
        2 <- LeaderAndIsr a-0=2 a-1=2
        1 <- UpdateMetadata [1, 2] a-0=2 a-1=2
        2 <- UpdateMetadata [1, 2] a-0=2 a-1=2
        set a-2 leader 1 epoch 4 isr [1] version 4
        1 <- LeaderAndIsr a-2=1
        1 <- UpdateMetadata [1, 2] a-2=1 offline [3]
        2 <- UpdateMetadata [1, 2] a-2=1 offline [3]
        set a-0 leader 2 epoch 4 isr [2, 1] version 4
        1 <- LeaderAndIsr a-0=2
        2 <- LeaderAndIsr a-0=2
        1 <- UpdateMetadata [1, 2] a-0=2
        2 <- UpdateMetadata [1, 2] a-0=2",
    );
}

#[test]
fn a_state_that_someone_else_wrote_is_taken_over_and_decided_again() {
    let topics = vec![topic("a", &[&[1, 2]])];
    let states = [(tp("a", 0), leadership(2, 0, &[1, 2], 0))];
    let mut world = World::elected(&[1, 2], topics, &states, &[]);
    world.states.insert(tp("a", 0), leadership(2, 0, &[2, 1], 3));
    world.lines.clear();
    world.brokers(&[(1, 1)]);
    world.check(
        "set a-0 leader 1 epoch 1 isr [1] version 0
        set a-0 leader 1 epoch 1 isr [1] version 3
        1 <- LeaderAndIsr a-0=1
        1 <- UpdateMetadata [1] a-0=1 offline [2]",
    );
}

#[test]
fn a_state_created_by_a_lost_reply_is_announced_as_new() {
    let mut world = World::new(&[1]);
    world.states.insert(tp("a", 0), leadership(1, 0, &[1], 0));
    world.lines.clear();
    world.create(vec![topic("a", &[&[1]])]);
    world.check(
        "create a-0 leader 1 epoch 0 isr [1] version 0
        1 <- LeaderAndIsr a-0=1 new
        1 <- UpdateMetadata [1] a-0=1",
    );
}

#[test]
fn the_state_of_a_newer_controller_is_left_alone() {
    let topics = vec![topic("a", &[&[1, 2]])];
    let states = [(tp("a", 0), leadership(2, 0, &[1, 2], 0))];
    let mut world = World::elected(&[1, 2], topics, &states, &[]);
    let newer = Leadership { controller_epoch: ControllerEpoch(3), ..leadership(2, 1, &[2], 1) };
    world.states.insert(tp("a", 0), newer.clone());
    world.brokers(&[(1, 1)]);
    assert_eq!(world.states[&tp("a", 0)], newer);
}

#[test]
fn an_unclean_election_depends_on_the_topic() {
    let topics = vec![topic("a", &[&[1, 2]]), topic("b", &[&[1, 2]])];
    let states = [(tp("a", 0), leadership(2, 0, &[2], 0)), (tp("b", 0), leadership(2, 0, &[2], 0))];
    let mut world = World::elected(&[1, 2], topics, &states, &[]);
    world.unclean.insert(name("b"));
    world.lines.clear();
    world.brokers(&[(1, 1)]);
    world.check(
        "ask unclean a
        ask unclean b
        set a-0 leader -1 epoch 1 isr [2] version 0
        set b-0 leader 1 epoch 1 isr [1] version 0 recovering
        1 <- LeaderAndIsr a-0=-1 b-0=1
        1 <- UpdateMetadata [1] a-0=-1 offline [2] b-0=1 offline [2]",
    );
    world.unclean.insert(name("a"));
    world.run(Event::UncleanElectionEnabled(name("a")));
    world.check(
        "ask unclean a
        set a-0 leader 1 epoch 2 isr [1] version 1 recovering
        1 <- LeaderAndIsr a-0=1
        1 <- UpdateMetadata [1] a-0=1 offline [2]",
    );
}

#[test]
fn unclean_election_by_default_covers_topics_that_do_not_say() {
    let states = [(tp("a", 0), leadership(-1, 0, &[2], 0))];
    let mut world = World::elected(&[1], vec![topic("a", &[&[1, 2]])], &states, &[]);
    world.lines.clear();
    world.run(Event::UncleanElectionByDefault(true));
    world.check(
        "ask unclean a
        set a-0 leader 1 epoch 1 isr [1] version 0 recovering
        1 <- LeaderAndIsr a-0=1
        1 <- UpdateMetadata [1] a-0=1 offline [2]",
    );
}

#[test]
fn added_partitions_start() {
    let mut world = World::new(&[1]);
    world.create(vec![topic("a", &[&[1]])]);
    world.lines.clear();
    world.run(Event::TopicWritten(topic("a", &[&[1], &[1]])));
    world.check(
        "create a-1 leader 1 epoch 0 isr [1] version 0
        1 <- LeaderAndIsr a-1=1 new
        1 <- UpdateMetadata [1] a-1=1",
    );
}

/// C065: without its id, replicas would take the topic for another one.
#[test]
fn a_topic_id_that_an_old_tool_dropped_is_put_back() {
    let mut world = World::new(&[1]);
    world.create(vec![topic("a", &[&[1]])]);
    world.lines.clear();
    world.run(Event::TopicWritten(TopicAssignment { id: None, ..topic("a", &[&[1], &[1]]) }));
    world.check(
        "assign a [[1], [1]]
        create a-1 leader 1 epoch 0 isr [1] version 0
        1 <- LeaderAndIsr a-1=1 new
        1 <- UpdateMetadata [1] a-1=1",
    );
}

#[test]
fn a_topic_is_deleted_when_every_replica_has_confirmed() {
    let mut world = World::new(&[1, 2]);
    world.create(vec![topic("a", &[&[1, 2]])]);
    world.lines.clear();
    world.delete(&["a", "unknown"]);
    world.check(
        "1 <- UpdateMetadata [1, 2] a-0=-2
        2 <- UpdateMetadata [1, 2] a-0=-2
        1 <- StopReplica delete a-0@-2
        2 <- StopReplica delete a-0@-2
        unmark [\"unknown\"]",
    );
    world.responds(1, ControlResponse::StopReplica(vec![(tp("a", 0), ControlOutcome::Done)]));
    world.delete(&["a"]);
    world.run(Event::TopicWritten(topic("a", &[&[1, 2], &[1]])));
    world.check("assign a [[1, 2]]");
    world.responds(2, ControlResponse::StopReplica(vec![(tp("a", 0), ControlOutcome::Done)]));
    world.check("remove a 1");
    assert!(world.core.cluster().topic("a").is_none());
    world.create(vec![topic("a", &[&[1]])]);
    assert!(world.states.contains_key(&tp("a", 0)));
}

#[test]
fn deletion_begins_without_dead_brokers_and_waits_for_them() {
    let mut world = World::new(&[1, 2]);
    world.create(vec![topic("a", &[&[1, 2]])]);
    world.brokers(&[(1, 1)]);
    world.lines.clear();
    world.delete(&["a"]);
    world.check(
        "1 <- UpdateMetadata [1] a-0=-2
        1 <- StopReplica delete a-0@-2",
    );
    world.responds(1, ControlResponse::StopReplica(vec![(tp("a", 0), ControlOutcome::Done)]));
    world.check("");
    world.brokers(&[(1, 1), (2, 1)]);
    world.check(
        "1 <- UpdateMetadata [1, 2]
        2 <- UpdateMetadata [1, 2] a-0=-2
        2 <- StopReplica delete a-0@-2",
    );
    world.responds(2, ControlResponse::StopReplica(vec![(tp("a", 0), ControlOutcome::Done)]));
    world.check("remove a 1");
}

#[test]
fn a_broker_that_dies_while_deleting_is_asked_again() {
    let mut world = World::new(&[1, 2]);
    world.create(vec![topic("a", &[&[1, 2]])]);
    world.delete(&["a"]);
    world.responds(1, ControlResponse::StopReplica(vec![(tp("a", 0), ControlOutcome::Done)]));
    world.brokers(&[(1, 1)]);
    world.lines.clear();
    world.brokers(&[(1, 1), (2, 9)]);
    world.check(
        "1 <- UpdateMetadata [1, 2]
        2 <- UpdateMetadata [1, 2] a-0=-2
        2 <- StopReplica delete a-0@-2",
    );
    // An answer of its earlier life does not count.
    world.responds(2, ControlResponse::StopReplica(vec![(tp("a", 0), ControlOutcome::Done)]));
    world.check("");
}

#[test]
fn a_failed_deletion_halts_until_the_broker_returns() {
    let mut world = World::new(&[1]);
    world.create(vec![topic("a", &[&[1]])]);
    world.delete(&["a"]);
    world.lines.clear();
    world.responds(1, ControlResponse::StopReplica(vec![(tp("a", 0), ControlOutcome::StorageError)]));
    world.check("");
    assert_eq!(world.core.counts().topics_to_delete, 1);
}

#[test]
fn a_new_controller_goes_on_deleting_and_does_not_bring_the_topic_up() {
    let states = [(tp("a", 0), leadership(1, 0, &[1], 0))];
    let mut world = World::elected(&[1], vec![topic("a", &[&[1], &[1]])], &states, &["a", "gone"]);
    world.check(
        "1 <- UpdateMetadata [1]
        1 <- UpdateMetadata [1] a-0=-2
        1 <- StopReplica delete a-0@-2 a-1@-2
        unmark [\"gone\"]",
    );
    let done = |partition| (tp("a", partition), ControlOutcome::Done);
    world.responds(1, ControlResponse::StopReplica(vec![done(0), done(1)]));
    world.check("remove a 2");
}

#[test]
fn marks_are_removed_where_deletion_is_disabled() {
    let mut world = World::new(&[1]);
    let settings = Settings { topic_deletion_enabled: false, ..settings() };
    world.core = Core::new(settings);
    world.create(vec![topic("a", &[&[1]])]);
    world.lines.clear();
    world.delete(&["a"]);
    world.check("unmark [\"a\"]");
}

#[test]
fn a_failed_log_directory_takes_its_replicas_offline() {
    let mut world = World::new(&[1, 2]);
    world.create(vec![topic("a", &[&[1, 2], &[1]])]);
    world.lines.clear();
    world.run(Event::LogDirsFailed([BrokerId(1)].into()));
    world.check("1 <- LeaderAndIsr a-0=1 a-1=1");
    let failed = |partition| (tp("a", partition), ControlOutcome::StorageError);
    world.responds(1, ControlResponse::LeaderAndIsr(vec![failed(0), failed(1)]));
    world.check(
        "set a-0 leader 2 epoch 1 isr [2] version 0
        set a-1 leader -1 epoch 1 isr [1] version 0
        2 <- LeaderAndIsr a-0=2
        1 <- UpdateMetadata [1, 2] a-0=2 offline [1] a-1=-1 offline [1]
        2 <- UpdateMetadata [1, 2] a-0=2 offline [1] a-1=-1 offline [1]",
    );
    world.responds(1, ControlResponse::LeaderAndIsr(vec![(tp("a", 1), ControlOutcome::Done)]));
    world.check(
        "set a-1 leader 1 epoch 2 isr [1] version 1
        1 <- LeaderAndIsr a-1=1
        1 <- UpdateMetadata [1, 2] a-1=1
        2 <- UpdateMetadata [1, 2] a-1=1",
    );
}

#[test]
fn requested_elections_report_each_partition() {
    let topics = vec![topic("a", &[&[1, 2], &[1, 2], &[1, 2]]), topic("d", &[&[1]])];
    let states = [
        (tp("a", 0), leadership(2, 0, &[1, 2], 0)),
        (tp("a", 1), leadership(1, 0, &[1, 2], 0)),
        (tp("a", 2), leadership(2, 0, &[2], 0)),
    ];
    let mut world = World::elected(&[1, 2], topics, &states, &["d"]);
    world.lines.clear();
    let partitions = vec![tp("a", 0), tp("a", 1), tp("a", 2), tp("d", 0), tp("x", 0)];
    let kind = ElectionKind::Preferred;
    world.run(Event::ElectionRequested { token: 4, kind, partitions: Some(partitions) });
    world.check(
        "set a-0 leader 1 epoch 1 isr [1, 2] version 0
        1 <- LeaderAndIsr a-0=1
        2 <- LeaderAndIsr a-0=1
        1 <- UpdateMetadata [1, 2] a-0=1
        2 <- UpdateMetadata [1, 2] a-0=1
        election 4: [(a-0, Ok(BrokerId(1))), (a-1, Err(NotNeeded)), \
         (a-2, Err(PreferredLeaderNotAvailable { partition: a-2 })), \
         (d-0, Err(TopicIsBeingDeleted)), (x-0, Err(UnknownPartition))]",
    );
    world.run(Event::ElectionRequested { token: 5, kind: ElectionKind::Unclean, partitions: None });
    world.check("election 5: [(d-0, Err(TopicIsBeingDeleted))]");
}

/// The promise that makes creating many partitions cheap.
#[test]
fn ten_thousand_partitions_are_one_request_of_each_kind() {
    let mut core = Core::new(settings());
    core.step(Event::Elected(Snapshot { brokers: vec![broker(1, 1)], ..Snapshot::default() }));
    let one: &[i32] = &[1];
    let effects = core.step(Event::TopicsCreated(vec![topic("a", &vec![one; 10_000])]));
    assert_eq!((effects.calls.len(), effects.requests.len()), (10_000, 0));
    let effects = core.replied(vec![StoreReply::Written { partition_epoch: 0 }; 10_000]);
    assert_eq!((effects.calls.len(), effects.requests.len()), (0, 2));
}

/// The promise that a failure costs what it touches.
#[test]
fn a_failure_elsewhere_costs_nothing_however_many_partitions_there_are() {
    let mut core = Core::new(settings());
    let brokers: Vec<BrokerRegistration> = [1, 2, 3].map(|id| broker(id, 1)).to_vec();
    core.step(Event::Elected(Snapshot { brokers: brokers.clone(), ..Snapshot::default() }));
    let replicas: &[i32] = &[1, 2];
    core.step(Event::TopicsCreated(vec![topic("a", &vec![replicas; 10_000])]));
    core.replied(vec![StoreReply::Written { partition_epoch: 0 }; 10_000]);
    let effects = core.step(Event::BrokersChanged(brokers.into_iter().take(2).collect()));
    assert!(effects.calls.is_empty());
    for (_, request) in &effects.requests {
        let ControlRequest::UpdateMetadata(request) = request else { panic!("{request:?}") };
        assert_eq!(request.partitions.len(), 0);
    }
    assert_eq!(effects.requests.len(), 2);
}

#[test]
fn a_leader_asks_again_for_what_the_store_did_not_take() {
    let mut world = World::new(&[1, 2]);
    world.create(vec![topic("a", &[&[1, 2]])]);
    let wanted = WantedIsr {
        partition: tp("a", 0),
        leader_epoch: LeaderEpoch(0),
        partition_epoch: 0,
        isr: vec![BrokerId(1).into()],
        is_recovering: false,
    };
    let request =
        AlterPartition { broker: BrokerId(1), broker_epoch: BrokerEpoch(1), partitions: vec![wanted] };
    let asked = world.core.step(Event::AlterPartition { token: 7, request });
    assert_eq!((asked.calls.len(), asked.replies.len()), (1, 0));
    let answered = world.core.replied(vec![StoreReply::Refused]);
    let replies: Vec<String> =
        answered.replies.iter().map(|(token, reply)| show_reply(*token, reply)).collect();
    assert_eq!(replies, ["altered 7: a-0 NotStored"]);
}
