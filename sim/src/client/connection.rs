use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use barnabas::runtime::Random;
use barnabas::runtime::net::{Halves, Network};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use wire::FindCoordinatorRequest;
use wire::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use wire::fetch_response::PartitionData;
use wire::list_offsets_request::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use wire::metadata_request::{MetadataRequest, MetadataRequestTopic};
use wire::produce_request::{PartitionProduceData, ProduceRequest, TopicProduceData};
use wire::produce_response::PartitionProduceResponse;
use wire::{Message, Reader, Request, ResponseHeader, Writer, write_request};

use super::Isolation;
use crate::chance::any;

/// A client's connections, one to each broker, opened when they are needed. Whatever fails closes its connection.
pub struct Client {
    network: Network,
    name: String,
    brokers: Vec<String>,
    random: Random,
    connections: BTreeMap<String, Connection>,
}

/// Who leads a partition, and since which election.
#[derive(Clone, Debug)]
pub struct Leadership {
    pub host: String,
    pub epoch: i32,
}

struct Connection {
    halves: Halves,
    correlation_id: i32,
}

/// The port of all brokers.
pub const PORT: u16 = 9092;
/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

impl Client {
    pub fn new(network: Network, name: &str, brokers: Vec<String>, random: Random) -> Client {
        Client { network, name: name.to_owned(), brokers, random, connections: BTreeMap::new() }
    }

    pub fn random(&self) -> &Random {
        &self.random
    }

    pub fn any_broker(&self) -> String {
        any(&self.random, &self.brokers).clone()
    }

    /// `None` = no answer, for whatever reason: the request may have been acted on.
    pub async fn call<R: Request>(&mut self, host: &str, version: i16, request: &R) -> Option<R::Response> {
        let connection = self.connections.remove(host);
        let exchanged = timeout(PATIENCE, async {
            let mut connection = match connection {
                Some(connection) => connection,
                None => Connection {
                    halves: self.network.connect(host, PORT).await?.into_split(),
                    correlation_id: 0,
                },
            };
            let response = connection.exchange(&self.name, version, request).await?;
            io::Result::Ok((connection, response))
        });
        let (connection, response) = exchanged.await.ok()?.ok()?;
        self.connections.insert(host.to_owned(), connection);
        Some(response)
    }

    /// The host of a partition's leader, as some broker knows it.
    pub async fn leader(&mut self, topic: &str, partition: i32) -> Option<String> {
        Some(self.leadership(topic, partition).await?.host)
    }

    /// A partition's leader, as some broker knows it.
    pub async fn leadership(&mut self, topic: &str, partition: i32) -> Option<Leadership> {
        let topics =
            vec![MetadataRequestTopic { name: Some(topic.into()), ..MetadataRequestTopic::default() }];
        let request =
            MetadataRequest { topics: Some(topics), allow_auto_topic_creation: false, ..Default::default() };
        let asked = self.any_broker();
        let response = self.call(&asked, 8, &request).await?;
        let topic = response.topics.first()?;
        let partition = topic.partitions.iter().find(|found| found.partition_index == partition)?;
        let broker = response.brokers.iter().find(|broker| broker.node_id == partition.leader_id)?;
        Some(Leadership { host: broker.host.to_string(), epoch: partition.leader_epoch })
    }

    /// The offset that a broker has for a timestamp, or for a negative number that stands for one.
    pub async fn offset(&mut self, host: &str, topic: &str, partition: i32, timestamp: i64) -> Option<i64> {
        let partition = ListOffsetsPartition { partition_index: partition, timestamp, ..Default::default() };
        let topics = vec![ListOffsetsTopic { name: topic.into(), partitions: vec![partition] }];
        let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
        let response = self.call(host, 5, &request).await?;
        let found = response.topics.into_iter().next()?.partitions.into_iter().next()?;
        (found.error_code == 0).then_some(found.offset)
    }

    /// Sends records to a partition with acks=all, as part of a transaction where there is one.
    pub async fn produce(
        &mut self,
        host: &str,
        (topic, index): (&str, i32),
        transactional_id: Option<&str>,
        records: Bytes,
    ) -> Option<PartitionProduceResponse> {
        let partition_data = vec![PartitionProduceData { index, records: Some(records.into()) }];
        let topic = TopicProduceData { name: topic.into(), partition_data, ..Default::default() };
        let request = ProduceRequest {
            transactional_id: transactional_id.map(Into::into),
            acks: -1,
            timeout_ms: 5_000,
            topic_data: vec![topic],
        };
        let response = self.call(host, 8, &request).await?;
        response.responses.into_iter().next()?.partition_responses.into_iter().next()
    }

    /// What a leader has of a partition from an offset on.
    pub async fn fetch(
        &mut self,
        leadership: &Leadership,
        (topic, partition): (&str, i32),
        fetch_offset: i64,
        isolation: Isolation,
    ) -> Option<PartitionData> {
        let partition = FetchPartition {
            partition,
            current_leader_epoch: leadership.epoch,
            fetch_offset,
            partition_max_bytes: 64 * 1024,
            ..Default::default()
        };
        let topic = FetchTopic { topic: topic.into(), partitions: vec![partition], ..Default::default() };
        let request = FetchRequest {
            max_wait_ms: 500,
            min_bytes: 1,
            max_bytes: 1 << 20,
            isolation_level: i8::from(isolation == Isolation::ReadCommitted),
            topics: vec![topic],
            ..Default::default()
        };
        // From version 11 on a follower answers as well, and one that lags does not have the offset.
        let response = self.call(&leadership.host, 10, &request).await?;
        response.responses.into_iter().next()?.partitions.into_iter().next()
    }

    /// The host of the controller, as some broker knows it.
    pub async fn controller(&mut self) -> Option<String> {
        let request = MetadataRequest { topics: Some(Vec::new()), ..Default::default() };
        let asked = self.any_broker();
        let response = self.call(&asked, 8, &request).await?;
        let broker = response.brokers.iter().find(|broker| broker.node_id == response.controller_id)?;
        Some(broker.host.to_string())
    }

    /// The host of a group's coordinator (`kind` 0) or of a transactional id's (1).
    pub async fn coordinator(&mut self, key: &str, kind: i8) -> Option<String> {
        let request = FindCoordinatorRequest { key: key.into(), key_type: kind, ..Default::default() };
        let asked = self.any_broker();
        let response = self.call(&asked, 3, &request).await?;
        (response.error_code == 0).then(|| response.host.to_string())
    }
}

impl Connection {
    async fn exchange<R: Request>(
        &mut self,
        client: &str,
        version: i16,
        request: &R,
    ) -> io::Result<R::Response> {
        self.correlation_id += 1;
        let mut frame = Writer::new();
        write_request(&mut frame, self.correlation_id, Some(client.into()), request, version)
            .map_err(io::Error::other)?;
        let (read, write) = &mut self.halves;
        write.write_all(&frame.into_bytes()).await?;
        let size = read.read_u32().await?;
        let mut frame = vec![0; size as usize];
        read.read_exact(&mut frame).await?;
        let mut reader = Reader::new(Bytes::from(frame));
        ResponseHeader::decode(&mut reader, R::response_header_version(version)).map_err(io::Error::other)?;
        R::Response::decode(&mut reader, version).map_err(io::Error::other)
    }
}
