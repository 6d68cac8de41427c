use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info};

use super::candidacy::{self, Outcome, Term};
use super::core::{
    AlterPartition, AlteredPartitions, BrokerError, Core, Counts, Effects, ElectionKind, ElectionResult,
    Event, Reassignment, ReassignmentError, Reply, Settings,
};
use super::fenced::{Deposed, FencedWriter};
use super::loader::{Loaded, Loader, Request};
use super::nodes;
use super::patience::{self, until_answered};
use super::senders::{Answer, ControlChannel, Senders};
use super::watches::{Fired, Watched, Watches};
use crate::coordination::znodes::{self, FeatureStatus, ReplicaAssignment};
use crate::coordination::{Create, CreateMode, Store, StoreError};
use crate::metadata::control::ControlRefusal;
use crate::model::{BrokerEpoch, BrokerId, ControllerEpoch, TopicName, TopicPartition};
use crate::observe::{ControllerEvent, Metrics};
use crate::runtime::{Clock, Random};

/// This broker's part in controlling the cluster: it stands for election and, while elected, runs a [`Core`].
pub struct Controller {
    options: ControllerOptions,
    commands: mpsc::Receiver<Waiting>,
    status: watch::Sender<ControllerStatus>,
    activity: Arc<Activity>,
}

#[derive(Clone)]
pub struct ControllerOptions {
    pub settings: Settings,
    /// `inter.broker.protocol.version` is 2.8 or later: topics get ids.
    pub uses_topic_ids: bool,
    pub feature_form: FeatureForm,
    /// How often leaders are balanced; `None` = never on the controller's own account.
    pub balance_interval: Option<Duration>,
    pub clock: Clock,
    pub random: Random,
    pub metrics: Arc<Metrics>,
}

/// How `/feature` is written; follows from `inter.broker.protocol.version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureForm {
    pub status: FeatureStatus,
    /// 1 or 2.
    pub version: i32,
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
    commands: mpsc::Sender<Waiting>,
    status: watch::Receiver<ControllerStatus>,
    activity: Arc<Activity>,
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

/// What the controller does at this moment, for whoever looks.
#[derive(Debug, Default)]
struct Activity(Mutex<&'static str>);

impl Activity {
    fn set(&self, state: &'static str) {
        *self.0.lock() = state;
    }
}

/// A command, and since when it waits.
#[derive(Debug)]
struct Waiting {
    since: Instant,
    command: Command,
}

#[derive(Debug)]
enum Command {
    Ask {
        question: Question,
        reply: oneshot::Sender<Reply>,
    },
    UncleanElectionEnabled(TopicName),
    UncleanElectionByDefault(bool),
    Count(oneshot::Sender<Counts>),
    ListReassignments {
        partitions: Option<Vec<TopicPartition>>,
        reply: oneshot::Sender<Vec<(TopicPartition, ReplicaAssignment)>>,
    },
    CheckBroker {
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        reply: oneshot::Sender<Result<(), BrokerError>>,
    },
}

/// What becomes an event of the core, and is answered by it.
#[derive(Debug)]
enum Question {
    Elect { kind: ElectionKind, partitions: Option<Vec<TopicPartition>> },
    AlterPartition(AlterPartition),
    ShutDown { broker: BrokerId, broker_epoch: BrokerEpoch },
    Reassign(Vec<Reassignment>),
}

impl Question {
    fn into_event(self, token: u64) -> Event {
        match self {
            Question::Elect { kind, partitions } => Event::ElectionRequested { token, kind, partitions },
            Question::AlterPartition(request) => Event::AlterPartition { token, request },
            Question::ShutDown { broker, broker_epoch } => {
                Event::ControlledShutdown { token, broker, broker_epoch }
            }
            Question::Reassign(reassignments) => Event::ReassignmentRequested { token, reassignments },
        }
    }
}

/// Requests of handlers that wait for the controller; more than a few never do, as each waits for its reply.
const COMMANDS_MAX: usize = 128;

/// A new controller lets brokers settle before it moves leaders, as Kafka's does.
const FIRST_BALANCE: Duration = Duration::from_secs(5);

impl Controller {
    pub fn new(options: ControllerOptions) -> (Controller, ControllerHandle) {
        let (sender, commands) = mpsc::channel(COMMANDS_MAX);
        let (status, receiver) = watch::channel(ControllerStatus::default());
        let activity = Arc::new(Activity::default());
        let controller = Controller { options, commands, status, activity: Arc::clone(&activity) };
        (controller, ControllerHandle { commands: sender, status: receiver, activity })
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
                Some(waiting) = self.commands.recv() => self.decline(waiting.command),
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
            activity: &self.activity,
            core: Core::new(self.options.settings),
            writer: FencedWriter::new(Arc::clone(store), term),
            store: &**store,
            watches: Watches::default(),
            watched_brokers: BTreeSet::new(),
            senders: Senders::new(channel),
            waiting: HashMap::new(),
            next_token: 0,
        };
        self.activity.set("taking_over");
        let Err(deposed) = reign.run(term, &mut self.commands).await;
        self.activity.set("");
        self.status.send_replace(ControllerStatus::default());
        deposed
    }

    fn decline(&mut self, command: Command) {
        match command {
            // The handler sees its reply dropped.
            Command::Ask { .. }
            | Command::Count(_)
            | Command::ListReassignments { .. }
            | Command::CheckBroker { .. }
            | Command::UncleanElectionEnabled(_) => {}
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
        match self.ask(Question::Elect { kind, partitions }).await? {
            Reply::Elections(results) => Ok(results),
            other => unexpected(&other),
        }
    }

    /// Stores the ISRs that a leader wants, where they are its to change.
    pub async fn alter_partition(
        &self,
        request: AlterPartition,
    ) -> Result<Result<AlteredPartitions, BrokerError>, NotController> {
        match self.ask(Question::AlterPartition(request)).await? {
            Reply::Altered(altered) => Ok(altered),
            other => unexpected(&other),
        }
    }

    /// Moves the leaderships of a broker that is about to stop; gives those that it keeps. `broker_epoch` `-1` =
    /// the broker is too old to tell.
    pub async fn shut_down(
        &self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
    ) -> Result<Result<Vec<TopicPartition>, BrokerError>, NotController> {
        match self.ask(Question::ShutDown { broker, broker_epoch }).await? {
            Reply::ShutDown(led) => Ok(led),
            other => unexpected(&other),
        }
    }

    /// Moves partitions to other replicas, or stops moving them. Resolves when the reassignments are stored and
    /// have begun.
    pub async fn reassign(
        &self,
        reassignments: Vec<Reassignment>,
    ) -> Result<Vec<(TopicPartition, Result<(), ReassignmentError>)>, NotController> {
        match self.ask(Question::Reassign(reassignments)).await? {
            Reply::Reassignments(results) => Ok(results),
            other => unexpected(&other),
        }
    }

    /// The partitions that are on their way, of those asked for; `None` = of all.
    pub async fn reassignments(
        &self,
        partitions: Option<Vec<TopicPartition>>,
    ) -> Result<Vec<(TopicPartition, ReplicaAssignment)>, NotController> {
        let (reply, result) = oneshot::channel();
        self.command(Command::ListReassignments { partitions, reply }).await?;
        result.await.map_err(|_| NotController)
    }

    /// Whether a broker is registered under this epoch.
    pub async fn check_broker(
        &self,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
    ) -> Result<Result<(), BrokerError>, NotController> {
        let (reply, result) = oneshot::channel();
        self.command(Command::CheckBroker { broker, broker_epoch, reply }).await?;
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

    async fn ask(&self, question: Question) -> Result<Reply, NotController> {
        let (reply, result) = oneshot::channel();
        self.command(Command::Ask { question, reply }).await?;
        result.await.map_err(|_| NotController)
    }

    async fn command(&self, command: Command) -> Result<(), NotController> {
        let waiting = Waiting { since: Instant::now(), command };
        self.commands.send(waiting).await.map_err(|_| NotController)
    }

    /// Questions that wait.
    pub fn queued(&self) -> usize {
        self.commands.max_capacity() - self.commands.capacity()
    }

    /// `standby`, `taking_over`, `idle`, or the event that an active controller works at.
    pub fn activity(&self) -> &'static str {
        match *self.activity.0.lock() {
            "" => "standby",
            activity => activity,
        }
    }
}

fn unexpected(reply: &Reply) -> ! {
    panic!("the core answers a question in kind, not with {reply:?}")
}

/// One term of an elected controller.
struct Reign<'a> {
    options: &'a ControllerOptions,
    status: &'a watch::Sender<ControllerStatus>,
    activity: &'a Activity,
    core: Core,
    writer: FencedWriter,
    store: &'a dyn Store,
    watches: Watches,
    watched_brokers: BTreeSet<BrokerId>,
    senders: Senders,
    /// Who waits for an answer, by token.
    waiting: HashMap<u64, oneshot::Sender<Reply>>,
    next_token: u64,
}

impl Reign<'_> {
    /// Takes over, then reacts until it is deposed.
    async fn run(
        &mut self,
        term: Term,
        commands: &mut mpsc::Receiver<Waiting>,
    ) -> Result<Infallible, Deposed> {
        self.set_up_features().await?;
        self.forget_notifications().await?;
        if !self.loader().is_still_controller().await? {
            return Err(Deposed::Fenced);
        }
        let (mut loader, writer) = self.loader_and_writer();
        let Loaded { snapshot, returned } = loader.load(writer, term.epoch).await?;
        info!(
            epoch = term.epoch.0,
            brokers = snapshot.brokers.len(),
            topics = snapshot.topics.len(),
            "read the cluster's state"
        );
        self.handle(Event::Elected(snapshot)).await?;
        if let Some(brokers) = returned {
            self.handle(Event::BrokersChanged(brokers)).await?;
        }
        self.changed(Watched::Reassignments).await?;
        self.changed(Watched::PreferredElection).await?;
        self.status.send_replace(ControllerStatus {
            controller_id: Some(self.options.settings.broker_id),
            active_epoch: Some(term.epoch),
        });
        let mut next_balance = Instant::now() + FIRST_BALANCE;
        loop {
            tokio::select! {
                fired = self.watches.next() => match fired {
                    // The watch of the parent tells that the topic is gone, and watches its successor.
                    Fired::Deleted(Watched::Topic(_)) => {}
                    Fired::Changed(watched) | Fired::Deleted(watched) => self.changed(watched).await?,
                    Fired::SessionExpired => return Err(StoreError::SessionExpired.into()),
                },
                answer = self.senders.next_answer() => self.answered(answer).await?,
                Some(Waiting { since, command }) = commands.recv() => {
                    self.options.metrics.controller_queue_duration.observe(since.elapsed());
                    self.command(command).await?;
                }
                () = sleep_until(next_balance), if self.options.balance_interval.is_some() => {
                    self.handle(Event::LeadersUnbalanced).await?;
                    next_balance = Instant::now() + self.options.balance_interval.unwrap_or_default();
                }
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
            Watched::IsrChanges => {
                let (states, notifications) = self.loader().isr_changes().await?;
                self.handle(Event::StatesWritten(states)).await?;
                self.writer.delete_each(notifications).await
            }
            Watched::Reassignments => match self.loader().reassignments().await? {
                Request::Readable(written) => self.handle(Event::ReassignmentWritten(written.0)).await,
                Request::Absent => self.handle(Event::ReassignmentWritten(Vec::new())).await,
                Request::Unreadable(path) => self.writer.delete_each(vec![path]).await,
            },
            Watched::PreferredElection => match self.loader().preferred_election().await? {
                Request::Readable(written) => self.handle(Event::PreferredElectionWritten(written.0)).await,
                Request::Absent => Ok(()),
                Request::Unreadable(path) => self.writer.delete_each(vec![path]).await,
            },
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
                // The end of the session, or the word of the other, follows and ends this one.
                info!(broker_id = from.0, "the broker has heard of a later controller");
                Ok(())
            }
        }
    }

    async fn command(&mut self, command: Command) -> Result<(), Deposed> {
        match command {
            Command::Ask { question, reply } => {
                let token = self.next_token;
                self.next_token += 1;
                self.waiting.insert(token, reply);
                self.handle(question.into_event(token)).await
            }
            Command::ListReassignments { partitions, reply } => {
                let _ = reply.send(self.reassignments(partitions));
                Ok(())
            }
            Command::CheckBroker { broker, broker_epoch, reply } => {
                let _ = reply.send(self.core.check_broker(broker, broker_epoch));
                Ok(())
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

    fn reassignments(
        &self,
        partitions: Option<Vec<TopicPartition>>,
    ) -> Vec<(TopicPartition, ReplicaAssignment)> {
        let cluster = self.core.cluster();
        let partitions = partitions.unwrap_or_else(|| cluster.reassigning().cloned().collect());
        let assigned = partitions.into_iter().filter_map(|of| {
            let assignment = cluster.partition(&of)?.assignment.clone();
            assignment.is_reassigning().then_some((of, assignment))
        });
        assigned.collect()
    }

    /// As [`Reign::work_off`], and measures it.
    async fn handle(&mut self, event: Event) -> Result<(), Deposed> {
        let kind = kind_of(&event);
        let (began, before) = (Instant::now(), self.core.elections());
        self.activity.set(kind.name());
        self.work_off(event).await?;
        self.activity.set("idle");
        let (metrics, after) = (&self.options.metrics, self.core.elections());
        metrics.controller_event_duration.at(kind).observe(began.elapsed());
        if after != before {
            metrics.controller_election_duration.observe(began.elapsed());
            metrics.controller_elections.add(after.all - before.all);
            metrics.controller_unclean_elections.add(after.unclean - before.unclean);
        }
        Ok(())
    }

    /// Lets the core decide and does what it says, round by round.
    async fn work_off(&mut self, event: Event) -> Result<(), Deposed> {
        let mut effects = self.core.step(event);
        loop {
            let Effects { calls, requests, replies } = effects;
            self.senders.keep(self.core.cluster().brokers());
            for (broker, request) in requests {
                self.senders.send(broker, request);
            }
            for (token, reply) in replies {
                if let Some(waiting) = self.waiting.remove(&token) {
                    let _ = waiting.send(reply);
                }
            }
            if calls.is_empty() {
                return Ok(());
            }
            let replies = self.writer.run(&calls).await?;
            effects = self.core.replied(replies);
        }
    }

    /// A cluster of ZooKeeper-mode brokers has no features of its own making; those that are there stay, in the
    /// form that this controller writes.
    async fn set_up_features(&self) -> Result<(), Deposed> {
        let FeatureForm { status, version } = self.options.feature_form;
        loop {
            let node = patience::read(self.store, znodes::FEATURE).await?;
            let known = node
                .as_ref()
                .and_then(|node| nodes::readable(znodes::FEATURE, znodes::Feature::decode(node)));
            let is_enabled = |known: &znodes::Feature| known.status == FeatureStatus::Enabled;
            let features = known.filter(is_enabled).map(|known| known.features).unwrap_or_default();
            let features = if status == FeatureStatus::Enabled { features } else { Default::default() };
            let Ok(data) = (znodes::Feature { status, features }).encode(version) else { return Ok(()) };
            let written = match node {
                Some(node) if nodes::is_same_json(node.data.as_deref(), &data) => return Ok(()),
                Some(node) => {
                    self.store.set(znodes::FEATURE, Some(data), Some(node.stat.version)).await.map(|_| ())
                }
                None => {
                    let path = znodes::FEATURE.to_owned();
                    let create = Create { path, data: Some(data), mode: CreateMode::Persistent };
                    self.store.create(create).await.map(|_| ())
                }
            };
            match written {
                Ok(()) => return Ok(()),
                // Another controller does the same: see what it wrote.
                Err(
                    StoreError::NodeExists { .. } | StoreError::BadVersion { .. } | StoreError::NoNode { .. },
                ) => {}
                Err(error) if patience::is_unknown(&error) => sleep(patience::RETRY_PAUSE).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// What an earlier controller was told stands in the tree, and what this one sends first makes brokers say
    /// which log directories failed.
    async fn forget_notifications(&mut self) -> Result<(), Deposed> {
        let (_, mut notifications) = self.loader().log_dir_events().await?;
        notifications.extend(self.loader().isr_change_paths().await?);
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

fn kind_of(event: &Event) -> ControllerEvent {
    match event {
        Event::Elected(_) => ControllerEvent::Election,
        Event::BrokersChanged(_) => ControllerEvent::Brokers,
        Event::TopicsCreated(_) | Event::TopicsVanished(_) | Event::TopicWritten(_) => {
            ControllerEvent::Topics
        }
        Event::DeletionRequested(_) => ControllerEvent::Deletion,
        Event::LogDirsFailed(_) => ControllerEvent::LogDirs,
        Event::UncleanElectionEnabled(_) | Event::UncleanElectionByDefault(_) => {
            ControllerEvent::UncleanElection
        }
        Event::Responded { .. } => ControllerEvent::Response,
        Event::ElectionRequested { .. } | Event::PreferredElectionWritten(_) => {
            ControllerEvent::LeaderElection
        }
        Event::LeadersUnbalanced => ControllerEvent::LeaderBalance,
        Event::AlterPartition { .. } | Event::StatesWritten(_) => ControllerEvent::IsrChange,
        Event::ControlledShutdown { .. } => ControllerEvent::ControlledShutdown,
        Event::ReassignmentRequested { .. } | Event::ReassignmentWritten(_) => ControllerEvent::Reassignment,
    }
}
