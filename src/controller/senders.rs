use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use snafu::Snafu;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tracing::debug;

use super::core::{ControlRequest, ControlResponse};
use crate::coordination::BoxFuture;
use crate::metadata::control::{BrokerRegistration, ControlRefusal};
use crate::model::{BrokerEpoch, BrokerId};
use crate::runtime::task;

/// How a controller reaches brokers; itself by a direct call, the others over the network.
pub trait ControlChannel: Send + Sync + 'static {
    /// Resolves when the broker has done what was asked, or refused it. A future that was polled once is
    /// polled to its end.
    fn send(
        &self,
        to: BrokerId,
        request: ControlRequest,
    ) -> BoxFuture<'_, Result<ControlResponse, ControlError>>;
}

/// Why a broker did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
pub enum ControlError {
    #[snafu(display("the broker refused: {refusal:?}"))]
    Refused { refusal: ControlRefusal },
    /// It may have acted or not; the request comes back to be sent again.
    #[snafu(display("the broker could not be reached"))]
    Unreachable { request: Box<ControlRequest> },
}

/// As Kafka's controller pauses before it tries a broker again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The requests on their way to each broker: one at a time, in order, repeated until the broker answers or is
/// no longer registered.
///
/// The queues have no limit of their own. They grow by a request or two an event, and only while a broker that
/// is registered does not answer, which its session timeout ends.
pub(super) struct Senders {
    channel: Arc<dyn ControlChannel>,
    queues: HashMap<BrokerId, Queue>,
    answers: (mpsc::Sender<Answer>, mpsc::Receiver<Answer>),
}

struct Queue {
    epoch: BrokerEpoch,
    waiting: VecDeque<ControlRequest>,
    is_busy: bool,
    /// Gone with the queue, which ends the attempts to deliver.
    alive: Arc<()>,
}

/// What came of a request to the broker that registered with this epoch.
#[derive(Debug)]
pub(super) struct Answer {
    pub from: BrokerId,
    pub broker_epoch: BrokerEpoch,
    pub outcome: Result<ControlResponse, ControlRefusal>,
}

impl Senders {
    pub fn new(channel: Arc<dyn ControlChannel>) -> Senders {
        Senders { channel, queues: HashMap::new(), answers: mpsc::channel(64) }
    }

    /// Drops the queues of brokers that are gone or have registered anew: what they hold is out of date.
    pub fn keep<'a>(&mut self, brokers: impl Iterator<Item = &'a BrokerRegistration>) {
        let live: HashMap<BrokerId, BrokerEpoch> = brokers.map(|broker| (broker.id, broker.epoch)).collect();
        self.queues.retain(|id, queue| live.get(id) == Some(&queue.epoch));
        for (id, epoch) in live {
            let new = Queue { epoch, waiting: VecDeque::new(), is_busy: false, alive: Arc::new(()) };
            self.queues.entry(id).or_insert(new);
        }
    }

    /// Does nothing for a broker that is not kept.
    pub fn send(&mut self, to: BrokerId, request: ControlRequest) {
        if let Some(queue) = self.queues.get_mut(&to) {
            queue.waiting.push_back(request);
            self.pump(to);
        }
    }

    /// The next answer; for ever where nothing is on its way.
    pub async fn next_answer(&mut self) -> Answer {
        match self.answers.1.recv().await {
            Some(answer) => {
                if let Some(queue) = self.queues.get_mut(&answer.from)
                    && queue.epoch == answer.broker_epoch
                {
                    queue.is_busy = false;
                    self.pump(answer.from);
                }
                answer
            }
            None => std::future::pending().await,
        }
    }

    fn pump(&mut self, to: BrokerId) {
        let Some(queue) = self.queues.get_mut(&to).filter(|queue| !queue.is_busy) else { return };
        let Some(request) = queue.waiting.pop_front() else { return };
        queue.is_busy = true;
        let (channel, answers) = (Arc::clone(&self.channel), self.answers.0.clone());
        let (broker_epoch, alive) = (queue.epoch, Arc::downgrade(&queue.alive));
        let is_answer_wanted = !only_stops(&request);
        // A task of its own: a broker that is half-way through a request must finish it even when this
        // controller steps down.
        task::spawn("control request", async move {
            let outcome = deliver(&*channel, to, request, &alive).await;
            if let Some(mut outcome) = outcome {
                if !is_answer_wanted && let Ok(ControlResponse::StopReplica(outcomes)) = &mut outcome {
                    outcomes.clear();
                }
                let _ = answers.send(Answer { from: to, broker_epoch, outcome }).await;
            }
        });
    }
}

/// Stops replicas and deletes none: what came of it would be taken for a deletion.
fn only_stops(request: &ControlRequest) -> bool {
    match request {
        ControlRequest::StopReplica(request) => request.partitions.iter().all(|stop| !stop.delete),
        ControlRequest::LeaderAndIsr(_) | ControlRequest::UpdateMetadata(_) => false,
    }
}

/// `None` when nobody waits for the answer any more.
async fn deliver(
    channel: &dyn ControlChannel,
    to: BrokerId,
    mut request: ControlRequest,
    alive: &Weak<()>,
) -> Option<Result<ControlResponse, ControlRefusal>> {
    loop {
        match channel.send(to, request).await {
            Ok(response) => return Some(Ok(response)),
            Err(ControlError::Refused { refusal }) => return Some(Err(refusal)),
            Err(ControlError::Unreachable { request: returned }) => request = *returned,
        }
        debug!(broker_id = to.0, "the broker did not answer the controller, trying again");
        sleep(RETRY_PAUSE).await;
        if alive.strong_count() == 0 {
            return None;
        }
    }
}
