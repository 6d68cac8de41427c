use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use wire::{ApiVersionsRequest, MetadataRequest};

use super::requests::METADATA_VERSION;
use super::{LoadConnection, LoadError};

/// Between two tries to connect.
const PAUSE: Duration = Duration::from_millis(1);

/// Starts a shell command that becomes the broker, or starts it, and leaves it running.
pub fn start(command: &str) -> Result<Child, LoadError> {
    Command::new("sh")
        .args(["-c", &format!("exec {command}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(LoadError::io("start the broker"))
}

/// Waits until the broker answers ApiVersions and names itself in Metadata, or ends.
pub async fn await_ready(broker: &mut Child, address: &str, limit: Duration) -> Result<(), LoadError> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = broker.try_wait().map_err(LoadError::io("look after the broker"))? {
            return Err(LoadError::Wrong { what: format!("the broker ended at once: {status}") });
        }
        match is_ready(address).await {
            Ok(true) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error),
            Ok(false) | Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn is_ready(address: &str) -> Result<bool, LoadError> {
    let mut connection = LoadConnection::open(address).await?;
    let versions = connection.call(2, &ApiVersionsRequest::default()).await?;
    let no_topics = MetadataRequest { topics: Some(Vec::new()), ..Default::default() };
    let metadata = connection.call(METADATA_VERSION, &no_topics).await?;
    Ok(versions.error_code == 0 && !metadata.brokers.is_empty())
}
