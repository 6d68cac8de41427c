//! One cluster's life, as a seed decides it.

use std::sync::Arc;
use std::time::Duration;

use barnabas::runtime::Random;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use wire::create_topics_request::{CreatableTopic, CreateTopicsRequest};

use crate::checks::{self, Checks};
use crate::client::{Committer, Producer, Reader, Transactor};
use crate::faults::{self, Faults};
use crate::history::History;
use crate::switch::Switch;
use crate::trace::{SimTime, Trace};
use crate::world::{World, fork};

const BROKERS: i32 = 3;
const TOPIC: &str = "t";
/// How often brokers are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Everything works again after faults: a record is acknowledged within this time.
const PROGRESS_MAX: Duration = Duration::from_secs(60);

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
    let history = History::new(trace.clone());
    let plan = Plan::of(&random);
    trace.note(format_args!("seed {seed}: {plan:?}"));
    let world = World::new(BROKERS, settings(&random), fork(&random), trace.clone(), time.clone());
    let world = Arc::new(world);
    let simulation = Simulation { world: Arc::clone(&world), history: history.clone(), random, plan };
    if let Err(reason) = simulation.run().await {
        history.violation(reason);
    }
    let partitions = history.partitions();
    let digest = world.network.digest() ^ time.now_ms();
    Outcome {
        violations: history.violations(),
        trace: trace.lines(),
        digest,
        acknowledged: partitions.values().map(|partition| partition.stored.len()).sum(),
        transactions: history.transactions().len(),
        committed_offsets: history.committed_offsets(),
        simulated: began.elapsed(),
    }
}

#[derive(Debug)]
struct Plan {
    partitions: i32,
    producers: u64,
    transactors: u64,
    has_group: bool,
    faults: Vec<faults::Fault>,
    disturbed: Duration,
}

impl Plan {
    fn of(random: &Random) -> Plan {
        Plan {
            partitions: random.number(1..=2) as i32,
            producers: random.number(1..=3),
            transactors: random.number(0..=3).saturating_sub(1),
            has_group: random.number(0..2) == 0,
            faults: faults::some(random),
            disturbed: Duration::from_secs(random.number(10..=40)),
        }
    }
}

/// Small numbers, so that what takes long in Kafka happens within a minute.
fn settings(random: &Random) -> Vec<(String, String)> {
    let either = |one: &'static str, other: &'static str| if random.number(0..2) == 0 { one } else { other };
    let settings = [
        ("min.insync.replicas", "2"),
        ("auto.create.topics.enable", "false"),
        ("replica.lag.time.max.ms", "3000"),
        ("replica.socket.timeout.ms", "3000"),
        ("replica.fetch.backoff.ms", "200"),
        ("request.timeout.ms", "5000"),
        ("controller.socket.timeout.ms", "5000"),
        ("controlled.shutdown.retry.backoff.ms", "500"),
        ("replica.high.watermark.checkpoint.interval.ms", either("5000", "500")),
        ("log.flush.offset.checkpoint.interval.ms", either("60000", "3000")),
        ("log.flush.start.offset.checkpoint.interval.ms", "10000"),
        ("log.initial.task.delay.ms", "1000"),
        ("log.index.size.max.bytes", "4096"),
        ("log.index.interval.bytes", either("4096", "200")),
        ("log.segment.bytes", either("1048576", "2000")),
        ("offsets.topic.num.partitions", "1"),
        ("offsets.topic.replication.factor", "3"),
        ("transaction.state.log.num.partitions", "1"),
        ("log.cleaner.enable", "false"),
        ("num.replica.fetchers", either("1", "2")),
    ];
    settings.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec()
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
        let (producers_over, readers_over) = (Switch::default(), Switch::default());
        let mut producers = self.start_others(&producers_over);
        for number in 0..self.plan.producers {
            let name = format!("p{number}");
            let producer = Producer {
                client: world.client(&name),
                name,
                topic: TOPIC,
                partition: (number as i32) % self.plan.partitions,
                history: self.history.clone(),
                time: world.time.clone(),
                is_over: producers_over.clone(),
            };
            producers.push(tokio::spawn(producer.run()));
        }
        for number in 0..2 * self.plan.partitions {
            let name = format!("r{number}");
            let reader = Reader {
                client: world.client(&name),
                name,
                topic: TOPIC,
                partition: number % self.plan.partitions,
                history: self.history.clone(),
                is_over: readers_over.clone(),
            };
            tokio::spawn(reader.run());
        }
        self.disturb().await?;
        if !self.history.violations().is_empty() {
            return Ok(());
        }
        checks::until_whole(world).await?;
        world.trace.note("whole again");
        self.progress().await?;
        producers_over.set();
        for producer in producers {
            if tokio::time::timeout(PROGRESS_MAX, producer).await.is_err() {
                return Err("a producer does not end".to_owned());
            }
        }
        checks::until_whole(world).await?;
        // Followers hear of the last high watermark with their next fetch.
        sleep(Duration::from_secs(3)).await;
        readers_over.set();
        checks::check_logs(world, &self.history, TOPIC);
        Ok(())
    }

    /// Transactional producers and a group.
    fn start_others(&self, is_over: &Switch) -> Vec<JoinHandle<()>> {
        let world = &self.world;
        let mut started = Vec::new();
        for number in 0..self.plan.transactors {
            let name = format!("x{number}");
            let transactor = Transactor {
                client: world.client(&name),
                name,
                topic: TOPIC,
                partitions: self.plan.partitions,
                history: self.history.clone(),
                time: world.time.clone(),
                is_over: is_over.clone(),
            };
            started.push(tokio::spawn(transactor.run()));
        }
        if self.plan.has_group {
            let committer = Committer {
                client: world.client("g"),
                group: "g".to_owned(),
                topic: TOPIC,
                history: self.history.clone(),
                is_over: is_over.clone(),
            };
            started.push(tokio::spawn(committer.run()));
        }
        started
    }

    async fn create_topic(&self) -> Result<(), String> {
        let mut client = self.world.client("admin");
        let topic = CreatableTopic {
            name: TOPIC.into(),
            num_partitions: self.plan.partitions,
            replication_factor: BROKERS as i16,
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
            checks.look(&self.world, &self.history, TOPIC, faults.tainted());
            if !self.history.violations().is_empty() {
                return Ok(());
            }
        }
        faults.end();
        Ok(())
    }

    /// Every partition takes records.
    async fn progress(&self) -> Result<(), String> {
        let before = self.history.partitions();
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
            if stuck.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(format!("partitions {stuck:?} take no records"));
            }
            sleep(Duration::from_millis(200)).await;
        }
    }
}
