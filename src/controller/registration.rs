//! A broker's way into the cluster: the top-level nodes, the cluster's id, its own id, its registration.

use std::time::Duration;

use bytes::Bytes;
use snafu::{Snafu, ensure};
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use super::nodes;
use super::patience::{self, is_unknown, until_answered};
use crate::coordination::{Create, CreateMode, Operation, OperationResult, Stat, Store, StoreError, znodes};
use crate::metadata::control::Endpoint;
use crate::model::{BrokerEpoch, BrokerId, Timestamp};
use crate::runtime::Random;

/// What a broker tells the cluster about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    pub id: BrokerId,
    /// As advertised, ports bound.
    pub endpoints: Vec<Endpoint>,
    pub rack: Option<String>,
    /// When it started.
    pub timestamp: Timestamp,
    /// Follows from `inter.broker.protocol.version`.
    pub version: znodes::BrokerVersion,
}

/// Why a broker cannot join.
#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
pub enum RegistrationError {
    #[snafu(display("a live broker is registered with id {id} already"))]
    IdInUse { id: BrokerId },
    #[snafu(display("broker {other} advertises {host}:{port} already"))]
    EndpointInUse { host: String, port: u16, other: BrokerId },
    #[snafu(display("the store belongs to cluster {found:?}, this broker to {expected}"))]
    OtherCluster { expected: String, found: Option<String> },
    #[snafu(display("cannot use the store: {source}"), context(false))]
    Store { source: StoreError },
}

/// The persistent nodes that everybody expects, with null data.
pub async fn create_top_level_nodes(store: &dyn Store) -> Result<(), StoreError> {
    let creations: Vec<_> =
        znodes::CREATED_AT_START.iter().map(|path| store.create(persistent(path, None))).collect();
    for (path, creation) in znodes::CREATED_AT_START.iter().zip(creations) {
        match creation.await {
            Ok(_) | Err(StoreError::NodeExists { .. }) => {}
            Err(error) if is_unknown(&error) => create_again(store, path).await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The id of the cluster; the first broker makes it up.
pub async fn cluster_id(store: &dyn Store, random: &Random) -> Result<String, StoreError> {
    loop {
        if let Some(node) = patience::read(store, znodes::CLUSTER_ID).await?
            && let Some(id) = nodes::decode_cluster_id(&node)
        {
            return Ok(id);
        }
        let id = super::loader::new_topic_id(random).to_string();
        let node = persistent(znodes::CLUSTER_ID, Some(znodes::ClusterId(id.clone()).encode()));
        match store.create(node).await {
            Ok(_) => info!(cluster_id = %id, "a new cluster"),
            Err(StoreError::NodeExists { .. }) => {}
            Err(error) if is_unknown(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A broker id that nobody has: above `reserved_max`, which `reserved.broker.max.id` sets.
pub async fn generate_broker_id(store: &dyn Store, reserved_max: i32) -> Result<BrokerId, StoreError> {
    // A lost answer wastes a number, which does no harm.
    let stat = until_answered(|| store.set(znodes::BROKER_SEQUENCE, Some(Bytes::new()), None)).await?;
    Ok(BrokerId(reserved_max.saturating_add(stat.version)))
}

/// Registers a broker again, in another session, with the cluster that it belongs to: a store that lost its data,
/// or is another one's by now, must not make brokers forget theirs.
pub async fn register_again(
    store: &dyn Store,
    registration: &Registration,
    cluster_id: &str,
    patience: Duration,
) -> Result<BrokerEpoch, RegistrationError> {
    let node = patience::read(store, znodes::CLUSTER_ID).await?;
    let found = node.and_then(|node| nodes::decode_cluster_id(&node));
    ensure!(found.as_deref() == Some(cluster_id), OtherClusterSnafu { expected: cluster_id, found });
    register(store, registration, patience).await
}

/// Registers a broker until its session ends and gives its epoch.
///
/// Where an earlier session of this broker has not expired yet, waits up to `patience` for it. Refused when
/// another live broker has the id or advertises one of the endpoints.
pub async fn register(
    store: &dyn Store,
    registration: &Registration,
    patience: Duration,
) -> Result<BrokerEpoch, RegistrationError> {
    check_endpoints(store, registration).await?;
    let path = znodes::broker(registration.id);
    let deadline = Instant::now() + patience;
    let epoch = loop {
        // Only the wait for another holder of the id is bounded: the store may be slow on its own account.
        match create_registration(store, &path, registration).await? {
            Some(epoch) => break epoch,
            None => match timeout_at(deadline, until_gone(store, &path)).await {
                Ok(gone) => gone?,
                Err(_) => return Err(RegistrationError::IdInUse { id: registration.id }),
            },
        }
    };
    info!(broker_id = registration.id.0, broker_epoch = epoch.0, "registered");
    Ok(epoch)
}

/// Rewrites the registration after the endpoints changed. The epoch stays.
pub async fn update(store: &dyn Store, registration: &Registration) -> Result<(), StoreError> {
    let path = znodes::broker(registration.id);
    let data = nodes::encode_broker(registration);
    until_answered(|| store.set(&path, Some(data.clone()), None)).await?;
    Ok(())
}

/// `None` = another session holds the id.
async fn create_registration(
    store: &dyn Store,
    path: &str,
    registration: &Registration,
) -> Result<Option<BrokerEpoch>, StoreError> {
    let create = Create { path: path.to_owned(), data: None, mode: CreateMode::Ephemeral };
    // Created empty and then set: Kafka does so, and tools know a registration by version 1.
    let set = Operation::Set {
        path: path.to_owned(),
        data: Some(nodes::encode_broker(registration)),
        version: Some(0),
    };
    match store.multi(vec![Operation::Create(create), set]).await {
        Ok(results) => Ok(results.first().and_then(created).map(|stat| BrokerEpoch(stat.czxid))),
        Err((_, StoreError::NodeExists { .. })) => own_registration(store, path).await,
        Err((_, error)) if is_unknown(&error) => own_registration(store, path).await,
        Err((_, error)) => Err(error),
    }
}

/// A registration of this very session is ours: only its answer was lost.
async fn own_registration(store: &dyn Store, path: &str) -> Result<Option<BrokerEpoch>, StoreError> {
    let stat = until_answered(|| store.exists(path)).await?;
    let ours = stat.filter(|stat| stat.ephemeral_owner == store.session_id());
    Ok(ours.map(|stat| BrokerEpoch(stat.czxid)))
}

async fn until_gone(store: &dyn Store, path: &str) -> Result<(), StoreError> {
    let (stat, watcher) = until_answered(|| store.exists_and_watch(path)).await?;
    if let Some(stat) = stat {
        warn!(owner = stat.ephemeral_owner, "the broker's id is taken, perhaps by its own earlier session");
        // An error means that the session is over, which the next call tells.
        let _ = watcher.await;
    }
    Ok(())
}

async fn check_endpoints(store: &dyn Store, registration: &Registration) -> Result<(), RegistrationError> {
    let ids = patience::children(store, znodes::BROKER_IDS).await?;
    let others: Vec<BrokerId> = ids
        .iter()
        .filter_map(|id| id.parse().ok())
        .map(BrokerId)
        .filter(|&id| id != registration.id)
        .collect();
    let paths: Vec<String> = others.iter().map(|&id| znodes::broker(id)).collect();
    for (other, node) in others.into_iter().zip(patience::read_each(store, &paths).await?) {
        let Some(broker) = node.and_then(|node| nodes::decode_broker(other, &node)) else { continue };
        for Endpoint { host, port, .. } in &registration.endpoints {
            let is_taken = broker.endpoints.iter().any(|taken| taken.host == *host && taken.port == *port);
            ensure!(!is_taken, EndpointInUseSnafu { host: host.clone(), port: *port, other });
        }
    }
    Ok(())
}

async fn create_again(store: &dyn Store, path: &str) -> Result<(), StoreError> {
    match until_answered(|| store.create(persistent(path, None))).await {
        Ok(_) | Err(StoreError::NodeExists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn persistent(path: &str, data: Option<Bytes>) -> Create {
    Create { path: path.to_owned(), data, mode: CreateMode::Persistent }
}

fn created(result: &OperationResult) -> Option<&Stat> {
    match result {
        OperationResult::Created { stat, .. } => Some(stat),
        OperationResult::Set(_) | OperationResult::Deleted | OperationResult::Checked => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::testing::registration;
    use super::*;
    use crate::coordination::MemoryEnsemble;

    const PATIENCE: Duration = Duration::from_secs(10);

    async fn cluster() -> MemoryEnsemble {
        let ensemble = MemoryEnsemble::new();
        create_top_level_nodes(&ensemble.session()).await.unwrap();
        ensemble
    }

    #[tokio::test]
    async fn the_first_broker_names_the_cluster_for_all() {
        let ensemble = cluster().await;
        create_top_level_nodes(&ensemble.session()).await.unwrap();
        let first = cluster_id(&ensemble.session(), &Random::from_seed(1)).await.unwrap();
        let second = cluster_id(&ensemble.session(), &Random::from_seed(2)).await.unwrap();
        assert_eq!((first.len(), &first), (22, &second));
    }

    #[tokio::test]
    async fn generated_ids_stand_above_the_reserved_ones() {
        let ensemble = cluster().await;
        assert_eq!(generate_broker_id(&ensemble.session(), 1000).await, Ok(BrokerId(1001)));
        assert_eq!(generate_broker_id(&ensemble.session(), 1000).await, Ok(BrokerId(1002)));
    }

    #[tokio::test]
    async fn the_epoch_is_the_czxid_and_survives_an_update() {
        let ensemble = cluster().await;
        let store = ensemble.session();
        let epoch = register(&store, &registration(1), PATIENCE).await.unwrap();
        update(&store, &Registration { rack: Some("r1".into()), ..registration(1) }).await.unwrap();
        let node = store.read("/brokers/ids/1").await.unwrap();
        let broker = nodes::decode_broker(BrokerId(1), &node).unwrap();
        assert_eq!((broker.epoch, broker.rack.as_deref()), (epoch, Some("r1")));
    }

    #[tokio::test]
    async fn a_registration_whose_answer_was_lost_is_recognized() {
        let ensemble = cluster().await;
        let store = Arc::new(ensemble.session());
        ensemble.disconnect_after_next_write(store.session_id());
        let registering = tokio::spawn({
            let store = Arc::clone(&store);
            async move { register(&*store, &registration(1), PATIENCE).await }
        });
        while ensemble.session().exists("/brokers/ids/1").await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
        ensemble.reconnect(store.session_id());
        assert!(registering.await.unwrap().is_ok());
    }

    /// C063: a broker that was killed and is back before its session expired.
    #[tokio::test(start_paused = true)]
    async fn an_earlier_session_of_the_broker_is_waited_for() {
        let ensemble = cluster().await;
        let killed = ensemble.session();
        let old = register(&killed, &registration(1), PATIENCE).await.unwrap();
        let session = ensemble.session();
        let waiting = tokio::spawn(async move { register(&session, &registration(1), PATIENCE).await });
        tokio::task::yield_now().await;
        ensemble.expire_session(killed.session_id());
        assert!(waiting.await.unwrap().unwrap() > old);
    }

    #[tokio::test(start_paused = true)]
    async fn the_id_of_a_broker_that_stays_alive_is_refused() {
        let ensemble = cluster().await;
        let alive = ensemble.session();
        register(&alive, &registration(1), PATIENCE).await.unwrap();
        let refused = register(&ensemble.session(), &registration(1), PATIENCE).await;
        assert_eq!(refused, Err(RegistrationError::IdInUse { id: BrokerId(1) }));
    }

    #[tokio::test]
    async fn an_endpoint_of_another_broker_is_refused() {
        let ensemble = cluster().await;
        let alive = ensemble.session();
        register(&alive, &registration(1), PATIENCE).await.unwrap();
        let same_endpoint = Registration { id: BrokerId(2), ..registration(1) };
        let refused = register(&ensemble.session(), &same_endpoint, PATIENCE).await.unwrap_err();
        assert_eq!(refused.to_string(), "broker 1 advertises 127.0.0.1:19101 already");
    }
}
