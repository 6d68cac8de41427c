use snafu::{OptionExt, Snafu};
use tracing::debug;

use super::Admin;
use crate::controller::patience::{self, RETRY_PAUSE, is_unknown};
use crate::coordination::znodes::{self, ProducerIdBlock, ZnodeError};
use crate::coordination::{StoreError, znodes::PRODUCER_ID_BLOCK};
use crate::model::BrokerId;

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
