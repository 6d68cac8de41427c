use std::collections::VecDeque;
use std::sync::Arc;

use tracing::{debug, warn};

use super::nodes::readable;
use super::patience::{self, until_answered};
use crate::config::Properties;
use crate::coordination::znodes::{self, ConfigEntity, EntityConfig};
use crate::coordination::{Store, StoreError, Watcher};
use crate::model::Timestamp;
use crate::runtime::Clock;

/// The configurations in the store, as they change: of topics, brokers, users, clients, addresses.
///
/// A change is told once it was notified, with the configuration as it stands by then; changes that follow
/// quickly may be told as one, and one may be told twice.
pub struct ConfigChanges {
    store: Arc<dyn Store>,
    clock: Clock,
    /// `None` once it fired, until it is set again.
    watcher: Option<Watcher>,
    /// The number of the last notification that was told.
    last: Option<i32>,
    /// Entities still to be told.
    pending: VecDeque<ConfigEntity>,
    /// The notifications that are still there and when they were made, oldest first.
    notifications: VecDeque<(Timestamp, String)>,
}

/// An entity and all that is stored for it; empty when its configuration was removed.
pub type StoredConfig = (ConfigEntity, Properties);

/// Every broker has read a notification by then, or will read everything when it comes back.
const NOTIFICATIONS_KEPT_MS: i64 = 15 * 60 * 1000;

impl ConfigChanges {
    /// Reads everything that is configured, and listens from then on.
    pub async fn subscribe(
        store: Arc<dyn Store>,
        clock: Clock,
    ) -> Result<(Vec<StoredConfig>, ConfigChanges), StoreError> {
        let (names, watcher) = until_answered(|| store.children_and_watch(znodes::CONFIG_CHANGES)).await?;
        let mut changes = ConfigChanges {
            store,
            clock,
            watcher: Some(watcher),
            last: None,
            pending: VecDeque::new(),
            notifications: VecDeque::new(),
        };
        // What has been notified so far is in what is read next.
        changes.note(names).await?;
        changes.pending.clear();
        let configs = read_all(&*changes.store).await?;
        Ok((configs, changes))
    }

    /// The next change; ends with an error when the session does. A call that is dropped loses nothing.
    pub async fn next(&mut self) -> Result<StoredConfig, StoreError> {
        loop {
            if let Some(entity) = self.pending.front() {
                let config = read_config(&*self.store, entity).await?;
                if let Some(entity) = self.pending.pop_front() {
                    debug!(entity = entity.entity_path(), "configuration changed");
                    return Ok((entity, config));
                }
            }
            if let Some(watcher) = &mut self.watcher {
                // An error means that the session is over, which the next read tells.
                let _ = watcher.await;
                self.watcher = None;
            }
            let (names, watcher) =
                until_answered(|| self.store.children_and_watch(znodes::CONFIG_CHANGES)).await?;
            self.note(names).await?;
            self.watcher = Some(watcher);
            self.remove_old().await?;
        }
    }

    /// Queues what notifications after the last one say. Children of other names are no notifications, and
    /// must not stand in the way of those that are.
    async fn note(&mut self, names: Vec<String>) -> Result<(), StoreError> {
        let mut new: Vec<(i32, String)> = names
            .into_iter()
            .filter_map(|name| {
                let number = znodes::sequence_number(&name, znodes::CONFIG_CHANGE_PREFIX)?;
                let path = format!("{}/{name}", znodes::CONFIG_CHANGES);
                self.last.is_none_or(|last| number > last).then_some((number, path))
            })
            .collect();
        new.sort_unstable();
        let paths: Vec<String> = new.iter().map(|(_, path)| path.clone()).collect();
        let nodes = patience::read_each(&*self.store, &paths).await?;
        for ((number, path), node) in new.into_iter().zip(nodes) {
            self.last = Some(number);
            let Some(node) = node else { continue };
            if let Some(change) = readable(&path, znodes::ConfigChange::decode(&node))
                && !self.pending.contains(&change.0)
            {
                self.pending.push_back(change.0);
            }
            self.notifications.push_back((Timestamp(node.stat.created_ms), path));
        }
        Ok(())
    }

    async fn remove_old(&mut self) -> Result<(), StoreError> {
        let oldest = self.clock.now().plus_ms(-NOTIFICATIONS_KEPT_MS);
        while self.notifications.front().is_some_and(|(made, _)| *made < oldest) {
            let Some((_, path)) = self.notifications.pop_front() else { break };
            match until_answered(|| self.store.delete(&path, None)).await {
                Ok(()) | Err(StoreError::NoNode { .. }) => {}
                Err(error @ StoreError::SessionExpired) => return Err(error),
                Err(error) => warn!(path, %error, "an old notification was not removed"),
            }
        }
        Ok(())
    }
}

async fn read_config(store: &dyn Store, entity: &ConfigEntity) -> Result<Properties, StoreError> {
    let path = entity.path();
    let node = patience::read(store, &path).await?;
    let config = node.and_then(|node| readable(&path, EntityConfig::decode(&node)));
    Ok(config.map(|config| config.0.into_iter().collect()).unwrap_or_default())
}

/// All entities that have a configuration.
async fn read_all(store: &dyn Store) -> Result<Vec<StoredConfig>, StoreError> {
    let mut paths = Vec::new();
    for kind in ["topics", "brokers", "clients", "users", "ips"] {
        let names = patience::children(store, &format!("{}/{kind}", znodes::CONFIG)).await?;
        paths.extend(names.into_iter().map(|name| format!("{kind}/{name}")));
    }
    let users: Vec<String> = paths.iter().filter(|path| path.starts_with("users/")).cloned().collect();
    for user in users {
        let clients = patience::children(store, &format!("{}/{user}/clients", znodes::CONFIG)).await?;
        paths.extend(clients.into_iter().map(|client| format!("{user}/clients/{client}")));
    }
    let nodes: Vec<String> = paths.iter().map(|path| format!("{}/{path}", znodes::CONFIG)).collect();
    let mut configs = Vec::new();
    for ((entity, path), node) in paths.iter().zip(&nodes).zip(patience::read_each(store, &nodes).await?) {
        let (Some(entity), Some(node)) = (ConfigEntity::from_entity_path(entity), node) else { continue };
        if let Some(config) = readable(path, EntityConfig::decode(&node))
            && node.data.is_some()
        {
            configs.push((entity, config.0.into_iter().collect()));
        }
    }
    Ok(configs)
}
