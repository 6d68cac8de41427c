use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use wire::{ApiVersionsRequest, MetadataRequest};

use super::requests::METADATA_VERSION;
use super::{LoadConnection, LoadError};

/// Between two tries to connect.
const PAUSE: Duration = Duration::from_millis(1);

/// Starts a shell command that becomes the broker, or starts it, and leaves it running: its process id.
pub fn start(command: &str) -> Result<u32, LoadError> {
    let child = Command::new("sh")
        .args(["-c", &format!("exec {command}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(LoadError::io("start the broker"))?;
    Ok(child.id())
}

/// Waits until the broker answers ApiVersions and names itself in Metadata.
pub async fn await_ready(address: &str, limit: Duration) -> Result<(), LoadError> {
    let deadline = Instant::now() + limit;
    loop {
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
