use std::collections::BTreeSet;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, info, warn};

use super::candidacy::{self, Outcome, Term};
use super::core::{Core, Counts, Effects, ElectionKind, ElectionResult, Event, Settings};
use super::fenced::{Deposed, FencedWriter};
use super::loader::Loader;
use super::patience::{self, until_answered};
use super::senders::{Answer, ControlChannel, Senders};
use super::watches::{Fired, Watched, Watches};
use crate::coordination::{Create, CreateMode, Store, StoreError, znodes};
use crate::metadata::control::ControlRefusal;
use crate::model::{BrokerId, ControllerEpoch, TopicName, TopicPartition};
use crate::runtime::{Clock, Random};

/// This broker's part in controlling the cluster: it stands for election and, while elected, runs a [`Core`].
pub struct Controller {
    options: ControllerOptions,
    commands: mpsc::Receiver<Command>,
    status: watch::Sender<ControllerStatus>,
}

#[derive(Clone, Debug)]
pub struct ControllerOptions {
    pub settings: Settings,
    /// `inter.broker.protocol.version` is 2.8 or later: topics get ids.
    pub uses_topic_ids: bool,
    pub clock: Clock,
    pub random: Random,
}

/// Who controls the cluster, as far as this broker has heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ControllerStatus {
    /// `None` while nobody is elected.
    pub controller_id: Option<BrokerId>,
    /// `Some` while this broker is the active controller.
    pub active_epoch: Option<ControllerEpoch>,
}

/// Talks to the [`Controller`] of this broker. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ControllerHandle {
    commands: mpsc::Sender<Command>,
    status: watch::Receiver<ControllerStatus>,
}

/// This broker is not the active controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotController;

/// Why a controller's run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControllerEnd {
    /// It was told to stop.
    Stopped,
    /// Open a new session, register the broker and run again.
    SessionExpired,
    /// The store can no longer be used.
    StoreFailed(StoreError),
}

#[derive(Debug)]
enum Command {
    Elect {
        kind: ElectionKind,
        partitions: Option<Vec<TopicPartition>>,
        reply: oneshot::Sender<Vec<ElectionResult>>,
    },
    UncleanElectionEnabled(TopicName),
    UncleanElectionByDefault(bool),
    Count(oneshot::Sender<Counts>),
}

/// Requests of handlers that wait for the controller; more than a few never do, as each waits for its reply.
const COMMANDS_MAX: usize = 128;

impl Controller {
    pub fn new(options: ControllerOptions) -> (Controller, ControllerHandle) {
        let (sender, commands) = mpsc::channel(COMMANDS_MAX);
        let (status, receiver) = watch::channel(ControllerStatus::default());
        let controller = Controller { options, commands, status };
        (controller, ControllerHandle { commands: sender, status: receiver })
    }

    /// Works until `stop` resolves or the session of `store` ends. Stands for election as long as nobody is
    /// elected; an elected controller that finds itself fenced steps down and watches its successor.
    pub async fn run(
        &mut self,
        store: Arc<dyn Store>,
        channel: Arc<dyn ControlChannel>,
        stop: impl Future<Output = ()>,
    ) -> ControllerEnd {
        tokio::pin!(stop);
        let ended = tokio::select! {
            error = self.stand_and_reign(store, channel) => error,
            () = &mut stop => {
                self.status.send_replace(ControllerStatus::default());
                return ControllerEnd::Stopped;
            }
        };
        self.status.send_replace(ControllerStatus::default());
        match ended {
            StoreError::SessionExpired => ControllerEnd::SessionExpired,
            error => ControllerEnd::StoreFailed(error),
        }
    }

    async fn stand_and_reign(
        &mut self,
        store: Arc<dyn Store>,
        channel: Arc<dyn ControlChannel>,
    ) -> StoreError {
        loop {
            let outcome = match self.stand(&*store).await {
                Ok(outcome) => outcome,
                Err(error) => return error,
            };
            let Some(term) = outcome else { continue };
            match self.reign(&store, Arc::clone(&channel), term).await {
                Deposed::Fenced => info!(epoch = term.epoch.0, "no longer the controller"),
                Deposed::Store { source } => return source,
            }
        }
    }

    /// `None` after another broker was controller and is gone.
    async fn stand(&mut self, store: &dyn Store) -> Result<Option<Term>, StoreError> {
        let broker_id = self.options.settings.broker_id;
        // Watched before it is read, so that a change in between is not missed.
        let (_, watcher) = until_answered(|| store.exists_and_watch(znodes::CONTROLLER)).await?;
        let lost_to = match candidacy::stand(store, broker_id, self.options.clock.now()).await? {
            Outcome::Won(term) => return Ok(Some(term)),
            Outcome::Undecided => return Ok(None),
            Outcome::Lost { controller } => controller,
        };
        info!(broker_id = lost_to.0, "another broker is the controller");
        self.status.send_replace(ControllerStatus { controller_id: Some(lost_to), active_epoch: None });
        let mut watches = Watches::default();
        watches.add(Watched::Controller, watcher);
        loop {
            tokio::select! {
                fired = watches.next() => return match fired {
                    Fired::Changed(_) | Fired::Deleted(_) => Ok(None),
                    Fired::SessionExpired => Err(StoreError::SessionExpired),
                },
                Some(command) = self.commands.recv() => self.decline(command),
            }
        }
    }

    async fn reign(
        &mut self,
        store: &Arc<dyn Store>,
        channel: Arc<dyn ControlChannel>,
        term: Term,
    ) -> Deposed {
        info!(epoch = term.epoch.0, "elected controller");
        let mut reign = Reign {
            options: &self.options,
            status: &self.status,
            core: Core::new(self.options.settings),
            writer: FencedWriter::new(Arc::clone(store), term),
            store: &**store,
            watches: Watches::default(),
            watched_brokers: BTreeSet::new(),
            senders: Senders::new(channel),
            elections: Vec::new(),
            next_token: 0,
        };
        let Err(deposed) = reign.run(term, &mut self.commands).await;
        self.status.send_replace(ControllerStatus::default());
        deposed
    }

    fn decline(&mut self, command: Command) {
        match command {
            // The handler sees its reply dropped.
            Command::Elect { .. } | Command::Count(_) | Command::UncleanElectionEnabled(_) => {}
            Command::UncleanElectionByDefault(is_enabled) => {
                self.options.settings.unclean_election_by_default = is_enabled;
            }
        }
    }
}

impl ControllerHandle {
    pub fn status(&self) -> ControllerStatus {
        *self.status.borrow()
    }

    /// This broker is the controller, and has begun to act as such.
    pub fn is_active(&self) -> bool {
        self.status().active_epoch.is_some()
    }

    /// Resolves when the status changes.
    pub fn subscribe(&self) -> watch::Receiver<ControllerStatus> {
        self.status.clone()
    }

    /// Elects leaders; `None` = for all partitions that need it. Resolves when the elections are stored, which
    /// is before brokers know.
    pub async fn elect_leaders(
        &self,
        kind: ElectionKind,
        partitions: Option<Vec<TopicPartition>>,
    ) -> Result<Vec<ElectionResult>, NotController> {
        let (reply, result) = oneshot::channel();
        self.command(Command::Elect { kind, partitions, reply }).await?;
        result.await.map_err(|_| NotController)
    }

    /// The topic's `unclean.leader.election.enable` became true.
    pub async fn unclean_election_enabled(&self, topic: TopicName) {
        // A broker that is not the controller has nothing to do about it.
        let _ = self.command(Command::UncleanElectionEnabled(topic)).await;
    }

    /// This broker's `unclean.leader.election.enable` was set.
    pub async fn set_unclean_election_by_default(&self, is_enabled: bool) {
        let _ = self.command(Command::UncleanElectionByDefault(is_enabled)).await;
    }

    pub async fn counts(&self) -> Result<Counts, NotController> {
        let (reply, result) = oneshot::channel();
        self.command(Command::Count(reply)).await?;
        result.await.map_err(|_| NotController)
    }

    async fn command(&self, command: Command) -> Result<(), NotController> {
        self.commands.send(command).await.map_err(|_| NotController)
    }
}

/// One term of an elected controller.
struct Reign<'a> {
    options: &'a ControllerOptions,
    status: &'a watch::Sender<ControllerStatus>,
    core: Core,
    writer: FencedWriter,
    store: &'a dyn Store,
    watches: Watches,
    watched_brokers: BTreeSet<BrokerId>,
    senders: Senders,
    elections: Vec<(u64, oneshot::Sender<Vec<ElectionResult>>)>,
    next_token: u64,
}

impl Reign<'_> {
    /// Takes over, then reacts until it is deposed.
    async fn run(
        &mut self,
        term: Term,
        commands: &mut mpsc::Receiver<Command>,
    ) -> Result<Infallible, Deposed> {
        self.set_up_features().await?;
        self.forget_notifications().await?;
        if !self.loader().is_still_controller().await? {
            return Err(Deposed::Fenced);
        }
        let (mut loader, writer) = self.loader_and_writer();
        let snapshot = loader.load(writer, term.epoch).await?;
        info!(
            epoch = term.epoch.0,
            brokers = snapshot.brokers.len(),
            topics = snapshot.topics.len(),
            "read the cluster's state"
        );
        self.handle(Event::Elected(snapshot)).await?;
        self.status.send_replace(ControllerStatus {
            controller_id: Some(self.options.settings.broker_id),
            active_epoch: Some(term.epoch),
        });
        loop {
            tokio::select! {
                fired = self.watches.next() => match fired {
                    // The watch of the parent tells that the topic is gone, and watches its successor.
                    Fired::Deleted(Watched::Topic(_)) => {}
                    Fired::Changed(watched) | Fired::Deleted(watched) => self.changed(watched).await?,
                    Fired::SessionExpired => return Err(StoreError::SessionExpired.into()),
                },
                answer = self.senders.next_answer() => self.answered(answer).await?,
                Some(command) = commands.recv() => self.command(command).await?,
            }
        }
    }

    async fn changed(&mut self, watched: Watched) -> Result<(), Deposed> {
        debug!(?watched, "the store changed");
        match watched {
            Watched::Controller => {
                if !self.loader().is_still_controller().await? {
                    return Err(Deposed::Fenced);
                }
                Ok(())
            }
            Watched::Broker(id) => {
                self.watched_brokers.remove(&id);
                let brokers = self.loader().brokers_again().await?;
                self.handle(Event::BrokersChanged(brokers)).await
            }
            Watched::Brokers => {
                let brokers = self.loader().brokers().await?;
                self.handle(Event::BrokersChanged(brokers)).await
            }
            Watched::Topics => self.topics_changed().await,
            Watched::Topic(name) => {
                for topic in self.loader().topics(vec![name]).await? {
                    self.handle(Event::TopicWritten(topic)).await?;
                }
                Ok(())
            }
            Watched::DeletedTopics => {
                let topics = self.loader().deleted_topics().await?;
                self.handle(Event::DeletionRequested(topics)).await
            }
            Watched::LogDirEvents => {
                let (brokers, notifications) = self.loader().log_dir_events().await?;
                self.handle(Event::LogDirsFailed(brokers)).await?;
                self.writer.delete_each(notifications).await
            }
        }
    }

    async fn topics_changed(&mut self) -> Result<(), Deposed> {
        let names: BTreeSet<TopicName> = self.loader().topic_names().await?.into_iter().collect();
        let known = self.core.cluster();
        let vanished: Vec<TopicName> =
            known.topics().map(|(name, _)| name).filter(|name| !names.contains(*name)).cloned().collect();
        let new: Vec<TopicName> = names.into_iter().filter(|name| known.topic(name).is_none()).collect();
        if !vanished.is_empty() {
            self.handle(Event::TopicsVanished(vanished)).await?;
        }
        if new.is_empty() {
            return Ok(());
        }
        let (mut loader, writer) = self.loader_and_writer();
        let topics = loader.new_topics(new, writer).await?;
        self.handle(Event::TopicsCreated(topics)).await
    }

    async fn answered(&mut self, answer: Answer) -> Result<(), Deposed> {
        let Answer { from, broker_epoch, outcome } = answer;
        match outcome {
            Ok(response) => self.handle(Event::Responded { from, broker_epoch, response }).await,
            Err(ControlRefusal::StaleBrokerEpoch) => {
                // The broker has registered anew, which its watch will tell.
                debug!(broker_id = from.0, "the broker is in a later life");
                Ok(())
            }
            Err(ControlRefusal::StaleControllerEpoch) => {
                warn!(broker_id = from.0, "the broker has heard of a later controller");
                Ok(())
            }
        }
    }

    async fn command(&mut self, command: Command) -> Result<(), Deposed> {
        match command {
            Command::Elect { kind, partitions, reply } => {
                let token = self.next_token;
                self.next_token += 1;
                self.elections.push((token, reply));
                self.handle(Event::ElectionRequested { token, kind, partitions }).await
            }
            Command::UncleanElectionEnabled(topic) => self.handle(Event::UncleanElectionEnabled(topic)).await,
            Command::UncleanElectionByDefault(is_enabled) => {
                self.handle(Event::UncleanElectionByDefault(is_enabled)).await
            }
            Command::Count(reply) => {
                let _ = reply.send(self.core.counts());
                Ok(())
            }
        }
    }

    /// Lets the core decide and does what it says, round by round.
    async fn handle(&mut self, event: Event) -> Result<(), Deposed> {
        let mut effects = self.core.step(event);
        loop {
            let Effects { calls, requests, elections } = effects;
            self.senders.keep(self.core.cluster().brokers());
            for (broker, request) in requests {
                self.senders.send(broker, request);
            }
            for (token, results) in elections {
                if let Some(at) = self.elections.iter().position(|(known, _)| *known == token) {
                    let _ = self.elections.swap_remove(at).1.send(results);
                }
            }
            if calls.is_empty() {
                return Ok(());
            }
            let replies = self.writer.run(&calls).await?;
            effects = self.core.replied(replies);
        }
    }

    /// A cluster of ZooKeeper-mode brokers has no features: the node says that there could be some.
    async fn set_up_features(&self) -> Result<(), Deposed> {
        let none = znodes::Feature { status: znodes::FeatureStatus::Enabled, features: Default::default() };
        let features = Create {
            path: znodes::FEATURE.to_owned(),
            data: none.encode(2).ok(),
            mode: CreateMode::Persistent,
        };
        match until_answered(|| self.store.create(features.clone())).await {
            Ok(_) | Err(StoreError::NodeExists { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// What an earlier controller was told stands in the tree, and what this one sends first makes brokers say
    /// which log directories failed.
    async fn forget_notifications(&mut self) -> Result<(), Deposed> {
        let (_, mut notifications) = self.loader().log_dir_events().await?;
        let isr_changes = patience::children(self.store, znodes::ISR_CHANGES).await?;
        notifications.extend(isr_changes.iter().map(|name| format!("{}/{name}", znodes::ISR_CHANGES)));
        self.writer.delete_each(notifications).await
    }

    fn loader(&mut self) -> Loader<'_> {
        self.loader_and_writer().0
    }

    fn loader_and_writer(&mut self) -> (Loader<'_>, &FencedWriter) {
        let loader = Loader {
            store: self.store,
            watches: &mut self.watches,
            watched_brokers: &mut self.watched_brokers,
            topic_ids: self.options.uses_topic_ids.then_some(&self.options.random),
        };
        (loader, &self.writer)
    }
}
