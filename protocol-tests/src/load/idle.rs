use tokio::task::JoinSet;
use wire::ApiVersionsRequest;

use super::clients::{expect_value, value};
use super::error::check;
use super::requests::{create_topic, fetch_one, produce_one};
use super::{LoadConnection, LoadError};

/// How many connections are being opened at the same time: below the backlog of any listener.
pub(super) const OPENING: usize = 32;

/// Connections that have asked once and are silent since.
pub struct IdleConnections(Vec<LoadConnection>);

impl IdleConnections {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Asks once more on each: none was lost.
    pub async fn ask_each(&mut self) -> Result<(), LoadError> {
        for connection in &mut self.0 {
            ask(connection).await?;
        }
        Ok(())
    }
}

/// Opens `count` connections, each of which asks for ApiVersions once, as clients do first.
pub async fn open_idle(address: &str, count: usize) -> Result<IdleConnections, LoadError> {
    let mut opening = JoinSet::new();
    for worker in 0..OPENING {
        let (address, share) = (address.to_owned(), (worker..count).step_by(OPENING).len());
        opening.spawn(async move {
            let mut connections = Vec::with_capacity(share);
            for _ in 0..share {
                let mut connection = LoadConnection::open(&address).await?;
                ask(&mut connection).await?;
                connections.push(connection);
            }
            Ok(connections)
        });
    }
    let mut all = Vec::with_capacity(count);
    while let Some(opened) = opening.join_next().await {
        let opened: Result<Vec<LoadConnection>, LoadError> =
            opened.unwrap_or_else(|error| Err(LoadError::Wrong { what: error.to_string() }));
        all.extend(opened?);
    }
    Ok(IdleConnections(all))
}

pub(super) async fn ask(connection: &mut LoadConnection) -> Result<(), LoadError> {
    let request =
        ApiVersionsRequest { client_software_name: "load".into(), client_software_version: "1".into() };
    check("ask for ApiVersions", connection.call(3, &request).await?.error_code)
}

/// Creates a topic, writes a record and reads it back, on connections of its own.
pub async fn prove_normal_client(address: &str, topic: &str) -> Result<(), LoadError> {
    create_topic(address, topic, 1).await?;
    let mut connection = LoadConnection::open(address).await?;
    let value = value("a normal client", 0);
    let offset = produce_one(&mut connection, topic, 0, value.clone()).await?;
    let read = fetch_one(&mut connection, topic, 0, offset, 4096).await?;
    expect_value(&value, &read)
}
