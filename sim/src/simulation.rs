//! One cluster's life, as a seed decides it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use barnabas::runtime::Random;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use wire::create_topics_request::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};

use crate::checks::{self, Checks};
use crate::client::{Churner, Committer, Isolation, Member, Mover, Producer, Reader, Transactor, Trimmer};
use crate::faults::Faults;
use crate::history::History;
use crate::plan::{self, Cleanup, Plan, REPLICATION_FACTOR, TOPIC};
use crate::switch::Switch;
use crate::trace::{SimTime, Trace};
use crate::world::{World, fork};
use crate::{history, logs};

/// How often brokers are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Everything works again after faults: a record is acknowledged within this time.
const PROGRESS_MAX: Duration = Duration::from_secs(60);
/// Followers hear of the last high watermark with their next fetch, and files that are to go are removed.
const SETTLE: Duration = Duration::from_secs(10);

/// What came of a seed.
pub struct Outcome {
    pub violations: Vec<String>,
    pub trace: Vec<String>,
    /// Equal in two runs only if they went the same way.
    pub digest: u64,
    pub acknowledged: usize,
    pub transactions: usize,
    pub committed_offsets: i64,
    pub simulated: Duration,
}

/// Runs a seed to its end. Within a current-thread runtime whose time is paused.
pub async fn run(seed: u64, is_shown: bool) -> Outcome {
    let time = SimTime::begin();
    let began = Instant::now();
    let trace = Trace::new(time.clone(), is_shown);
    let random = Random::from_seed(seed);
    let plan = Plan::of(&random);
    let history = History::new(trace.clone(), plan.is_unclean);
    trace.note(format_args!("seed {seed}: {plan:?}"));
    let settings = plan::broker_settings(&random);
    let world = World::new(plan.brokers, plan.log_dirs, settings, fork(&random), trace.clone(), time.clone());
    let world = Arc::new(world);
    let simulation = Simulation { world: Arc::clone(&world), history: history.clone(), random, plan };
    if let Err(reason) = simulation.run().await {
        history.violation(reason);
    }
    let partitions = history.partitions();
    let mut digest = DefaultHasher::new();
    (world.network.digest(), time.now_ms(), trace.lines()).hash(&mut digest);
    Outcome {
        violations: history.violations(),
        trace: trace.lines(),
        digest: digest.finish(),
        acknowledged: partitions.values().map(|partition| partition.stored.len()).sum(),
        transactions: history.transactions().len(),
        committed_offsets: history.committed_offsets(),
        simulated: began.elapsed(),
    }
}

/// Clients, and what ends them.
#[derive(Default)]
struct Work {
    writers: Vec<JoinHandle<()>>,
    writers_over: Switch,
    readers_over: Switch,
    moves_over: Switch,
}

struct Simulation {
    world: Arc<World>,
    history: History,
    random: Random,
    plan: Plan,
}

impl Simulation {
    async fn run(&self) -> Result<(), String> {
        let world = &self.world;
        if !world.all_run(Duration::from_secs(120)).await {
            return Err("the cluster does not start".to_owned());
        }
        self.create_topic().await?;
        let work = self.start_work();
        self.disturb().await?;
        if !self.history.violations().is_empty() {
            return Ok(());
        }
        work.moves_over.set();
        checks::until_whole(world).await?;
        world.trace.note("whole again");
        self.progress().await?;
        work.writers_over.set();
        for writer in work.writers {
            if tokio::time::timeout(PROGRESS_MAX, writer).await.is_err() {
                return Err("a client does not end".to_owned());
            }
        }
        checks::until_whole(world).await?;
        sleep(SETTLE).await;
        work.readers_over.set();
        logs::check(world, &self.history, &self.plan);
        checks::check_directories(world, &self.history);
        Ok(())
    }

    /// Starts all clients.
    fn start_work(&self) -> Work {
        let mut work = Work::default();
        self.start_producers(&mut work);
        self.start_readers(&work.readers_over);
        self.start_groups(&mut work);
        self.start_administrators(&mut work);
        work
    }

    fn start_producers(&self, work: &mut Work) {
        let world = &self.world;
        for number in 0..self.plan.producers {
            let name = format!("p{number}");
            let producer = Producer {
                client: world.client(&name),
                name,
                topic: TOPIC,
                partition: (number as i32) % self.plan.partitions,
                history: self.history.clone(),
                time: world.time.clone(),
                is_over: work.writers_over.clone(),
            };
            work.writers.push(tokio::spawn(producer.run()));
        }
        for number in 0..self.plan.transactors {
            let name = format!("{}{number}", history::TRANSACTOR);
            let transactor = Transactor::new(
                world.client(&name),
                name,
                self.plan.partitions,
                self.history.clone(),
                world.time.clone(),
                work.writers_over.clone(),
            );
            work.writers.push(tokio::spawn(transactor.run()));
        }
    }

    fn start_readers(&self, is_over: &Switch) {
        for partition in 0..self.plan.partitions {
            for isolation in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
                let name = format!("{isolation:?}-{partition}");
                let reader = Reader {
                    client: self.world.client(&name),
                    name,
                    topic: TOPIC,
                    partition,
                    isolation,
                    cleanup: self.plan.cleanup,
                    history: self.history.clone(),
                    is_over: is_over.clone(),
                };
                tokio::spawn(reader.run());
            }
        }
    }

    fn start_groups(&self, work: &mut Work) {
        let world = &self.world;
        if self.plan.has_committer {
            let committer = Committer {
                client: world.client("g"),
                group: "g".to_owned(),
                topic: TOPIC,
                history: self.history.clone(),
                world: Arc::clone(world),
                is_over: work.writers_over.clone(),
            };
            work.writers.push(tokio::spawn(committer.run()));
        }
        for number in 0..self.plan.group_members {
            let name = format!("m{number}");
            let member = Member {
                client: world.client(&name),
                group: "members",
                topic: TOPIC,
                partitions: self.plan.partitions,
                history: self.history.clone(),
                world: Arc::clone(world),
                is_over: work.writers_over.clone(),
            };
            work.writers.push(tokio::spawn(member.run()));
        }
    }

    fn start_administrators(&self, work: &mut Work) {
        let world = &self.world;
        if self.plan.has_moves {
            let mover = Mover {
                client: world.client("mover"),
                topics: vec![
                    (TOPIC, self.plan.partitions),
                    ("__consumer_offsets", 1),
                    ("__transaction_state", 1),
                ],
                brokers: (1..=self.plan.brokers).collect(),
                hosts: world.hosts(),
                log_dirs: world.log_dirs(),
                is_over: work.moves_over.clone(),
            };
            tokio::spawn(mover.run());
        }
        if self.plan.cleanup == Cleanup::Trimming {
            let trimmer = Trimmer {
                client: world.client("trimmer"),
                partitions: self.plan.partitions,
                history: self.history.clone(),
                is_over: work.moves_over.clone(),
            };
            tokio::spawn(trimmer.run());
        }
        if self.plan.has_churn {
            let churner = Churner {
                client: world.client("churner"),
                topic: "e".to_owned(),
                history: self.history.clone(),
                time: world.time.clone(),
                is_over: work.writers_over.clone(),
            };
            work.writers.push(tokio::spawn(churner.run()));
        }
    }

    async fn create_topic(&self) -> Result<(), String> {
        let mut client = self.world.client("admin");
        let topic = CreatableTopic {
            name: TOPIC.into(),
            num_partitions: self.plan.partitions,
            replication_factor: REPLICATION_FACTOR,
            configs: self.plan.topic_settings().into_iter().map(setting).collect(),
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 30_000, ..Default::default() };
        for _ in 0..100 {
            if let Some(controller) = client.controller().await {
                let response = client.call(&controller, 5, &request).await;
                let code = response.and_then(|response| Some(response.topics.first()?.error_code));
                // 36 = it exists: an earlier answer was lost.
                if matches!(code, Some(0 | 36)) {
                    return Ok(());
                }
            }
            sleep(Duration::from_millis(500)).await;
        }
        Err("the topic cannot be created".to_owned())
    }

    /// Lets things go wrong, and looks.
    async fn disturb(&self) -> Result<(), String> {
        let end = Instant::now() + self.plan.disturbed;
        let mut faults = Faults::new(Arc::clone(&self.world), self.plan.faults.clone(), fork(&self.random));
        let mut checks = Checks::default();
        while Instant::now() < end {
            faults.run((Instant::now() + LOOK_INTERVAL).min(end)).await;
            checks.look(&self.world, &self.history, faults.tainted());
            if !self.history.violations().is_empty() {
                return Ok(());
            }
        }
        faults.end();
        Ok(())
    }

    /// Every partition takes records, and the group offsets.
    async fn progress(&self) -> Result<(), String> {
        let before = self.history.partitions();
        let commits_before = self.history.group_commits();
        let deadline = Instant::now() + PROGRESS_MAX;
        loop {
            let now = self.history.partitions();
            let stuck: Vec<i32> = before
                .iter()
                .filter(|(_, then)| then.attempted > 0)
                .filter(|(index, then)| {
                    now.get(index).is_none_or(|now| now.stored.len() <= then.stored.len())
                })
                .map(|(index, _)| *index)
                .collect();
            let is_group_stuck =
                self.plan.group_members > 0 && self.history.group_commits() == commits_before;
            if stuck.is_empty() && !is_group_stuck {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(format!("partitions {stuck:?} take no records; group: {is_group_stuck}"));
            }
            sleep(Duration::from_millis(200)).await;
        }
    }
}

fn setting((name, value): (&'static str, String)) -> CreatableTopicConfig {
    CreatableTopicConfig { name: name.into(), value: Some(value.into()) }
}
