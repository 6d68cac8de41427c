//! Who is the controller: the election through `/controller` and `/controller_epoch`.

use crate::coordination::{Create, CreateMode, Operation, OperationResult, Store, StoreError, znodes};
use crate::model::{BrokerId, ControllerEpoch, Timestamp};

use super::nodes;
use super::patience::{self, is_unknown};

/// The right to act as controller, until someone else is elected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub epoch: ControllerEpoch,
    /// The version of `/controller_epoch` that this election made; every write of the term checks it.
    pub epoch_version: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Won(Term),
    /// Another broker, or an earlier session of this one, is the controller.
    Lost {
        controller: BrokerId,
    },
    /// The controller went while the election was on: stand again.
    Undecided,
}

/// Tries to become the controller. Of any number of candidates at most one wins an epoch.
pub(super) async fn stand(
    store: &dyn Store,
    broker_id: BrokerId,
    now: Timestamp,
) -> Result<Outcome, StoreError> {
    if let Some(node) = patience::read(store, znodes::CONTROLLER).await? {
        if node.stat.ephemeral_owner != store.session_id() {
            return Ok(Outcome::Lost { controller: nodes::decode_controller(&node) });
        }
        // Left of a term of this session that was fenced: nobody would act as long as it is there.
        return match store.delete(znodes::CONTROLLER, Some(node.stat.version)).await {
            Err(error @ (StoreError::SessionExpired | StoreError::Failed { .. })) => Err(error),
            _ => Ok(Outcome::Undecided),
        };
    }
    let (epoch, version) = read_or_create_epoch(store).await?;
    let next = ControllerEpoch(epoch.0 + 1);
    let claim = vec![
        Operation::Create(Create {
            path: znodes::CONTROLLER.to_owned(),
            data: Some(znodes::Controller { broker_id, timestamp: now }.encode()),
            mode: CreateMode::Ephemeral,
        }),
        Operation::Set {
            path: znodes::CONTROLLER_EPOCH.to_owned(),
            data: Some(znodes::encode_controller_epoch(next)),
            version: Some(version),
        },
    ];
    match store.multi(claim).await {
        Ok(results) => {
            let epoch_version = match results.get(1) {
                Some(OperationResult::Set(stat)) => stat.version,
                _ => version + 1,
            };
            Ok(Outcome::Won(Term { epoch: next, epoch_version }))
        }
        Err((_, StoreError::NodeExists { .. } | StoreError::BadVersion { .. })) => {
            after_contest(store, next).await
        }
        // The claim may have been granted and its answer lost.
        Err((_, error)) if is_unknown(&error) => after_contest(store, next).await,
        Err((_, error)) => Err(error),
    }
}

/// The session that owns `/controller` tells whether our claim was granted; the broker id would not, because
/// an earlier session of this broker may still hold it.
async fn after_contest(store: &dyn Store, claimed: ControllerEpoch) -> Result<Outcome, StoreError> {
    let Some(node) = patience::read(store, znodes::CONTROLLER).await? else { return Ok(Outcome::Undecided) };
    let controller = nodes::decode_controller(&node);
    if node.stat.ephemeral_owner != store.session_id() {
        return Ok(Outcome::Lost { controller });
    }
    let (epoch, epoch_version) = read_or_create_epoch(store).await?;
    if epoch == claimed {
        Ok(Outcome::Won(Term { epoch, epoch_version }))
    } else {
        Ok(Outcome::Lost { controller })
    }
}

async fn read_or_create_epoch(store: &dyn Store) -> Result<(ControllerEpoch, i32), StoreError> {
    loop {
        if let Some(node) = patience::read(store, znodes::CONTROLLER_EPOCH).await? {
            let epoch = nodes::decode_epoch(&node);
            return Ok((epoch, node.stat.version));
        }
        let first = Create {
            path: znodes::CONTROLLER_EPOCH.to_owned(),
            data: Some(znodes::encode_controller_epoch(ControllerEpoch(0))),
            mode: CreateMode::Persistent,
        };
        match store.create(first).await {
            Ok(_) | Err(StoreError::NodeExists { .. }) => {}
            Err(error) if is_unknown(&error) => {}
            Err(error) => return Err(error),
        }
    }
}
