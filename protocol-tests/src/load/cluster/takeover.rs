use std::time::{Duration, Instant};

use wire::CreateTopicsRequest;
use wire::create_topics_request::CreatableTopic;

use super::{Ensemble, Members};
use crate::load::LoadError;
use crate::load::requests::{CREATE_TOPICS_VERSION, Patience, REQUEST_TIMEOUT_MS};

/// How a cluster got another controller, counted from the moment that it had none.
#[derive(Clone, Copy, Debug)]
pub struct TakenOver {
    /// `/controller` names a broker again.
    pub elected: Duration,
    /// That controller has had a topic created: it has read the cluster's state and told the brokers.
    pub has_created: Duration,
}

const TOPIC_ALREADY_EXISTS: i16 = 36;

/// Takes the controller its office and waits for the next one, which may be the same broker. `topic` is a name that is
/// free.
pub async fn change_controller(
    members: &mut Members,
    ensemble: &mut Ensemble,
    topic: &str,
) -> Result<TakenOver, LoadError> {
    ensemble.delete("/controller").await?;
    let began = Instant::now();
    let controller = await_controller(ensemble).await?;
    let elected = began.elapsed();
    let topic = CreatableTopic {
        name: topic.into(),
        num_partitions: 1,
        replication_factor: 1,
        ..CreatableTopic::default()
    };
    let request =
        CreateTopicsRequest { topics: vec![topic], timeout_ms: REQUEST_TIMEOUT_MS, ..Default::default() };
    let patience = Patience::to_see("a topic that a new controller creates");
    loop {
        let response = members.call(controller, CREATE_TOPICS_VERSION, &request).await?;
        // An attempt that was answered too late may have been carried out.
        if response.topics.iter().all(|topic| [0, TOPIC_ALREADY_EXISTS].contains(&topic.error_code)) {
            return Ok(TakenOver { elected, has_created: began.elapsed() });
        }
        patience.pause().await?;
    }
}

/// Waits until the ensemble names a controller.
pub(super) async fn await_controller(ensemble: &mut Ensemble) -> Result<i32, LoadError> {
    let patience = Patience::to_see("a controller");
    loop {
        if let Some(controller) = ensemble.controller().await? {
            return Ok(controller);
        }
        patience.short_pause().await?;
    }
}
