use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::coordination::{WatchKind, Watcher};
use crate::model::{BrokerId, TopicName};

/// What a controller watches in the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Watched {
    Controller,
    Brokers,
    Broker(BrokerId),
    Topics,
    Topic(TopicName),
    DeletedTopics,
    LogDirEvents,
    IsrChanges,
    Reassignments,
    PreferredElection,
}

/// Thousands of one-shot watches, waited for at once.
#[derive(Default)]
pub(super) struct Watches(FuturesUnordered<Watch>);

/// A watch that fired.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fired {
    Changed(Watched),
    /// The node is gone, and the watch with it.
    Deleted(Watched),
    /// Nothing is watched any more.
    SessionExpired,
}

struct Watch {
    watched: Option<Watched>,
    watcher: Watcher,
}

impl Watches {
    pub fn add(&mut self, watched: Watched, watcher: Watcher) {
        self.0.push(Watch { watched: Some(watched), watcher });
    }

    /// The next watch that fires; it has to be set again by reading. For ever where there is none.
    pub async fn next(&mut self) -> Fired {
        match self.0.next().await {
            Some(fired) => fired,
            None => std::future::pending().await,
        }
    }
}

impl Future for Watch {
    type Output = Fired;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Fired> {
        let Poll::Ready(event) = Pin::new(&mut self.watcher).poll(context) else { return Poll::Pending };
        // The store has dropped the watch only when the session is over.
        let kind = event.map_or(WatchKind::SessionExpired, |event| event.kind);
        Poll::Ready(match (self.watched.take(), kind) {
            (None, _) | (_, WatchKind::SessionExpired) => Fired::SessionExpired,
            (Some(watched), WatchKind::Deleted) => Fired::Deleted(watched),
            (Some(watched), WatchKind::Created | WatchKind::DataChanged | WatchKind::ChildrenChanged) => {
                Fired::Changed(watched)
            }
        })
    }
}
