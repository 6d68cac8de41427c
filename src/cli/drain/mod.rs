//! `barnabas drain`: makes a broker safe to stop, from outside.

mod plan;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use snafu::{OptionExt, ResultExt, Snafu};

use crate::config::ProtocolVersion;
use crate::interbroker::{
    BrokerView, ClusterView, ConnectionOptions, PartitionOutcomes, Peer, PeerError, RemoteError,
    RequestVersions,
};
use crate::metadata::control::Endpoint;
use crate::model::{BrokerId, TopicName, TopicPartition};
use crate::runtime::net::Network;

use plan::{Drain, Impossible, Plan};

/// Move a broker's leaderships, and if asked its replicas, to others, and say when it is safe to stop.
///
/// Works through the admin APIs, against brokers of Barnabas and of Apache Kafka 3.x on ZooKeeper. Without
/// --replicas the broker stays a follower, last in the list of each partition's replicas, so that leadership does
/// not come back by itself; --save writes the assignment from before as kafka-reassign-partitions takes it.
///
/// Exits with 0 once the broker leads nothing, has no replica where that was asked, and no partition would be
/// offline or below min.insync.replicas without it; with 1 when that cannot be reached.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// Brokers of the cluster, as host:port, comma separated.
    #[arg(long, value_name = "host:port,...")]
    bootstrap_server: String,

    /// The broker that is to be stopped.
    #[arg(long, value_name = "id")]
    broker: i32,

    /// Move its replicas to other brokers as well, before it leaves for good.
    #[arg(long)]
    replicas: bool,

    /// Write the present assignment of what is moved to this file.
    #[arg(long, value_name = "file")]
    save: Option<PathBuf>,

    /// Change nothing: only say whether the broker can be stopped now.
    #[arg(long)]
    check: bool,

    /// Give up after so many seconds.
    #[arg(long, default_value_t = 600, value_name = "seconds")]
    timeout_s: u64,
}

#[derive(Debug, Snafu)]
pub enum DrainError {
    #[snafu(display("--bootstrap-server {text:?} is not of the form host:port,..."))]
    Bootstrap { text: String },

    #[snafu(display("cannot start threads: {source}"))]
    StartThreads { source: io::Error },

    #[snafu(display("no broker of {text} answers: {source}"))]
    Unreachable { text: String, source: PeerError },

    #[snafu(display("the cluster has no broker {broker}"))]
    UnknownBroker { broker: BrokerId },

    #[snafu(display("cannot write {}: {source}", path.display()))]
    Save { path: PathBuf, source: io::Error },

    #[snafu(display("broker {broker} cannot be drained: {reason}"))]
    Impossible { broker: BrokerId, reason: String },

    #[snafu(display("broker {broker} is not safe to stop: {reason}"))]
    NotSafe { broker: BrokerId, reason: String },
}

/// Until the cluster is looked at again.
const PAUSE: Duration = Duration::from_millis(500);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// So many partitions are named in a sentence.
const NAMED_MAX: usize = 5;

pub fn run(arguments: &Arguments) -> Result<(), DrainError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context(StartThreadsSnafu)?;
    runtime.block_on(drain(arguments))
}

async fn drain(arguments: &Arguments) -> Result<(), DrainError> {
    let broker = BrokerId(arguments.broker);
    let drain = if arguments.replicas { Drain::Replicas } else { Drain::Leadership };
    let deadline = Instant::now() + Duration::from_secs(arguments.timeout_s);
    let mut cluster = Cluster::open(&arguments.bootstrap_server)?;
    let mut view = cluster.look().await?;
    let is_known = view.brokers.iter().any(|known| known.id == broker)
        || view.partitions.iter().any(|partition| partition.replicas.contains(&broker));
    snafu::ensure!(is_known, UnknownBrokerSnafu { broker });
    if let Some(path) = &arguments.save {
        save(path, &view, &plan::plan(&view, broker, drain))?;
    }
    let mut told = String::new();
    let mut under_way = BTreeMap::new();
    loop {
        let plan = plan::plan(&without_moving(&view, &under_way, drain), broker, drain);
        let reason = match standing(&mut cluster, &view, broker, drain, &plan).await? {
            None => {
                println!("broker {broker} is safe to stop");
                return Ok(());
            }
            Some(reason) => reason,
        };
        if arguments.check || Instant::now() >= deadline {
            return NotSafeSnafu { broker, reason }.fail();
        }
        if let Some(reason) = impossible(&plan) {
            return ImpossibleSnafu { broker, reason }.fail();
        }
        if reason != told {
            println!("broker {broker}: {reason}");
            told = reason;
        }
        under_way.extend(cluster.carry_out(&view, &plan).await);
        tokio::time::sleep(PAUSE).await;
        view = cluster.look().await?;
    }
}

/// A partition that moves shows its old and its new replicas together until all of them are in sync: nothing is to be
/// decided about it before.
fn without_moving(
    view: &ClusterView,
    under_way: &BTreeMap<TopicPartition, Vec<BrokerId>>,
    drain: Drain,
) -> ClusterView {
    let mut view = view.clone();
    view.partitions.retain(|partition| {
        let target = under_way.get(&partition.topic_partition).filter(|_| drain == Drain::Replicas);
        target.is_none_or(|target| !target.iter().all(|id| partition.replicas.contains(id)))
    });
    view
}

/// What is not done yet; `None` = the broker can be stopped.
async fn standing(
    cluster: &mut Cluster,
    view: &ClusterView,
    broker: BrokerId,
    drain: Drain,
    plan: &Plan,
) -> Result<Option<String>, DrainError> {
    let (led, held) = plan::left(view, broker);
    if drain == Drain::Replicas && held > 0 {
        return Ok(Some(format!("{held} replicas and {led} leaderships are left")));
    }
    if led > 0 || !plan.assignments.is_empty() {
        return Ok(Some(format!("{led} leaderships are left")));
    }
    let isr_min = cluster.min_insync_replicas(view).await?;
    let needed = plan::needing(view, broker, &isr_min);
    Ok((!needed.is_empty()).then(|| format!("it is needed for {}", named(&needed))))
}

fn impossible(plan: &Plan) -> Option<String> {
    let of = |wanted: fn(&Impossible) -> Option<&TopicPartition>| -> Vec<TopicPartition> {
        plan.impossible.iter().filter_map(wanted).cloned().collect()
    };
    let stuck = of(|reason| match reason {
        Impossible::NoOtherBroker(partition) => Some(partition),
        Impossible::NoOtherInSync(_) => None,
    });
    // Others may come into sync yet: the deadline decides about those.
    (!stuck.is_empty()).then(|| format!("every other broker has a replica already of {}", named(&stuck)))
}

fn named(partitions: &[TopicPartition]) -> String {
    let names: Vec<String> = partitions.iter().take(NAMED_MAX).map(ToString::to_string).collect();
    let more = if partitions.len() > names.len() { ", ..." } else { "" };
    format!("{} partitions: {}{more}", partitions.len(), names.join(", "))
}

/// As `kafka-reassign-partitions --execute --reassignment-json-file` takes it.
fn save(path: &Path, view: &ClusterView, plan: &Plan) -> Result<(), DrainError> {
    let moved: BTreeSet<&TopicPartition> = plan.assignments.iter().map(|(partition, _)| partition).collect();
    let present = view.partitions.iter().filter(|partition| moved.contains(&partition.topic_partition));
    let mut text = String::from("{\"version\":1,\"partitions\":[");
    for (at, partition) in present.enumerate() {
        let TopicPartition { topic, partition: index } = &partition.topic_partition;
        let replicas: Vec<String> = partition.replicas.iter().map(ToString::to_string).collect();
        let comma = if at > 0 { "," } else { "" };
        let written = write!(
            text,
            "{comma}{{\"topic\":\"{topic}\",\"partition\":{index},\"replicas\":[{}]}}",
            replicas.join(",")
        );
        written.expect("a string takes any text");
    }
    text.push_str("]}\n");
    std::fs::write(path, text).context(SaveSnafu { path })
}

/// The cluster behind the bootstrap addresses, which may lose any broker while it is drained.
struct Cluster {
    bootstrap: String,
    /// Asked in turn; those of the last view come after the ones that were given.
    endpoints: Vec<Endpoint>,
}

impl Cluster {
    fn open(bootstrap: &str) -> Result<Cluster, DrainError> {
        let endpoint = |address: &str| {
            let (host, port) = address.trim().rsplit_once(':')?;
            let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            let port = port.parse().ok()?;
            let known = BrokerView { id: BrokerId::NONE, host: host.to_owned(), port, rack: None };
            (!host.is_empty()).then(|| known.endpoint())
        };
        let endpoints: Option<Vec<Endpoint>> = bootstrap.split(',').map(endpoint).collect();
        let endpoints = endpoints.context(BootstrapSnafu { text: bootstrap })?;
        Ok(Cluster { bootstrap: bootstrap.to_owned(), endpoints })
    }

    /// The cluster as the first broker that answers sees it.
    async fn look(&mut self) -> Result<ClusterView, DrainError> {
        let mut failure = PeerError::NoAddress;
        for endpoint in self.endpoints.clone() {
            match peer(endpoint).cluster_view().await {
                Ok(view) => {
                    for broker in &view.brokers {
                        let endpoint = broker.endpoint();
                        if !self.endpoints.contains(&endpoint) {
                            self.endpoints.push(endpoint);
                        }
                    }
                    return Ok(view);
                }
                Err(error) => failure = error,
            }
        }
        Err(failure).context(UnreachableSnafu { text: &self.bootstrap })
    }

    async fn min_insync_replicas(
        &mut self,
        view: &ClusterView,
    ) -> Result<HashMap<TopicName, usize>, DrainError> {
        let topics: BTreeSet<_> =
            view.partitions.iter().map(|partition| &partition.topic_partition.topic).collect();
        let mut failure = PeerError::NoAddress;
        for endpoint in self.endpoints.clone() {
            match peer(endpoint).min_insync_replicas(topics.iter().copied()).await {
                Ok(found) => return Ok(found),
                Err(error) => failure = error,
            }
        }
        Err(failure).context(UnreachableSnafu { text: &self.bootstrap })
    }

    /// Asks the controller; gives the assignments that it took. What it refuses, or does not hear, is planned again from
    /// what the next look shows.
    async fn carry_out(&self, view: &ClusterView, plan: &Plan) -> Vec<(TopicPartition, Vec<BrokerId>)> {
        let controller = view.brokers.iter().find(|broker| broker.id == view.controller);
        let Some(controller) = controller.map(|broker| peer(broker.endpoint())) else { return Vec::new() };
        let mut taken = Vec::new();
        if !plan.assignments.is_empty() {
            let accepted = accepted("reassignment", controller.reassign(&plan.assignments).await);
            taken.extend(plan.assignments.iter().filter(|(of, _)| accepted.contains(of)).cloned());
        }
        if !plan.elections.is_empty() {
            accepted("election", controller.elect_preferred_leaders(&plan.elections).await);
        }
        taken
    }
}

/// The answer of an election to a partition that its preferred replica leads.
const ELECTION_NOT_NEEDED: RemoteError = RemoteError::Other(84);

/// The partitions that were not refused. Tells of the first one that was.
fn accepted(what: &str, outcomes: Result<PartitionOutcomes, PeerError>) -> BTreeSet<TopicPartition> {
    let outcomes = outcomes.unwrap_or_else(|error| {
        eprintln!("{what}: {error}, asking again");
        Vec::new()
    });
    let refused = outcomes.iter().filter_map(|(partition, error)| Some((partition, (*error)?)));
    let mut refused = refused.filter(|(_, error)| *error != ELECTION_NOT_NEEDED);
    if let Some((partition, error)) = refused.next() {
        eprintln!("{what} of {partition} is refused, asking again: {error:?}");
    }
    outcomes.into_iter().filter(|(_, error)| error.is_none()).map(|(partition, _)| partition).collect()
}

fn peer(endpoint: Endpoint) -> Peer {
    let options = ConnectionOptions {
        network: Network::system(),
        client_id: "barnabas-drain".into(),
        request_timeout: REQUEST_TIMEOUT,
    };
    let level = ProtocolVersion::parse("3.9").expect("the table of levels has 3.9");
    Peer::new(endpoint, options, RequestVersions::of(level))
}
