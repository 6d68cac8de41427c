use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::control::UpdateMetadataRequest;
use super::image::{Changes, Image};

/// The current [`Image`], replaced by each UpdateMetadata.
///
/// Readers take no lock and keep one consistent image as long as they hold it. Whoever waits for the cluster
/// to reach a state uses [`Cache::wait_until`].
#[derive(Debug)]
pub struct Cache {
    image: ArcSwap<Image>,
    /// Updates are rare; the lock keeps two of them from losing each other's changes.
    updating: Mutex<()>,
    version: watch::Sender<u64>,
}

impl Default for Cache {
    fn default() -> Self {
        Cache { image: ArcSwap::default(), updating: Mutex::default(), version: watch::Sender::new(0) }
    }
}

impl Cache {
    pub fn image(&self) -> Arc<Image> {
        self.image.load_full()
    }

    /// Makes the update visible to all readers, then wakes those who wait for it.
    ///
    /// Does not check who sent it: the caller has compared controller and broker epochs.
    pub fn apply(&self, request: UpdateMetadataRequest) -> Changes {
        let changes = {
            let _updating = self.updating.lock();
            let (next, changes) = self.image.load().apply(request);
            self.image.store(Arc::new(next));
            changes
        };
        self.version.send_modify(|version| *version += 1);
        changes
    }

    /// Counts the updates.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Waits for an image of which `is_reached` holds and returns it. May wait for ever: bound it by a timeout.
    pub async fn wait_until(&self, mut is_reached: impl FnMut(&Image) -> bool) -> Arc<Image> {
        let mut version = self.subscribe();
        loop {
            // Seen before the image is looked at, so that an update in between wakes us again.
            version.borrow_and_update();
            let image = self.image();
            if is_reached(&image) {
                return image;
            }
            // Fails only when the sender is gone, which `self` owns.
            let _ = version.changed().await;
        }
    }
}
