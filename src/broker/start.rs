use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustix::process::{Resource, getrlimit};
use snafu::{ResultExt, ensure};
use tokio::sync::watch;
use tracing::warn;

use super::backend::{Backend, bind_port};
use super::cluster_channel::ClusterChannel;
use super::cluster_transactions::{ClusterMarkers, ClusterVerifier};
use super::config_changes::{ConfigApplier, DynamicSettings};
use super::control_channel::{LocalChannel, blocking, topic_config};
use super::controller_link::ControllerLink;
use super::error::*;
use super::features::FeatureApplier;
use super::loading::{Loading, LoadingParts};
use super::log_dirs::LogDirFailures;
use super::markers::LocalMarkers;
use super::membership::Membership;
use super::ports::Ports;
use super::roles::Roles;
use super::settings::{
    connection_limits, fetcher_options, listener_options, move_limit, mover_options, set_throttles,
    target_compression, throttle_windows, topic_settings, txn_options,
};
use super::shard_log::ReplicaShardLog;
use super::stored_isrs::StoredIsrs;
use super::{Broker, CLOSE_MAX, cleaner, ticks};
use crate::api::{Gate, Services};
use crate::config::{BrokerConfig, Endpoint as ConfiguredEndpoint};
use crate::controller::admin::{Admin, AdminOptions, ProducerIds};
use crate::controller::features::{FeatureChanges, FinalizedFeatures};
use crate::controller::registration::{self, Registration};
use crate::controller::{
    ConfigChanges, Controller, ControllerHandle, ControllerOptions, FeatureForm, Settings, StoredConfig,
};
use crate::coordination::znodes::{ConfigEntity, FeatureStatus};
use crate::coordination::{CurrentSession, EmbeddedStore, Ensemble, Store, znodes};
use crate::group::{GroupOptions, GroupService, GroupServiceParts};
use crate::interbroker::{ConnectionOptions, Peers, RequestVersions};
use crate::log::checkpoint::{ClusterMode, MetaProperties};
use crate::log::{LogCleaner, LogDirectories, LogManager};
use crate::metadata::control::Endpoint;
use crate::metadata::{Cache, Image};
use crate::model::{BrokerId, TopicName};
use crate::network::{ConnectionTable, Listener, RequestMemory};
use crate::observe::Metrics;
use crate::quota::Quotas;
use crate::records::TargetCompression;
use crate::replica::{
    AlterIsr, FetchSessionOptions, FetchSessions, Fetchers, IsrChannel, LogDirMover, ReplicaManager,
    ReplicationOptions, TopicSettings,
};
use crate::runtime::fs::{DiskFileSystem, FileSystem};
use crate::runtime::net::Network;
use crate::runtime::task::{self, Shutdown, ShutdownTrigger};
use crate::runtime::{Clock, Random};
use crate::security::Authorizer;
use crate::txn::{MarkerChannel, TransactionVersion, TxnService, TxnServiceParts};

/// A controller that does not get to say what this broker leads is a fault, not a reason to wait for ever.
const READY_MAX: Duration = Duration::from_secs(300);
/// How long clients wait to be let in while logs are loaded; from then on they are told of partitions that are not
/// ready.
const LOADING_UNSEEN_MAX: Duration = Duration::from_secs(1);
/// How long the controller may take to tell of all topics.
const TOPICS_MAX: Duration = Duration::from_secs(60);
const TOPICS_ASKED_EVERY: Duration = Duration::from_millis(500);
/// Files of logs kept open at once. More gain nothing: of most segments nobody reads.
const OPEN_FILES_MAX: u64 = 8_000;

/// What a broker needs of the machine it runs on: this one, or a simulated one.
#[derive(Clone, Debug)]
pub struct Machine {
    pub file_system: Arc<dyn FileSystem>,
    pub network: Network,
    pub clock: Clock,
    pub random: Random,
    /// Cores. Logs are loaded by so many threads for each directory: not a setting, which few people would tune.
    pub parallelism: usize,
    /// Of logs, kept open at once.
    pub open_files_max: usize,
}

impl Machine {
    pub fn system() -> Machine {
        Machine {
            file_system: Arc::new(DiskFileSystem),
            network: Network::system(),
            clock: Clock::system(),
            random: Random::from_entropy(),
            parallelism: std::thread::available_parallelism().map_or(1, usize::from),
            open_files_max: open_files_max(),
        }
    }
}

/// Connections need half of what the process may open.
fn open_files_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from((limit / 2).min(OPEN_FILES_MAX)).unwrap_or(usize::MAX)
}

/// Starts a broker in the cluster that `ensemble` stands for; `None` = the one that the settings name. Gives none when
/// `stop` resolves first.
pub(super) async fn start(
    config: BrokerConfig,
    metrics: Arc<Metrics>,
    machine: Machine,
    ensemble: Option<Box<dyn Ensemble>>,
    stop: impl Future<Output = ()>,
) -> Result<Option<Broker>, StartError> {
    tokio::pin!(stop);
    let ground = tokio::select! {
        ground = Ground::prepare(config, machine, ensemble) => ground?,
        () = &mut stop => return Ok(None),
    };
    let session = Arc::clone(&ground.session);
    let started = tokio::select! {
        started = build(ground, metrics) => started.map(Some),
        () = &mut stop => Ok(None),
    };
    if !matches!(started, Ok(Some(_))) {
        // What was registered must not stand in the way of the next start. When this fails it ends with its timeout.
        let _ = tokio::time::timeout(CLOSE_MAX, session.close()).await;
    }
    started
}

/// What a broker has before the cluster can hear of it.
struct Ground {
    config: BrokerConfig,
    network: Network,
    clock: Clock,
    random: Random,
    parallelism: usize,
    listeners: Vec<(Listener, ConfiguredEndpoint)>,
    directories: LogDirectories,
    backend: Arc<Backend>,
    session: Arc<dyn Store>,
}

impl Ground {
    async fn prepare(
        config: BrokerConfig,
        machine: Machine,
        ensemble: Option<Box<dyn Ensemble>>,
    ) -> Result<Ground, StartError> {
        // Ports are taken first: a second broker by mistake must not touch the first one's files.
        let listeners = bind(&config, &machine.network)?;
        let port = bind_port(&config)?;
        let Machine { file_system, network, clock, random, parallelism, open_files_max } = machine;
        let paths: Vec<PathBuf> = config.log_dirs().iter().map(PathBuf::from).collect();
        let directories = LogDirectories::open(Arc::clone(&file_system), &paths, open_files_max)
            .context(LogDirectoriesSnafu)?;
        let has_ensemble = ensemble.is_some() || config.zookeeper_connect().is_some();
        check_folders(&directories, &paths, has_ensemble, &*file_system)?;
        let backend = match ensemble {
            Some(ensemble) => Backend::joined(&config, ensemble),
            None => Backend::open(&config, file_system, &paths, port, &clock, &random).await?,
        };
        let listeners = listeners.into_iter().zip(config.listeners().bound.clone()).collect();
        let backend = Arc::new(backend);
        let session = backend.session().await.context(StoreSnafu)?;
        Ok(Ground { config, network, clock, random, parallelism, listeners, directories, backend, session })
    }
}

async fn build(ground: Ground, metrics: Arc<Metrics>) -> Result<Broker, StartError> {
    let Ground { config, network, clock, random, parallelism, listeners, directories, backend, session } =
        ground;
    let identity = identify(&*session, &config, &directories, &random).await?;
    let current = Arc::new(CurrentSession::new(Arc::clone(&session)));
    let store: Arc<dyn Store> = current.clone();
    let (stored, changes) =
        ConfigChanges::subscribe(Arc::clone(&store), clock.clone()).await.context(StoreSnafu)?;
    let dynamic = DynamicSettings::of(identity.broker_id, &stored);
    let config = dynamic.apply_to(&config.with_broker_id(identity.broker_id));
    let listeners = rebind(listeners, &config, &network)?;
    let config = Arc::new(ArcSwap::from_pointee(config));

    let reserve_bytes = u64::try_from(config.load().log_dirs_reserved_bytes()).unwrap_or(0);
    directories.keep_free(reserve_bytes);
    let settings = stored_topic_settings(identity.broker_id, &stored, &config.load());
    let defaults = topic_settings(identity.broker_id, config.load().topic_defaults());
    let logs = Arc::new(find_logs(directories, &clock, &random).await?);
    let metadata = Arc::new(Cache::default());
    let replicas = Arc::new(ReplicaManager::new(
        identity.broker_id,
        Arc::clone(&logs),
        Arc::clone(&metadata),
        defaults,
        ReplicationOptions {
            lag_max_ms: config.load().replica_lag_time_max_ms(),
            throttle_windows: throttle_windows(&config.load()),
        },
    ));
    set_throttles(replicas.throttles(), &config.load());
    for (topic, settings) in settings {
        replicas.change_topic_settings(&topic, Some(settings));
    }
    replicas.limit_moves(move_limit(&config.load()));
    let groups = Arc::new(groups(&config.load(), &replicas, &metadata, &clock, &random));

    let (parts, parts_shutdown) = ShutdownTrigger::new();
    let markers: Arc<dyn MarkerChannel> = Arc::new(ClusterMarkers {
        me: identity.broker_id,
        local: LocalMarkers {
            replicas: Arc::clone(&replicas),
            groups: Arc::clone(&groups),
            clock: clock.clone(),
        },
        peers: peers(&config.load(), &network, identity.broker_id, &metadata),
    });
    let transactions = Arc::new(TxnService::new(TxnServiceParts {
        options: txn_options(&config.load()),
        version: TransactionVersion::Classic,
        log: Arc::new(ReplicaShardLog {
            replicas: Arc::clone(&replicas),
            compression: TargetCompression::Producer,
            clock: clock.clone(),
        }),
        markers: Arc::clone(&markers),
        metadata: Arc::clone(&metadata),
        default_partition_count: config.load().transaction_state_log_num_partitions(),
        clock: clock.clone(),
        shutdown: parts_shutdown.clone(),
    }));

    let me = identity.broker_id;
    let fetchers = Arc::new(Fetchers::new(
        fetcher_options(&config.load(), network.clone()),
        Arc::clone(&replicas),
        Arc::clone(&metadata),
        clock.clone(),
        parts_shutdown.clone(),
    ));
    let roles = Arc::new(Roles {
        replicas: Arc::clone(&replicas),
        fetchers: Arc::clone(&fetchers),
        groups: Arc::clone(&groups),
        transactions: Arc::clone(&transactions),
        turn: Mutex::default(),
    });
    let local = Arc::new(LocalChannel {
        me,
        config: Arc::clone(&config),
        store: Arc::clone(&store),
        metadata: Arc::clone(&metadata),
        replicas: Arc::clone(&replicas),
        groups: Arc::clone(&groups),
        roles: Arc::clone(&roles),
        unsettled: Mutex::default(),
        turn: tokio::sync::Mutex::default(),
        clock: clock.clone(),
    });
    // Before anything waits for the cluster: an ensemble may take long to forget an earlier life of this broker.
    let loading = Loading::start(LoadingParts {
        me,
        replicas: Arc::clone(&replicas),
        roles: Arc::clone(&roles),
        store: Arc::clone(&store),
        producer_expiration_ms: i64::from(config.load().producer_id_expiration_ms()),
        parallelism,
        clock: clock.clone(),
    });

    let bound = |name: &str| {
        let of_name = listeners.iter().find(|(listener, _)| **listener.name() == *name);
        of_name.map(|(listener, _)| listener.port())
    };
    let endpoints = advertised(&config.load(), bound);
    let registered = Registration {
        id: me,
        endpoints: endpoints.clone(),
        rack: config.load().broker_rack().map(str::to_owned),
        timestamp: clock.now(),
        version: registration_version(&config.load()),
    };
    let patience = backend.registration_patience;
    let epoch = registration::register(&*session, &registered, patience).await?;
    replicas.registered(epoch);
    let registered = Arc::new(Mutex::new(registered));

    let (all_failed, all_log_dirs_failed) = watch::channel(false);
    let log_dir_failures = LogDirFailures { local: Arc::clone(&local), all_failed };
    let log_dir_failures =
        task::spawn_owner("log directory failures", log_dir_failures.run(parts_shutdown.clone()));
    let mover = LogDirMover::new(Arc::clone(&replicas), clock.clone(), mover_options(&config.load()));
    let moves = task::spawn_owner("moves between log directories", mover.run(parts_shutdown.clone()));
    let channel = ClusterChannel::new(&config.load(), network.clone(), me, Arc::clone(&local));
    let (controller, controller_handle) =
        controller(&config.load(), me, &clock, &random, Arc::clone(&metrics));
    let link = ControllerLink {
        me,
        replicas: Arc::clone(&replicas),
        controller: controller_handle.clone(),
        peers: peers(&config.load(), &network, me, &metadata),
    };
    let link = Arc::new(link);
    let isr_channel = isr_channel(&config.load(), &link, &store, &clock, &parts_shutdown);
    let alter_isr = AlterIsr::new(Arc::clone(&replicas), isr_channel, clock.clone());
    let alter_isr = task::spawn_owner("ISR changes", alter_isr.run(parts_shutdown.clone()));
    let membership = Membership {
        backend: Arc::clone(&backend),
        current,
        cluster_id: identity.cluster_id.clone(),
        registration: Arc::clone(&registered),
        replicas: Arc::clone(&replicas),
        controller,
        channel: Arc::new(channel),
    };
    let controller =
        task::spawn_owner("controller", membership.run(Arc::clone(&session), parts_shutdown.clone()));

    let admin = Arc::new(Admin::new(
        me,
        Arc::clone(&store),
        Arc::clone(&metadata),
        controller_handle.clone(),
        random.clone(),
        AdminOptions {
            uses_topic_ids: config.load().speaks("2.8-IV0"),
            topic_deletion_enabled: config.load().delete_topic_enable(),
        },
    ));
    let connections = ConnectionTable::new(connection_limits(&config.load()));
    let unknown = FinalizedFeatures { epoch: FinalizedFeatures::NOT_READ, ..FinalizedFeatures::default() };
    let (applied, features) = watch::channel(Arc::new(unknown));

    let (clients, clients_shutdown) = ShutdownTrigger::new();
    let services = Arc::new(Services {
        broker_id: me,
        cluster_id: identity.cluster_id,
        clock: clock.clone(),
        random,
        config: Arc::clone(&config),
        metadata: Arc::clone(&metadata),
        replicas,
        fetch_sessions: FetchSessions::new(FetchSessionOptions {
            slots_max: usize::try_from(config.load().max_incremental_fetch_session_cache_slots())
                .unwrap_or(0),
            look_at_all_ms: (config.load().replica_lag_time_max_ms() / 6).min(3_000),
            ..FetchSessionOptions::default()
        }),
        groups,
        verifier: Arc::new(ClusterVerifier {
            me,
            local: Arc::clone(&transactions),
            metadata: Arc::clone(&metadata),
            peers: peers(&config.load(), &network, me, &metadata),
        }),
        transactions: Arc::clone(&transactions),
        markers,
        controller: controller_handle,
        control: local,
        producer_ids: ProducerIds::new(Arc::clone(&admin), me),
        admin,
        peers: peers(&config.load(), &network, me, &metadata),
        features,
        gate: Gate::default(),
        authorizer: Authorizer::AllowAll,
        quotas: Quotas::Unlimited,
        metrics,
        shutdown: clients_shutdown.clone(),
    });
    let memory_bytes = u64::try_from(config.load().request_memory_max_bytes()).unwrap_or(u64::MAX);
    let memory = RequestMemory::new(memory_bytes);
    let mut ports = Ports {
        services: Arc::clone(&services),
        connections: Arc::clone(&connections),
        memory: Arc::clone(&memory),
        network: network.clone(),
        shutdown: clients_shutdown,
        open: Vec::new(),
    };
    for (listener, endpoint) in listeners {
        ports.open(listener, endpoint)?;
    }
    let applier = ConfigApplier {
        me,
        dynamic,
        config: Arc::clone(&config),
        store: Arc::clone(&store),
        replicas: Arc::clone(&services.replicas),
        fetchers: Arc::clone(&fetchers),
        controller: services.controller.clone(),
        connections: Arc::clone(&connections),
        ports,
        registration: registered,
    };
    let config_changes =
        task::spawn_owner("configuration changes", applier.run(changes, parts_shutdown.clone()));
    // Listeners are open by now: the controller may be another broker.
    wait_until_led(&*session, &metadata, me).await?;
    let applier =
        FeatureApplier { changes: FeatureChanges::new(Arc::clone(&store), me), transactions, applied };
    let features = task::spawn_owner("features", applier.run(parts_shutdown.clone()));
    // Clients choose the generation of the protocol by what they are told first.
    if services
        .features
        .clone()
        .wait_for(|features| features.epoch > FinalizedFeatures::NOT_READ)
        .await
        .is_err()
    {
        return NotReadySnafu { what: "the levels of features are not known" }.fail();
    }
    // What takes a moment only is waited for, so that clients need not ask twice.
    loading.over_within(LOADING_UNSEEN_MAX).await;
    services.gate.open();
    let cleaner = Arc::new(LogCleaner::new(Arc::clone(&logs)));
    let compaction = cleaner::Compaction {
        cleaner: Arc::clone(&cleaner),
        config: Arc::clone(&config),
        metrics: Arc::clone(&services.metrics),
        clock: clock.clone(),
        shutdown: parts_shutdown.clone(),
    };
    let compaction = task::spawn_owner("compaction", cleaner::run(compaction));
    let isr_ticks = ticks::run_isr(
        Arc::clone(&services.replicas),
        Arc::clone(&config),
        clock.clone(),
        parts_shutdown.clone(),
    );
    task::spawn_owner("ISR ticks", isr_ticks);
    let ticks = task::spawn_owner(
        "ticks",
        ticks::run(
            Arc::clone(&logs),
            roles,
            Arc::clone(&services.metrics),
            Arc::clone(&config),
            clock.clone(),
            parts_shutdown,
        ),
    );
    let log_dirs = config.load().log_dirs().to_vec();
    Ok(Broker {
        services,
        clock,
        logs,
        loading,
        session: store,
        backend,
        clients,
        parts,
        controller,
        ticks,
        cleaner,
        compaction,
        config_changes,
        features,
        moves,
        log_dir_failures,
        all_log_dirs_failed,
        alter_isr,
        controller_link: link,
        fetchers,
        connections,
        memory,
        advertised: endpoints,
        log_dirs,
    })
}

/// Who stores what leaders propose: a controller that speaks AlterPartition, or the leaders themselves.
fn isr_channel(
    config: &BrokerConfig,
    link: &Arc<ControllerLink>,
    store: &Arc<dyn Store>,
    clock: &Clock,
    shutdown: &Shutdown,
) -> Arc<dyn IsrChannel> {
    if RequestVersions::of(config.inter_broker_protocol_version()).alter_partition.is_some() {
        return Arc::clone(link) as Arc<dyn IsrChannel>;
    }
    let stored = Arc::new(StoredIsrs::new(Arc::clone(store), clock.clone()));
    task::spawn_owner("ISR announcements", Arc::clone(&stored).announce(shutdown.clone()));
    stored
}

/// Waits until the controller has told of this broker and of every topic: a client that connects earlier would
/// find its topics missing, and create them.
async fn wait_until_led(store: &dyn Store, metadata: &Cache, me: BrokerId) -> Result<(), StartError> {
    let is_known = |image: &Image| image.broker(me).is_some();
    if tokio::time::timeout(READY_MAX, metadata.wait_until(is_known)).await.is_err() {
        return NotReadySnafu { what: "the controller did not tell of this broker" }.fail();
    }
    // A topic without any replica that lives has no leader that could be told of.
    tokio::time::timeout(TOPICS_MAX, wait_for_topics(store, metadata)).await.unwrap_or_else(|_| {
        warn!("the controller did not tell of all topics");
        Ok(())
    })
}

/// Returns once the controller has told of every topic in the store. Topics come and go meanwhile: one that is
/// gone is told of by nobody, so the store is asked again.
async fn wait_for_topics(store: &dyn Store, metadata: &Cache) -> Result<(), StartError> {
    loop {
        let mut topics = store.children(znodes::TOPICS).await.context(StoreSnafu)?;
        let deleted = store.children(znodes::DELETE_TOPICS).await.context(StoreSnafu)?;
        topics.retain(|topic| !deleted.contains(topic));
        let are_told = |image: &Image| topics.iter().all(|topic| image.topic(topic).is_some());
        if tokio::time::timeout(TOPICS_ASKED_EVERY, metadata.wait_until(are_told)).await.is_ok() {
            return Ok(());
        }
    }
}

fn bind(config: &BrokerConfig, network: &Network) -> Result<Vec<Listener>, StartError> {
    let options = listener_options(config).into_iter();
    let bound: Result<Vec<Listener>, _> = options.map(|options| Listener::bind(options, network)).collect();
    Ok(bound?)
}

/// The ports of the settings with what the store adds to them: those of the file that stay, and new ones.
fn rebind(
    mut bound: Vec<(Listener, ConfiguredEndpoint)>,
    config: &BrokerConfig,
    network: &Network,
) -> Result<Vec<(Listener, ConfiguredEndpoint)>, StartError> {
    let wanted = &config.listeners().bound;
    bound.retain(|(_, endpoint)| wanted.contains(endpoint));
    let mut listeners = Vec::with_capacity(wanted.len());
    for (options, endpoint) in listener_options(config).into_iter().zip(wanted) {
        let kept = bound.iter().position(|(_, bound)| bound == endpoint);
        let listener = match kept {
            Some(at) => bound.swap_remove(at).0,
            None => Listener::bind(options, network)?,
        };
        listeners.push((listener, endpoint.clone()));
    }
    Ok(listeners)
}

/// Refuses folders that cannot be served, before anything is written.
fn check_folders(
    directories: &LogDirectories,
    paths: &[PathBuf],
    has_ensemble: bool,
    file_system: &dyn FileSystem,
) -> Result<(), StartError> {
    let first = paths.first().cloned().unwrap_or_default();
    // What is wrong with the folder is told when the store in it is opened.
    let has_store = EmbeddedStore::exists(file_system, &first).unwrap_or(true);
    let stored = directories.read_meta_properties().context(LogDirectoriesSnafu)?;
    let owned = stored.into_iter().filter_map(|(path, found)| Some((path, found?)));
    for (path, MetaProperties { mode, cluster_id, .. }) in owned {
        if has_ensemble {
            ensure!(mode == ClusterMode::ZooKeeper, KRaftFolderSnafu { path });
        } else if let Some(cluster_id) = cluster_id {
            ensure!(has_store, NotAdoptedSnafu { path, cluster_id, first });
        }
    }
    Ok(())
}

struct Identity {
    broker_id: BrokerId,
    cluster_id: String,
}

/// Who this broker is, from the configuration, its folders and the store, which must agree.
async fn identify(
    store: &dyn Store,
    config: &BrokerConfig,
    directories: &LogDirectories,
    random: &Random,
) -> Result<Identity, StartError> {
    let stored = directories.read_meta_properties().context(LogDirectoriesSnafu)?;
    registration::create_top_level_nodes(store).await.context(StoreSnafu)?;
    let cluster_id = registration::cluster_id(store, random).await.context(StoreSnafu)?;
    let mut stored_id = None;
    for (path, properties) in &stored {
        let Some(properties) = properties else { continue };
        if let Some(found) = properties.cluster_id.clone().filter(|found| *found != cluster_id) {
            return OtherClusterSnafu { path, found, expected: cluster_id }.fail();
        }
        if let Some(found) = properties.broker_id {
            let expected = config.broker_id().or(stored_id).unwrap_or(found);
            ensure!(found == expected, OtherBrokerSnafu { path, found, expected });
            stored_id = Some(found);
        }
    }
    let broker_id = match config.broker_id().or(stored_id) {
        Some(id) => id,
        None => {
            ensure!(config.broker_id_generation_enable(), NoBrokerIdSnafu);
            let reserved = config.reserved_broker_max_id();
            registration::generate_broker_id(store, reserved).await.context(StoreSnafu)?
        }
    };
    // A new folder beside others is of their kind.
    let mut known = stored.iter().filter_map(|(_, found)| found.as_ref());
    let mode = known.next().map_or(ClusterMode::ZooKeeper, |known| known.mode);
    let properties =
        MetaProperties { mode, broker_id: Some(broker_id), cluster_id: Some(cluster_id.clone()) };
    directories.write_meta_properties(&properties).context(LogDirectoriesSnafu)?;
    Ok(Identity { broker_id, cluster_id })
}

/// The settings of all topics before the first log is opened.
fn stored_topic_settings(
    me: BrokerId,
    stored: &[StoredConfig],
    config: &BrokerConfig,
) -> HashMap<TopicName, TopicSettings> {
    let own = stored.iter().filter_map(|(entity, overrides)| match entity {
        ConfigEntity::Topic(topic) => {
            Some((topic.clone(), topic_settings(me, &topic_config(topic, overrides, config)?)))
        }
        _ => None,
    });
    own.collect()
}

async fn find_logs(
    directories: LogDirectories,
    clock: &Clock,
    random: &Random,
) -> Result<LogManager, StartError> {
    let (now, random) = (clock.now(), random.clone());
    let found = blocking(move || LogManager::open(directories, random, now)).await;
    found.context(LogDirectoriesSnafu)
}

fn groups(
    config: &BrokerConfig,
    replicas: &Arc<ReplicaManager>,
    metadata: &Arc<Cache>,
    clock: &Clock,
    random: &Random,
) -> GroupService {
    let commit_timeout_ms = config.offsets_commit_timeout_ms();
    let log = ReplicaShardLog {
        replicas: Arc::clone(replicas),
        compression: target_compression(config.offsets_topic_compression()),
        clock: clock.clone(),
    };
    GroupService::new(GroupServiceParts {
        options: GroupOptions {
            session_timeout_ms_min: config.group_min_session_timeout_ms(),
            session_timeout_ms_max: config.group_max_session_timeout_ms(),
            group_size_max: usize::try_from(config.group_max_size()).unwrap_or(usize::MAX),
            initial_rebalance_delay_ms: config.group_initial_rebalance_delay_ms(),
            offset_metadata_size_max: usize::try_from(config.offset_metadata_max_bytes()).unwrap_or(0),
            offsets_retention_ms: i64::from(config.offsets_retention_minutes()) * 60_000,
            offsets_retention_check_interval_ms: config.offsets_retention_check_interval_ms(),
            offset_commit_timeout_ms: i64::from(commit_timeout_ms),
        },
        log: Arc::new(log),
        metadata: Arc::clone(metadata),
        default_partition_count: config.offsets_topic_num_partitions(),
        clock: clock.clone(),
        random: random.clone(),
    })
}

fn controller(
    config: &BrokerConfig,
    me: BrokerId,
    clock: &Clock,
    random: &Random,
    metrics: Arc<Metrics>,
) -> (Controller, ControllerHandle) {
    let speaks = |level| config.speaks(level);
    Controller::new(ControllerOptions {
        settings: Settings {
            broker_id: me,
            topic_deletion_enabled: config.delete_topic_enable(),
            unclean_election_by_default: config.topic_defaults().unclean_leader_election_enable,
            leader_imbalance_percentage: config.leader_imbalance_per_broker_percentage(),
            marks_recovery: speaks("3.2-IV0"),
        },
        uses_topic_ids: speaks("2.8-IV0"),
        feature_form: FeatureForm {
            status: if speaks("2.7-IV0") { FeatureStatus::Enabled } else { FeatureStatus::Disabled },
            version: if speaks("3.3-IV0") { 2 } else { 1 },
        },
        balance_interval: config.auto_leader_rebalance_enable().then(|| {
            let seconds = config.leader_imbalance_check_interval_seconds();
            Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX))
        }),
        clock: clock.clone(),
        random: random.clone(),
        metrics,
    })
}

/// The form of the registration that all brokers of the cluster can read.
fn registration_version(config: &BrokerConfig) -> znodes::BrokerVersion {
    match () {
        () if config.speaks("2.7-IV0") => znodes::BrokerVersion::V5,
        () if config.speaks("0.10.0-IV1") => znodes::BrokerVersion::V4,
        () => znodes::BrokerVersion::V2,
    }
}

/// Connections to the other brokers for one purpose: requests of one kind do not wait behind those of another.
fn peers(config: &BrokerConfig, network: &Network, me: BrokerId, metadata: &Arc<Cache>) -> Arc<Peers> {
    let timeout_ms = u64::try_from(config.request_timeout_ms()).unwrap_or(0);
    let options = ConnectionOptions {
        network: network.clone(),
        client_id: me.to_string().into(),
        request_timeout: Duration::from_millis(timeout_ms),
    };
    let listener = config.listeners().inter_broker.as_str().to_owned();
    let versions = RequestVersions::of(config.inter_broker_protocol_version());
    Arc::new(Peers::new(Arc::clone(metadata), listener, options, versions))
}

/// What clients are told, with the bound ports where the settings leave them open.
pub(super) fn advertised(config: &BrokerConfig, bound_port: impl Fn(&str) -> Option<u16>) -> Vec<Endpoint> {
    let endpoints = config.listeners().advertised.iter().map(|endpoint| {
        let port = match endpoint.port {
            0 => bound_port(endpoint.listener.as_str()).unwrap_or(0),
            port => port,
        };
        let host = if endpoint.host.is_empty() { host_name() } else { endpoint.host.clone() };
        let security_protocol = endpoint.security_protocol.name().to_owned();
        Endpoint { listener: endpoint.listener.as_str().to_owned(), security_protocol, host, port }
    });
    endpoints.collect()
}

/// This machine's name, as other machines should know it.
fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if name.is_empty() { "localhost".to_owned() } else { name }
}
