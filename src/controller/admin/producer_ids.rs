use std::sync::Arc;

use snafu::{OptionExt, Snafu};
use tokio::sync::Mutex;
use tracing::debug;

use super::Admin;
use crate::controller::patience::{self, RETRY_PAUSE, is_unknown};
use crate::coordination::znodes::{self, ProducerIdBlock, ZnodeError};
use crate::coordination::{StoreError, znodes::PRODUCER_ID_BLOCK};
use crate::model::{BrokerId, ProducerId};

/// Why no producer ids could be had.
#[derive(Debug, Clone, PartialEq, Eq, Snafu)]
pub enum ProducerIdsError {
    /// The node is damaged: to begin anew would give ids out twice.
    #[snafu(display("{} cannot be read: {source}", znodes::PRODUCER_ID_BLOCK), context(false))]
    Unreadable { source: ZnodeError },
    #[snafu(display("all producer ids have been given out"))]
    Exhausted,
    #[snafu(display("{source}"), context(false))]
    Store { source: StoreError },
}

impl ProducerIdsError {
    /// The session is over, which the broker has said: it joins again, and whoever wants ids asks again.
    pub fn will_pass(&self) -> bool {
        matches!(self, ProducerIdsError::Store { source: StoreError::SessionExpired })
    }
}

impl Admin {
    /// A block of producer ids that nobody else gets.
    pub async fn allocate_producer_ids(&self, to: BrokerId) -> Result<ProducerIdBlock, ProducerIdsError> {
        let store = self.store();
        loop {
            let read = patience::read(&*store, PRODUCER_ID_BLOCK).await?;
            let node = read.ok_or_else(|| StoreError::NoNode { path: PRODUCER_ID_BLOCK.to_owned() })?;
            let block = match ProducerIdBlock::decode(&node)? {
                Some(last) => last.next(to).context(ExhaustedSnafu)?,
                None => ProducerIdBlock::initial(to),
            };
            match store.set(PRODUCER_ID_BLOCK, Some(block.encode()), Some(node.stat.version)).await {
                Ok(_) => {
                    debug!(broker_id = to.0, producer_id = block.first.0, "a block of producer ids");
                    return Ok(block);
                }
                Err(StoreError::BadVersion { .. }) => {}
                // Perhaps written: then the next turn leaves a block unused.
                Err(error) if is_unknown(&error) => tokio::time::sleep(RETRY_PAUSE).await,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Gives out producer ids one by one, from blocks of the store. What is left of a block is lost with the
/// process, so that no id is given out twice.
pub struct ProducerIds {
    admin: Arc<Admin>,
    broker_id: BrokerId,
    /// Held while a block is fetched, so that all who wait share it.
    block: Mutex<Option<ProducerIdBlock>>,
}

impl ProducerIds {
    pub fn new(admin: Arc<Admin>, broker_id: BrokerId) -> ProducerIds {
        ProducerIds { admin, broker_id, block: Mutex::default() }
    }

    pub async fn next(&self) -> Result<ProducerId, ProducerIdsError> {
        let mut rest = self.block.lock().await;
        let mut block = match rest.take() {
            Some(block) => block,
            None => self.admin.allocate_producer_ids(self.broker_id).await?,
        };
        let id = block.first;
        if id < block.last {
            block.first = ProducerId(id.0 + 1);
            *rest = Some(block);
        }
        Ok(id)
    }
}
