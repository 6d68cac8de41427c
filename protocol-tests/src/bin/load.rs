//! Load on a broker, one kind a command: figures on stdout, one `NAME<tab>VALUE` a line.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Parser, Subcommand};
use protocol_tests::load::{
    self, Clients, Coordinated, Figure, FixedRate, Generation, LoadError, ManyPartitions, Producers,
    Transactions,
};

/// Load on a Kafka broker.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Produces at a fixed rate (acks=all, open loop), then one record at a time from producer to consumer.
    Latency {
        bootstrap: String,
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
        /// Records one at a time; as many again are not counted.
        #[arg(long, default_value_t = 3000)]
        single: usize,
    },
    /// Producers that repeat one batch as fast as they can, then consumers that read it all.
    Throughput {
        bootstrap: String,
        pid: u32,
        #[arg(long, default_value_t = 1)]
        producers: i32,
        #[arg(long, default_value_t = 16_000)]
        batch: usize,
        #[arg(long, default_value_t = 1000)]
        record: usize,
        /// 0, 1, or -1 for all.
        #[arg(long, default_value_t = -1, allow_hyphen_values = true)]
        acks: i16,
        #[arg(long, default_value_t = 5)]
        in_flight: i32,
        #[arg(long, default_value_t = 1_000_000_000)]
        bytes: u64,
    },
    /// Many clients that produce and consume at once, each checking what it reads.
    Clients {
        bootstrap: String,
        #[arg(long, default_value_t = 1000)]
        count: usize,
        /// Members of groups among them, ten to a group.
        #[arg(long, default_value_t = 200)]
        in_groups: usize,
        #[arg(long, default_value_t = 20)]
        rounds: usize,
    },
    /// Idle connections, what each costs the broker, and a normal client among them.
    Idle {
        bootstrap: String,
        pid: u32,
        #[arg(long, default_value_t = 10_000)]
        count: usize,
    },
    /// Creates partitions until all answer, writes to each.
    Partitions {
        bootstrap: String,
        pid: u32,
        #[arg(long, default_value_t = 10_000)]
        count: i32,
        #[arg(long, default_value = "load-many")]
        prefix: String,
    },
    /// Starts a broker and measures until it answers, and until its partitions do.
    Ready {
        bootstrap: String,
        /// Shell command that starts the broker and ends soon, or becomes the broker.
        #[arg(long)]
        start: String,
        /// Partitions that `partitions` has written.
        #[arg(long, default_value_t = 0)]
        count: i32,
        #[arg(long, default_value = "load-many")]
        prefix: String,
        /// Transactional ids and groups that `coordinators` has made.
        #[arg(long, default_value_t = 0)]
        coordinated: usize,
    },
    /// Transactions that write one record to each partition: commits a second, then one at a time until they are read.
    Transactions {
        bootstrap: String,
        #[arg(long, default_value_t = 1)]
        partitions: i32,
        #[arg(long, default_value_t = 8)]
        producers: usize,
        /// Seconds that are not counted.
        #[arg(long, default_value_t = 5)]
        warm_up: u64,
        /// Seconds that are counted.
        #[arg(long, default_value_t = 15)]
        seconds: u64,
        /// Transactions one at a time; as many again are not counted.
        #[arg(long, default_value_t = 1000)]
        single: usize,
        #[arg(long, default_value_t = 1024)]
        size: usize,
        /// The producers speak as those before Kafka 4; the others need transaction.version 2.
        #[arg(long)]
        classic: bool,
    },
    /// Sets the level of transaction.version.
    TransactionVersion { bootstrap: String, level: i16 },
    /// Makes transactional ids, and as many groups with an offset.
    Coordinators {
        bootstrap: String,
        #[arg(long, default_value_t = 10_000)]
        count: usize,
        #[arg(long, default_value = "load-coordinated")]
        prefix: String,
    },
    /// Writes as many producers, each with an id of its own, and says what they cost the broker.
    ProducerIds {
        bootstrap: String,
        pid: u32,
        #[arg(long, default_value_t = 1_000_000)]
        count: usize,
    },
    /// The bare loops that no broker can beat.
    Limits {
        /// For the file that is written and sent.
        dir: PathBuf,
        #[arg(long, default_value_t = 1_000_000_000)]
        bytes: u64,
    },
    /// Creates a topic and waits until all its partitions answer.
    Create { bootstrap: String, topic: String, partitions: i32 },
    /// Deletes the topics whose names begin so.
    Delete { bootstrap: String, prefix: String },
    /// Waits until a topic's partitions hold so many records.
    Await { bootstrap: String, topic: String, partitions: i32, records: i64 },
}

fn main() -> ExitCode {
    load::print_figures("load", run(Arguments::parse().command))
}

async fn run(command: Command) -> Result<Vec<Figure>, LoadError> {
    match command {
        Command::Latency { bootstrap, rate, size, warm_up, seconds, single } => {
            let load = FixedRate {
                topic: unique("load-rate"),
                partitions: 4,
                records_per_s: rate,
                record_bytes: size,
                acks: -1,
                warm_up: Duration::from_secs(warm_up),
                measured: Duration::from_secs(seconds),
            };
            latency(&bootstrap, &load, single).await
        }
        Command::Throughput { bootstrap, pid, producers, batch, record, acks, in_flight, bytes } => {
            let load = Producers {
                topic: unique("load-throughput"),
                partitions: producers,
                batch_bytes: batch,
                record_bytes: record,
                acks,
                in_flight,
                total_bytes: bytes,
            };
            throughput(&bootstrap, pid, &load).await
        }
        Command::Clients { bootstrap, count, in_groups, rounds } => {
            let clients = Clients { count, in_groups, rounds, prefix: unique("load-clients") };
            let started = Instant::now();
            load::produce_and_consume(&bootstrap, &clients).await?;
            let per_s = (count * rounds) as f64 / started.elapsed().as_secs_f64();
            load::delete_topics(&bootstrap, &clients.prefix).await?;
            Ok(vec![Figure::new(format!("{count} clients, records written and read back a second"), per_s)])
        }
        Command::Idle { bootstrap, pid, count } => idle(&bootstrap, pid, count).await,
        Command::Partitions { bootstrap, pid, count, prefix } => {
            partitions(&bootstrap, pid, &ManyPartitions { prefix, count }).await
        }
        Command::Ready { bootstrap, start, count, prefix, coordinated } => {
            ready(&bootstrap, &start, &ManyPartitions { prefix, count }, coordinated).await
        }
        Command::Transactions {
            bootstrap,
            partitions,
            producers,
            warm_up,
            seconds,
            single,
            size,
            classic,
        } => {
            let load = Transactions {
                topic: unique("load-transactions"),
                partitions,
                generation: if classic { Generation::Classic } else { Generation::EpochBump },
                record_bytes: size,
            };
            let seconds = (Duration::from_secs(warm_up), Duration::from_secs(seconds));
            transactions(&bootstrap, &load, producers, seconds, single).await
        }
        Command::TransactionVersion { bootstrap, level } => {
            load::set_transaction_version(&bootstrap, level).await.map(|()| Vec::new())
        }
        Command::Coordinators { bootstrap, count, prefix } => {
            let started = Instant::now();
            load::fill_coordinators(&bootstrap, &Coordinated { prefix, count }).await?;
            let name = format!("{count} transactional ids and groups made, s");
            Ok(vec![Figure::new(name, started.elapsed().as_secs_f64())])
        }
        Command::ProducerIds { bootstrap, pid, count } => producer_ids(&bootstrap, pid, count).await,
        Command::Limits { dir, bytes } => limits(&dir, bytes),
        Command::Create { bootstrap, topic, partitions } => {
            load::create_topic(&bootstrap, &topic, partitions).await.map(|()| Vec::new())
        }
        Command::Delete { bootstrap, prefix } => {
            load::delete_topics(&bootstrap, &prefix).await.map(|()| Vec::new())
        }
        Command::Await { bootstrap, topic, partitions, records } => {
            load::await_records(&bootstrap, &topic, partitions, records).await.map(|()| Vec::new())
        }
    }
}

async fn latency(bootstrap: &str, load: &FixedRate, single: usize) -> Result<Vec<Figure>, LoadError> {
    load::create_topic(bootstrap, &load.topic, load.partitions).await?;
    let at_rate = load::at_fixed_rate(bootstrap, load)?;
    let name = format!("produce at {} x {} B/s, acks=all", load.records_per_s, load.record_bytes);
    let mut figures = load::latency_figures(&name, &at_rate);
    load::delete_topics(bootstrap, &load.topic).await?;
    if single > 0 {
        let topic = unique("load-single");
        load::create_topic(bootstrap, &topic, 1).await?;
        let one = load::one_at_a_time(bootstrap, &topic, load.record_bytes, single, single).await?;
        load::delete_topics(bootstrap, &topic).await?;
        let name = format!("end to end, {} B, acks=all, one at a time", load.record_bytes);
        figures.extend(load::latency_figures(&name, &one));
    }
    Ok(figures)
}

async fn throughput(bootstrap: &str, pid: u32, load: &Producers) -> Result<Vec<Figure>, LoadError> {
    load::create_topic(bootstrap, &load.topic, load.partitions).await?;
    let mut figures = load::produce_at_full_rate(&[bootstrap.to_owned()], &[pid], load)?;
    let ends = load::partition_ends(bootstrap, &load.topic, load.partitions).await?;
    figures.extend(load::fetch_at_full_rate(bootstrap, pid, &load.topic, &ends, load.total_bytes)?);
    load::delete_topics(bootstrap, &load.topic).await?;
    Ok(figures)
}

async fn idle(bootstrap: &str, pid: u32, count: usize) -> Result<Vec<Figure>, LoadError> {
    let before = load::resident_bytes(pid)?;
    let started = Instant::now();
    let mut connections = load::open_idle(bootstrap, count).await?;
    let opened_s = started.elapsed().as_secs_f64();
    let grown = load::resident_bytes(pid)?.saturating_sub(before);
    let topic = unique("load-idle");
    load::prove_normal_client(bootstrap, &topic).await?;
    connections.ask_each().await?;
    load::delete_topics(bootstrap, &topic).await?;
    Ok(vec![
        Figure::new(format!("{count} idle connections: until all are open, s"), opened_s),
        Figure::new(format!("{count} idle connections: KiB each"), grown as f64 / 1024.0 / count as f64),
    ])
}

async fn partitions(bootstrap: &str, pid: u32, many: &ManyPartitions) -> Result<Vec<Figure>, LoadError> {
    let (before, cpu_before, started) = (load::resident_bytes(pid)?, load::cpu_seconds(pid)?, Instant::now());
    load::create_many(bootstrap, many).await?;
    let created_s = started.elapsed().as_secs_f64();
    load::await_end_offsets(bootstrap, many, 0).await?;
    let (all_s, cpu_s) = (started.elapsed().as_secs_f64(), load::cpu_seconds(pid)? - cpu_before);
    let after = load::resident_bytes(pid)?;
    let started = Instant::now();
    load::write_to_each(bootstrap, many).await?;
    let written_s = started.elapsed().as_secs_f64();
    load::await_end_offsets(bootstrap, many, 1).await?;
    let written = load::resident_bytes(pid)?;
    let figure = |what: &str, value: f64| Figure::new(format!("{} partitions: {what}", many.count), value);
    let mib = |bytes: u64| bytes as f64 / 1024.0 / 1024.0;
    Ok(vec![
        figure("create requests, s", created_s),
        figure("create until all answer ListOffsets, s", all_s),
        figure("broker CPU until then, s", cpu_s),
        figure("RSS before, MiB", mib(before)),
        figure("RSS after, MiB", mib(after)),
        figure("one record to each, s", written_s),
        figure("RSS when written, MiB", mib(written)),
    ])
}

/// `seconds`: that are not counted, and that are.
async fn transactions(
    bootstrap: &str,
    load: &Transactions,
    producers: usize,
    seconds: (Duration, Duration),
    single: usize,
) -> Result<Vec<Figure>, LoadError> {
    let plural = if load.partitions == 1 { "" } else { "s" };
    let name = format!("transactions over {} partition{plural}", load.partitions);
    load::create_topic(bootstrap, &load.topic, load.partitions).await?;
    let commits = load::commit_at_full_rate(bootstrap, load, producers, seconds.0, seconds.1).await?;
    let mut figures = vec![Figure::new(format!("{name}, {producers} producers: commits/s"), commits.per_s)];
    figures
        .extend(load::latency_figures(&format!("{name}, {producers} producers: commit"), &commits.latencies));
    load::delete_topics(bootstrap, &load.topic).await?;
    if single > 0 {
        let load = Transactions { topic: unique("load-transaction"), ..load.clone() };
        load::create_topic(bootstrap, &load.topic, load.partitions).await?;
        let read = load::read_one_at_a_time(bootstrap, &load, single, single).await?;
        figures.extend(load::latency_figures(&format!("{name}, one at a time: end to end"), &read));
        load::delete_topics(bootstrap, &load.topic).await?;
    }
    Ok(figures)
}

async fn producer_ids(bootstrap: &str, pid: u32, count: usize) -> Result<Vec<Figure>, LoadError> {
    let before = load::resident_bytes(pid)?;
    let started = Instant::now();
    load::write_as_many_producers(bootstrap, &unique("load-producer-ids"), count).await?;
    let wrote_s = started.elapsed().as_secs_f64();
    let after = load::resident_bytes(pid)?;
    let mib = |bytes: u64| bytes as f64 / 1024.0 / 1024.0;
    Ok(vec![
        Figure::new(format!("{count} producer ids: RSS before, MiB"), mib(before)),
        Figure::new(format!("{count} producer ids: RSS after, MiB"), mib(after)),
        Figure::new(
            format!("{count} producer ids: bytes each"),
            after.saturating_sub(before) as f64 / count as f64,
        ),
        Figure::new(format!("{count} producer ids: written a second"), count as f64 / wrote_s),
    ])
}

async fn ready(
    bootstrap: &str,
    start: &str,
    many: &ManyPartitions,
    coordinated: usize,
) -> Result<Vec<Figure>, LoadError> {
    let started = Instant::now();
    let mut broker = load::start(start)?;
    load::await_ready(&mut broker, bootstrap, Duration::from_secs(300)).await?;
    let ready_ms = started.elapsed().as_secs_f64() * 1e3;
    let mut figures = vec![Figure::new("pid", f64::from(broker.id())), Figure::new("ready, ms", ready_ms)];
    if many.count > 0 {
        load::await_end_offsets(bootstrap, many, 1).await?;
        figures.push(Figure::new("all partitions answer, ms", started.elapsed().as_secs_f64() * 1e3));
    }
    if coordinated > 0 {
        let coordinated = Coordinated { prefix: "load-coordinated".to_owned(), count: coordinated };
        load::await_coordinators(bootstrap, &coordinated).await?;
        figures.push(Figure::new("all coordinators answer, ms", started.elapsed().as_secs_f64() * 1e3));
    }
    Ok(figures)
}

fn limits(dir: &std::path::Path, bytes: u64) -> Result<Vec<Figure>, LoadError> {
    let file = dir.join("load-limits.bin");
    let mut figures = Vec::new();
    for frame_bytes in [16 * 1024, 100 * 1024] {
        figures.extend(load::receive_check_write(&file, frame_bytes, bytes)?);
    }
    figures.extend(load::send_file(&file, 4 * bytes)?);
    // The figures stand whether or not the file can be removed.
    let _ = std::fs::remove_file(&file);
    Ok(figures)
}

/// A name that no other run has.
fn unique(name: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    format!("{name}-{now:x}")
}
