//! What is asked of brokers, and what their answers count for.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::markers::MarkerSender;
use super::messages::EndDecided;
use super::*;
use crate::coordination::BoxFuture;
use crate::metadata::Cache;
use crate::metadata::control::{ControlSender, PartitionAssignmentState, UpdateMetadataRequest};
use crate::model::{
    BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionIndex, ProducerEpoch, ProducerId,
    TopicName, TopicPartition,
};
use crate::runtime::task::{Shutdown, ShutdownTrigger};

/// A broker that is being asked, until the test answers.
struct Call {
    to: BrokerId,
    ends: Vec<EndMarkers>,
    answer: oneshot::Sender<Vec<MarkerResults>>,
}

impl Call {
    fn succeed(self) {
        let written = self.ends.iter().map(|end| vec![Ok(()); end.partitions.len()]).collect();
        self.answer.send(written).expect("the sender waits");
    }

    fn asked(&self) -> Vec<TopicPartition> {
        self.ends.iter().flat_map(|end| end.partitions.clone()).collect()
    }
}

struct Calls(mpsc::UnboundedSender<Call>);

impl MarkerChannel for Calls {
    fn write(
        &self,
        to: BrokerId,
        ends: Vec<EndMarkers>,
    ) -> BoxFuture<'_, Result<Vec<MarkerResults>, BrokerUnreachable>> {
        let (answer, answered) = oneshot::channel();
        self.0.send(Call { to, ends, answer }).expect("the test goes on");
        Box::pin(async move { answered.await.map_err(|_| BrokerUnreachable { reason: "gone".into() }) })
    }
}

struct Stage {
    sender: Arc<MarkerSender>,
    calls: mpsc::UnboundedReceiver<Call>,
    metadata: Arc<Cache>,
    _running: ShutdownTrigger,
}

const ONE: BrokerId = BrokerId(1);
const TWO: BrokerId = BrokerId(2);

impl Stage {
    /// Broker 1 leads `t-1`, broker 2 `t-2`; this one coordinates in partitions 0, 1 and 2.
    fn new() -> Stage {
        let (running, shutdown): (ShutdownTrigger, Shutdown) = ShutdownTrigger::new();
        let (asked, calls) = mpsc::unbounded_channel();
        let metadata = Arc::<Cache>::default();
        let sender = Arc::new(MarkerSender::new(Arc::new(Calls(asked)), Arc::clone(&metadata), shutdown));
        let stage = Stage { sender, calls, metadata, _running: running };
        stage.lead(1, ONE);
        stage.lead(2, TWO);
        (0..3).for_each(|partition| stage.sender.elected(PartitionIndex(partition), LeaderEpoch(0)));
        stage
    }

    fn lead(&self, partition: i32, leader: BrokerId) {
        let one = vec![leader];
        self.metadata.apply(UpdateMetadataRequest {
            sender: ControlSender {
                controller_id: ONE,
                controller_epoch: ControllerEpoch(1),
                broker_epoch: BrokerEpoch(1),
            },
            partitions: vec![PartitionAssignmentState::at_first(t(partition), one.clone(), one)],
            topic_ids: vec![],
            live_brokers: vec![],
        });
    }

    /// A commit that this partition of the coordinator has decided.
    fn commit(&self, coordinated_in: i32, partitions: &[i32]) {
        let decided = EndDecided {
            transactional_id: TransactionalId::new(&format!("id-{coordinated_in}")).expect("not empty"),
            producer_id: ProducerId(i64::from(coordinated_in)),
            producer_epoch: ProducerEpoch(0),
            is_commit: true,
            version: TransactionVersion::Classic,
            partitions: partitions.iter().map(|partition| t(*partition)).collect(),
            is_resumed: false,
        };
        self.sender.begin(PartitionIndex(coordinated_in), decided);
    }

    async fn call(&mut self, to: BrokerId, partitions: &[i32]) -> Call {
        let call = self.calls.recv().await.expect("the sender lives");
        let partitions: Vec<TopicPartition> = partitions.iter().map(|partition| t(*partition)).collect();
        assert_eq!((call.to, call.asked()), (to, partitions));
        call
    }
}

fn t(partition: i32) -> TopicPartition {
    TopicPartition::new(TopicName::new("t").expect("a legal name"), PartitionIndex(partition))
}

#[tokio::test(start_paused = true)]
async fn markers_for_a_broker_that_stands_still_go_to_the_one_that_replaces_it() {
    let mut stage = Stage::new();
    stage.commit(0, &[1]);
    let _never_answered = stage.call(ONE, &[1]).await;
    stage.lead(1, TWO);
    let call = stage.call(TWO, &[1]).await;
    assert!(call.ends[0].may_repeat);
    call.succeed();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(stage.sender.open_ends(), 0);
}

/// The second marker could come when the next transaction has begun, and end that.
#[tokio::test(start_paused = true)]
async fn a_partition_is_not_asked_again_while_it_is_asked() {
    let mut stage = Stage::new();
    stage.commit(0, &[1, 2]);
    let (mut one, mut two) = (None, None);
    for _ in 0..2 {
        let call = stage.calls.recv().await.expect("the sender lives");
        let of = if call.to == ONE { &mut one } else { &mut two };
        *of = Some(call);
    }
    for _ in 0..3 {
        drop(one.take());
        one = Some(stage.call(ONE, &[1]).await);
    }
    two.expect("broker 2 was asked").succeed();
    one.expect("broker 1 was asked").succeed();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(stage.sender.open_ends(), 0);
    assert!(stage.calls.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn ends_go_on_over_a_new_epoch_of_their_coordinator() {
    let mut stage = Stage::new();
    stage.commit(0, &[2]);
    let before = stage.call(TWO, &[2]).await;
    stage.sender.elected(PartitionIndex(0), LeaderEpoch(1));
    drop(before);
    let call = stage.call(TWO, &[2]).await;
    assert_eq!(call.ends[0].coordinator_epoch, LeaderEpoch(0));
    call.succeed();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(stage.sender.open_ends(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_late_answer_does_not_count_for_the_next_end() {
    let mut stage = Stage::new();
    stage.commit(0, &[2]);
    let late = stage.call(TWO, &[2]).await;
    // Another broker coordinated meanwhile, and completed that transaction.
    stage.sender.resigned(PartitionIndex(0));
    stage.sender.elected(PartitionIndex(0), LeaderEpoch(2));
    stage.commit(0, &[2]);
    late.succeed();
    let call = stage.call(TWO, &[2]).await;
    assert_eq!(call.ends[0].coordinator_epoch, LeaderEpoch(2));
    assert_eq!(stage.sender.open_ends(), 1);
    call.succeed();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(stage.sender.open_ends(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_is_given_up_leaves_the_others_their_own_results() {
    let mut stage = Stage::new();
    stage.commit(0, &[2]);
    let first = stage.call(TWO, &[2]).await;
    stage.commit(1, &[2]);
    stage.commit(2, &[2]);
    first.succeed();
    let both = stage.call(TWO, &[2, 2]).await;
    stage.sender.resigned(PartitionIndex(1));
    both.answer.send(vec![vec![Ok(())], vec![Err(MarkerError::NotLeader)]]).expect("the sender waits");
    let again = stage.call(TWO, &[2]).await;
    assert_eq!(again.ends[0].producer_id, ProducerId(2));
}

#[tokio::test(start_paused = true)]
async fn partitions_without_a_leader_do_not_have_the_others_asked_more_often() {
    let mut stage = Stage::new();
    stage.lead(2, BrokerId::NONE);
    stage.commit(0, &[1, 2]);
    let second = sleep(Duration::from_millis(1_050));
    tokio::pin!(second);
    let mut asked = 0;
    loop {
        tokio::select! {
            call = stage.calls.recv() => {
                let refused = vec![vec![Err(MarkerError::NotEnoughReplicas)]];
                call.expect("the sender lives").answer.send(refused).expect("the sender waits");
                asked += 1;
            }
            () = &mut second => break,
        }
    }
    assert!((8..=12).contains(&asked), "{asked}");
}
