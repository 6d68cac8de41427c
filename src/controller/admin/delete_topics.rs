use std::time::Duration;

use snafu::Snafu;
use tokio::time::{Instant, sleep, timeout};
use tracing::info;

use super::Admin;
use crate::controller::patience::{RETRY_PAUSE, is_unknown};
use crate::controller::service::NotController;
use crate::coordination::{
    BoxFuture, Create, CreateMode, Operation, OperationResult, Store, StoreError, znodes,
};
use crate::metadata::Image;
use crate::model::{TopicId, TopicName};

/// Topics that a client wants to be rid of.
#[derive(Clone, Debug, Default)]
pub struct DeleteTopics {
    pub topics: Vec<TopicSelector>,
    /// How long to wait until they are gone, in milliseconds. 0 and less: not at all.
    pub timeout_ms: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicSelector {
    Name(String),
    Id(TopicId),
}

/// The answer about one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeletedTopic {
    /// `None` when the client named an unknown id, or may not know whose it is.
    pub name: Option<String>,
    /// Zero when the client named a topic that has none or does not exist.
    pub id: TopicId,
    pub outcome: Result<(), DeleteTopicError>,
}

/// What the client may do.
pub struct DeletionPermissions<'a> {
    pub may_describe: &'a (dyn Fn(&str) -> bool + Sync),
    pub may_delete: &'a (dyn Fn(&str) -> bool + Sync),
}

#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
pub enum DeleteTopicError {
    /// TOPIC_DELETION_DISABLED, before v3 INVALID_REQUEST
    #[snafu(display("topic deletion is disabled"))]
    DeletionDisabled,
    /// UNKNOWN_TOPIC_ID
    #[snafu(display("no topic has this id"))]
    UnknownTopicId,
    /// UNKNOWN_TOPIC_OR_PARTITION
    #[snafu(display("the topic does not exist"))]
    UnknownTopic,
    /// TOPIC_AUTHORIZATION_FAILED
    #[snafu(display("not authorized"))]
    NotAuthorized,
    /// REQUEST_TIMED_OUT: it will be deleted.
    #[snafu(display("the topic is marked for deletion, but still there"))]
    TimedOut,
    /// UNKNOWN_SERVER_ERROR
    #[snafu(display("{source}"), context(false))]
    Store { source: StoreError },
}

/// The answer to a deletion waits no longer for nodes to be removed: other brokers may be slow to drop replicas.
const NODES_MAX: Duration = Duration::from_secs(5);

impl Admin {
    /// Marks topics for deletion and waits until this broker no longer shows them and they can be created again. One
    /// answer for each, in the order of the request.
    pub async fn delete_topics(
        &self,
        request: DeleteTopics,
        permissions: DeletionPermissions<'_>,
    ) -> Result<Vec<DeletedTopic>, NotController> {
        if !self.controller.is_active() {
            return Err(NotController);
        }
        let image = self.metadata.image();
        let resolved: Vec<DeletedTopic> =
            request.topics.into_iter().map(|topic| self.resolve(topic, &image, &permissions)).collect();
        let store = self.store();
        let marks: Vec<_> = resolved.iter().map(|answer| Mark::start(&*store, answer)).collect();
        let mut answers = Vec::new();
        for (mut answer, mark) in resolved.into_iter().zip(marks) {
            if let Some(mark) = mark {
                answer.outcome = mark.finish(&*store).await;
            }
            answers.push(answer);
        }
        let started = Instant::now();
        self.await_deletion(&mut answers, request.timeout_ms).await;
        let limit = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
        let left = limit.saturating_sub(started.elapsed()).min(NODES_MAX);
        // What is not gone by then goes later: the answer is the same.
        let _ = timeout(left, self.await_removed_nodes(&answers)).await;
        Ok(answers)
    }

    /// Clients are told that a topic is gone before its replicas and nodes are; until then its name is taken. Kafka
    /// answers then, and clients that create it again at once are refused.
    async fn await_removed_nodes(&self, answers: &[DeletedTopic]) {
        let store = self.store();
        for answer in answers.iter().filter(|answer| answer.outcome.is_ok()) {
            let Some(Ok(topic)) = answer.name.as_deref().map(TopicName::new) else { continue };
            let mark = znodes::delete_topic(&topic);
            while let Ok((Some(_), watcher)) = store.exists_and_watch(&mark).await {
                if watcher.await.is_err() {
                    break;
                }
            }
        }
    }

    fn resolve(
        &self,
        topic: TopicSelector,
        image: &Image,
        permissions: &DeletionPermissions<'_>,
    ) -> DeletedTopic {
        let (name, id, is_by_id) = match topic {
            TopicSelector::Name(name) => {
                let id = image.topic_id(&name);
                (Some(name), id, false)
            }
            TopicSelector::Id(id) => (image.topic_name(id).map(ToString::to_string), id, true),
        };
        if !self.options.topic_deletion_enabled {
            return DeletedTopic { name, id, outcome: Err(DeleteTopicError::DeletionDisabled) };
        }
        let Some(name) = name else {
            return DeletedTopic { name, id, outcome: Err(DeleteTopicError::UnknownTopicId) };
        };
        if is_by_id && !(permissions.may_describe)(&name) {
            return DeletedTopic { name: None, id, outcome: Err(DeleteTopicError::NotAuthorized) };
        }
        let outcome = if !(permissions.may_delete)(&name) {
            Err(DeleteTopicError::NotAuthorized)
        } else if image.topic(&name).is_none() {
            Err(DeleteTopicError::UnknownTopic)
        } else {
            Ok(())
        };
        DeletedTopic { name: Some(name), id, outcome }
    }

    async fn await_deletion(&self, answers: &mut [DeletedTopic], timeout_ms: i32) {
        let is_there = |image: &Image, answer: &DeletedTopic| {
            answer.outcome.is_ok() && answer.name.as_ref().is_some_and(|name| image.topic(name).is_some())
        };
        let waits = answers.iter().any(|answer| answer.outcome.is_ok());
        let image = if timeout_ms > 0 && waits {
            let is_gone = |image: &Image| !answers.iter().any(|answer| is_there(image, answer));
            Some(self.await_metadata(timeout_ms, is_gone).await)
        } else {
            None
        };
        for answer in answers.iter_mut().filter(|answer| answer.outcome.is_ok()) {
            // Without waiting the answer is always the same, whatever the broker knows by now.
            if image.as_ref().is_none_or(|image| is_there(image, answer)) {
                answer.outcome = Err(DeleteTopicError::TimedOut);
            }
        }
    }
}

/// The mark for a deletion, on its way.
struct Mark<'a> {
    topic: TopicName,
    multi: BoxFuture<'a, Result<Vec<OperationResult>, (usize, StoreError)>>,
}

impl<'a> Mark<'a> {
    /// `None` = the topic is not to be deleted.
    fn start(store: &'a dyn Store, answer: &DeletedTopic) -> Option<Mark<'a>> {
        answer.outcome.as_ref().ok()?;
        let topic = TopicName::new(answer.name.as_deref()?).ok()?;
        let multi = store.multi(Mark::operations(&topic));
        Some(Mark { topic, multi })
    }

    /// In one write with a look at the topic, so that no mark is left for a topic that is gone.
    fn operations(topic: &TopicName) -> Vec<Operation> {
        let mark = Create { path: znodes::delete_topic(topic), data: None, mode: CreateMode::Persistent };
        vec![Operation::Check { path: znodes::topic(topic), version: -1 }, Operation::Create(mark)]
    }

    async fn finish(self, store: &dyn Store) -> Result<(), DeleteTopicError> {
        let Mark { topic, multi } = self;
        let mut result = multi.await;
        loop {
            match result {
                Ok(_) => {
                    info!(%topic, "topic marked for deletion");
                    return Ok(());
                }
                // A mark that is there already is as good.
                Err((1, StoreError::NodeExists { .. })) => return Ok(()),
                Err((0, StoreError::NoNode { .. })) => return Err(DeleteTopicError::UnknownTopic),
                Err((_, error)) if is_unknown(&error) => sleep(RETRY_PAUSE).await,
                Err((_, error)) => return Err(error.into()),
            }
            result = store.multi(Mark::operations(&topic)).await;
        }
    }
}
