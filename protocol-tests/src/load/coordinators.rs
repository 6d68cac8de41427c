use tokio::task::JoinSet;
use wire::describe_transactions_request::DescribeTransactionsRequest;
use wire::offset_fetch_request::{OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use wire::{FindCoordinatorRequest, OffsetCommitRequest};

use super::error::check;
use super::requests::{Patience, create_topic};
use super::transactions::{init, open_coordinator};
use super::{LoadConnection, LoadError};
use crate::requests::commit_request;

/// So many transactional ids, and as many groups with one committed offset.
#[derive(Clone, Debug)]
pub struct Coordinated {
    pub prefix: String,
    pub count: usize,
}

/// Connections that fill the coordinators at once.
const WRITERS: usize = 16;
/// Ids or groups that one request asks for.
const ASKED_AT_ONCE: usize = 500;
const OFFSET: i64 = 7;

impl Coordinated {
    fn name(&self, index: usize) -> String {
        format!("{}-{index}", self.prefix)
    }

    fn names(&self) -> Vec<String> {
        (0..self.count).map(|index| self.name(index)).collect()
    }
}

/// Gives each transactional id its producer, and commits an offset for each group.
pub async fn fill_coordinators(address: &str, coordinated: &Coordinated) -> Result<(), LoadError> {
    create_topic(address, &coordinated.prefix, 1).await?;
    drop(open_coordinator(address, &coordinated.prefix).await?);
    await_group_coordinator(address, &coordinated.prefix).await?;
    let mut running = JoinSet::new();
    for writer in 0..WRITERS {
        let (address, coordinated) = (address.to_owned(), coordinated.clone());
        running.spawn(async move {
            let mut connection = LoadConnection::open(&address).await?;
            for index in (writer..coordinated.count).step_by(WRITERS) {
                let name = coordinated.name(index);
                init(&mut connection, &name).await?;
                commit(&mut connection, &commit_request(&name, &coordinated.prefix, 0, OFFSET)).await?;
            }
            Ok(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.unwrap_or_else(|error| Err(LoadError::Wrong { what: format!("a writer: {error}") }))?;
    }
    Ok(())
}

async fn await_group_coordinator(address: &str, group: &str) -> Result<(), LoadError> {
    let mut connection = LoadConnection::open(address).await?;
    let patience = Patience::to_see("a group coordinator");
    let find = FindCoordinatorRequest { key: group.into(), ..Default::default() };
    while connection.call(3, &find).await?.error_code != 0 {
        patience.pause().await?;
    }
    Ok(())
}

async fn commit(connection: &mut LoadConnection, request: &OffsetCommitRequest) -> Result<(), LoadError> {
    let patience = Patience::to_see("a group coordinator that is loaded");
    loop {
        let response = connection.call(2, request).await?;
        let codes = response.topics.iter().flat_map(|topic| &topic.partitions).map(|of| of.error_code);
        match codes.max().unwrap_or(0) {
            0 => return Ok(()),
            14..=16 => patience.pause().await?,
            code => return Err(LoadError::Refused { what: "commit an offset", code }),
        }
    }
}

/// Waits until every transactional id is described and every group's offset is told.
pub async fn await_coordinators(address: &str, coordinated: &Coordinated) -> Result<(), LoadError> {
    let mut connection = LoadConnection::open(address).await?;
    let patience = Patience::to_see("all transactional ids and groups");
    let names = coordinated.names();
    for some in names.chunks(ASKED_AT_ONCE) {
        while !are_transactions_known(&mut connection, some).await? {
            patience.pause().await?;
        }
        while !are_groups_known(&mut connection, &coordinated.prefix, some).await? {
            patience.pause().await?;
        }
    }
    Ok(())
}

async fn are_transactions_known(connection: &mut LoadConnection, ids: &[String]) -> Result<bool, LoadError> {
    let transactional_ids = ids.iter().map(|id| id.as_str().into()).collect();
    let response = connection.call(0, &DescribeTransactionsRequest { transactional_ids }).await?;
    for described in &response.transaction_states {
        match described.error_code {
            0 => {}
            14..=16 => return Ok(false),
            code => return Err(LoadError::Refused { what: "describe a transaction", code }),
        }
    }
    Ok(response.transaction_states.len() == ids.len())
}

async fn are_groups_known(
    connection: &mut LoadConnection,
    topic: &str,
    groups: &[String],
) -> Result<bool, LoadError> {
    let group = |group: &String| OffsetFetchRequestGroup {
        group_id: group.as_str().into(),
        topics: Some(vec![OffsetFetchRequestTopics {
            name: topic.into(),
            partition_indexes: vec![0],
            ..Default::default()
        }]),
        ..Default::default()
    };
    let request = OffsetFetchRequest { groups: groups.iter().map(group).collect(), ..Default::default() };
    let response = connection.call(8, &request).await?;
    for group in &response.groups {
        if matches!(group.error_code, 14..=16) {
            return Ok(false);
        }
        check("fetch an offset", group.error_code)?;
        let partitions = group.topics.iter().flat_map(|topic| &topic.partitions);
        let offsets: Vec<i64> = partitions.map(|partition| partition.committed_offset).collect();
        if offsets != [OFFSET] {
            let what = format!("group {} has the offsets {offsets:?}", &*group.group_id);
            return Err(LoadError::Wrong { what });
        }
    }
    Ok(response.groups.len() == groups.len())
}
