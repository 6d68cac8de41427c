//! Load on a cluster, one kind a command: figures on stdout, one `NAME<tab>VALUE` a line.
//!
//! BOOTSTRAP names every broker of the cluster, by commas. Topics are created by the name that they are looked for with.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use protocol_tests::load::cluster::{
    self, Ensemble, Failed, Failure, Members, Move, ReplicatedTopics, TakenOver,
};
use protocol_tests::load::{self, Figure, FixedRate, LoadError, Producers};

/// Load on a cluster of Kafka brokers.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Waits until every broker answers and knows all others and a controller.
    Ready { bootstrap: String },
    /// Producers that repeat one batch as fast as they can, as many at each broker; all replicas acknowledge.
    Produce {
        bootstrap: String,
        /// Of all brokers, by commas.
        pids: String,
        topic: String,
        /// At each broker, with a partition of its own.
        #[arg(long, default_value_t = 2)]
        producers: i32,
        #[arg(long, default_value_t = 16_000)]
        batch: usize,
        #[arg(long, default_value_t = 1000)]
        record: usize,
        #[arg(long, default_value_t = 5)]
        in_flight: i32,
        #[arg(long, default_value_t = 1_000_000_000)]
        bytes: u64,
    },
    /// Produces at a fixed rate (open loop) to one leader; all replicas acknowledge.
    Latency {
        bootstrap: String,
        topic: String,
        #[arg(long, default_value_t = 1000)]
        rate: u32,
        #[arg(long, default_value_t = 1024)]
        size: usize,
        /// Seconds that are not counted.
        #[arg(long, default_value_t = 5)]
        warm_up: u64,
        /// Seconds that are counted.
        #[arg(long, default_value_t = 15)]
        seconds: u64,
    },
    /// Creates topics one by one, then as many at once, and deletes all.
    Topics {
        bootstrap: String,
        prefix: String,
        #[arg(long, default_value_t = 200)]
        count: i32,
    },
    /// Fills a topic and moves one replica of each of its partitions to another broker.
    Reassign {
        bootstrap: String,
        /// Of all brokers, by commas.
        pids: String,
        topic: String,
        #[arg(long, default_value_t = 6)]
        partitions: i32,
        #[arg(long, default_value_t = 1_000_000_000)]
        bytes: u64,
    },
    /// Creates topics and waits until everybody knows them and all replicas are in sync.
    Create {
        bootstrap: String,
        #[command(flatten)]
        topics: TopicArguments,
    },
    /// Waits until everybody knows a leader of each partition, and all replicas are in sync.
    InSync {
        bootstrap: String,
        #[command(flatten)]
        topics: TopicArguments,
    },
    /// Takes the controller its office until there is another that works.
    Takeover {
        bootstrap: String,
        /// As `zookeeper.connect`, with one server.
        zookeeper: String,
        /// A topic to create.
        topic: String,
    },
    /// Kills a broker with -9 and watches the others lead its partitions.
    Fail {
        bootstrap: String,
        zookeeper: String,
        broker: i32,
        pid: u32,
        #[command(flatten)]
        topics: TopicArguments,
    },
    /// The controller's id.
    Controller { bootstrap: String },
}

#[derive(Args)]
struct TopicArguments {
    prefix: String,
    #[arg(long)]
    topics: i32,
    /// Of each topic.
    #[arg(long)]
    partitions: i32,
    #[arg(long)]
    replicas: i16,
}

fn main() -> ExitCode {
    load::print_figures("load-cluster", run(Arguments::parse().command))
}

async fn run(command: Command) -> Result<Vec<Figure>, LoadError> {
    match command {
        Command::Ready { bootstrap } => members(&bootstrap).await.map(|_| Vec::new()),
        Command::Produce { bootstrap, pids, topic, producers, batch, record, in_flight, bytes } => {
            let load = Producers {
                topic,
                partitions: producers,
                batch_bytes: batch,
                record_bytes: record,
                acks: -1,
                in_flight,
                total_bytes: bytes,
            };
            produce(&mut members(&bootstrap).await?, &numbers(&pids)?, load).await
        }
        Command::Latency { bootstrap, topic, rate, size, warm_up, seconds } => {
            let load = FixedRate {
                topic,
                partitions: 4,
                records_per_s: rate,
                record_bytes: size,
                acks: -1,
                warm_up: Duration::from_secs(warm_up),
                measured: Duration::from_secs(seconds),
            };
            latency(&mut members(&bootstrap).await?, &load).await
        }
        Command::Topics { bootstrap, prefix, count } => {
            topics(&mut members(&bootstrap).await?, &prefix, count).await
        }
        Command::Reassign { bootstrap, pids, topic, partitions, bytes } => {
            let moved = Move { topic, partitions, bytes };
            let mut members = members(&bootstrap).await?;
            let figures = cluster::fill_and_move(&mut members, &numbers(&pids)?, &moved).await?;
            remove(&mut members, &[moved.topic]).await?;
            Ok(figures)
        }
        Command::Create { bootstrap, topics } => {
            create(&mut members(&bootstrap).await?, &topics.into()).await
        }
        Command::InSync { bootstrap, topics } => {
            let mut members = members(&bootstrap).await?;
            cluster::await_in_sync(&mut members, &topics.into()).await.map(|()| Vec::new())
        }
        Command::Takeover { bootstrap, zookeeper, topic } => {
            let mut members = members(&bootstrap).await?;
            let mut ensemble = Ensemble::open(&zookeeper).await?;
            cluster::change_controller(&mut members, &mut ensemble, &topic).await.map(taken_over)
        }
        Command::Fail { bootstrap, zookeeper, broker, pid, topics } => {
            let mut members = members(&bootstrap).await?;
            let mut ensemble = Ensemble::open(&zookeeper).await?;
            let failure = Failure { broker, pid };
            cluster::fail(&mut members, &mut ensemble, &topics.into(), failure).await.map(failed)
        }
        Command::Controller { bootstrap } => {
            let id = members(&bootstrap).await?.controller().await?;
            Ok(vec![Figure::new("controller", f64::from(id))])
        }
    }
}

async fn members(bootstrap: &str) -> Result<Members, LoadError> {
    let addresses: Vec<String> = bootstrap.split(',').map(str::to_owned).collect();
    Members::await_all(&addresses).await
}

fn numbers(text: &str) -> Result<Vec<u32>, LoadError> {
    let number =
        |word: &str| word.parse().map_err(|_| LoadError::Wrong { what: format!("{word} is no process id") });
    text.split(',').map(number).collect()
}

/// `load.partitions` = producers at each broker.
async fn produce(members: &mut Members, pids: &[u32], load: Producers) -> Result<Vec<Figure>, LoadError> {
    let ids = members.ids();
    let replicas = spread(&ids, load.partitions as usize * ids.len());
    cluster::create_spread(members, &load.topic, &replicas).await?;
    let load = Producers { partitions: replicas.len() as i32, ..load };
    let figures = load::produce_at_full_rate(&members.addresses(), pids, &load)?;
    remove(members, &[load.topic]).await?;
    Ok(figures)
}

async fn latency(members: &mut Members, load: &FixedRate) -> Result<Vec<Figure>, LoadError> {
    let first = spread(&members.ids(), 1).concat();
    let replicas: Vec<Vec<i32>> = (0..load.partitions).map(|_| first.clone()).collect();
    cluster::create_spread(members, &load.topic, &replicas).await?;
    let address = members.addresses().into_iter().next().unwrap_or_default();
    let latencies = load::at_fixed_rate(&address, load)?;
    remove(members, std::slice::from_ref(&load.topic)).await?;
    let name = format!("produce at {} x {} B/s, acks=all", load.records_per_s, load.record_bytes);
    Ok(load::latency_figures(&name, &latencies))
}

/// All brokers for each of so many partitions, each of them in front in turn.
fn spread(ids: &[i32], partitions: usize) -> Vec<Vec<i32>> {
    let rotated = |partition| {
        let mut replicas = ids.to_vec();
        replicas.rotate_left(partition % ids.len().max(1));
        replicas
    };
    (0..partitions).map(rotated).collect()
}

async fn topics(members: &mut Members, prefix: &str, count: i32) -> Result<Vec<Figure>, LoadError> {
    let named = |end: &str| ReplicatedTopics {
        prefix: format!("{prefix}-{end}"),
        topics: count,
        partitions: 1,
        replicas: 3,
    };
    let (single, together) = (named("single"), named("together"));
    let took = cluster::create_one_by_one(members, &single).await?;
    let mut figures = vec![per_second("topics created one by one", count, took)];
    cluster::await_in_sync(members, &single).await?;
    let took = cluster::create_at_once(members, &together).await?;
    figures.push(per_second(&format!("{count} topics created at once"), count, took));
    let began = std::time::Instant::now();
    remove(members, &[single.names(), together.names()].concat()).await?;
    figures.push(per_second("topics deleted", 2 * count, began.elapsed()));
    Ok(figures)
}

async fn remove(members: &mut Members, names: &[String]) -> Result<(), LoadError> {
    cluster::delete_all(members, names).await?;
    cluster::await_gone(members, names).await
}

fn per_second(what: &str, count: i32, took: Duration) -> Figure {
    Figure::new(format!("{what}, topics/s"), f64::from(count) / took.as_secs_f64())
}

async fn create(members: &mut Members, topics: &ReplicatedTopics) -> Result<Vec<Figure>, LoadError> {
    let began = std::time::Instant::now();
    cluster::create_all(members, topics).await?;
    let name = format!("{} partitions: created and in sync, s", topics.partition_count());
    Ok(vec![Figure::new(name, began.elapsed().as_secs_f64())])
}

fn taken_over(taken_over: TakenOver) -> Vec<Figure> {
    vec![
        milliseconds("elected, ms", taken_over.elected),
        milliseconds("has created a topic, ms", taken_over.has_created),
    ]
}

fn failed(failed: Failed) -> Vec<Figure> {
    let mut figures = vec![
        Figure::new("was controller", f64::from(u8::from(failed.was_controller))),
        Figure::new("partitions led", failed.led as f64),
        Figure::new("session ends after, s", failed.session.as_secs_f64()),
        milliseconds("then a controller, ms", failed.controller),
        milliseconds("then others lead everywhere, ms", failed.leaders),
    ];
    figures.extend(failed.written.map(|written| milliseconds("then each is written, ms", written)));
    figures
}

fn milliseconds(name: &str, time: Duration) -> Figure {
    Figure::new(name, time.as_secs_f64() * 1e3)
}

impl From<TopicArguments> for ReplicatedTopics {
    fn from(arguments: TopicArguments) -> Self {
        let TopicArguments { prefix, topics, partitions, replicas } = arguments;
        ReplicatedTopics { prefix, topics, partitions, replicas }
    }
}
