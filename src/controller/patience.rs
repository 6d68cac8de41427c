//! Calls of the store that wait out lost connections.

use std::time::Duration;

use tokio::time::sleep;

use crate::coordination::{BoxFuture, NodeData, Store, StoreError, Watcher};

/// Long enough not to press a store that is coming back, short enough to be unnoticed.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The connection was lost; the session may go on. A write may have happened.
pub(super) fn is_unknown(error: &StoreError) -> bool {
    matches!(error, StoreError::OutcomeUnknown { .. })
}

/// Makes a call again until it is answered. Only for calls that may happen twice: reads, and writes whose
/// second attempt tells that the first one succeeded.
pub(super) async fn until_answered<'a, T>(
    call: impl Fn() -> BoxFuture<'a, Result<T, StoreError>>,
) -> Result<T, StoreError> {
    loop {
        match call().await {
            Err(error) if is_unknown(&error) => sleep(RETRY_PAUSE).await,
            answer => return answer,
        }
    }
}

/// Makes a call for each path at once and gives the answers in order; `None` = no such node.
async fn each<'a, T>(
    paths: &'a [String],
    call: impl Fn(&'a str) -> BoxFuture<'a, Result<T, StoreError>>,
) -> Result<Vec<Option<T>>, StoreError> {
    let calls: Vec<_> = paths.iter().map(|path| call(path)).collect();
    let mut answers = Vec::with_capacity(paths.len());
    // Answers come in the order of the calls: whoever waits for the last is woken once, not thousands of times.
    for (path, answer) in paths.iter().zip(calls).rev() {
        let answer = match answer.await {
            Err(error) if is_unknown(&error) => until_answered(|| call(path)).await,
            answer => answer,
        };
        answers.push(found(answer)?);
    }
    answers.reverse();
    Ok(answers)
}

pub(super) fn found<T>(answer: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match answer {
        Err(StoreError::NoNode { .. }) => Ok(None),
        answer => answer.map(Some),
    }
}

pub(super) async fn read(store: &dyn Store, path: &str) -> Result<Option<NodeData>, StoreError> {
    found(until_answered(|| store.read(path)).await)
}

pub(super) async fn read_each(
    store: &dyn Store,
    paths: &[String],
) -> Result<Vec<Option<NodeData>>, StoreError> {
    each(paths, |path| store.read(path)).await
}

pub(super) async fn read_and_watch_each(
    store: &dyn Store,
    paths: &[String],
) -> Result<Vec<Option<(NodeData, Watcher)>>, StoreError> {
    each(paths, |path| store.read_and_watch(path)).await
}

/// Empty where there is no such node.
pub(super) async fn children(store: &dyn Store, path: &str) -> Result<Vec<String>, StoreError> {
    Ok(found(until_answered(|| store.children(path)).await)?.unwrap_or_default())
}

pub(super) async fn children_of_each(
    store: &dyn Store,
    paths: &[String],
) -> Result<Vec<Option<Vec<String>>>, StoreError> {
    each(paths, |path| store.children(path)).await
}

pub(super) async fn exists_each(store: &dyn Store, paths: &[String]) -> Result<Vec<bool>, StoreError> {
    let stats = each(paths, |path| store.exists(path)).await?;
    Ok(stats.into_iter().map(|stat| stat.flatten().is_some()).collect())
}
