//! rskafka, which has no groups: it reads by assignment only, and goes on from its own position after the restart.

use std::collections::BTreeMap;

use barnabas_rust_clients::{PARTITIONS, PHASES, arguments, print_read, records, restart};
use chrono::Utc;
use rskafka::client::partition::{Compression, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;

const CODECS: [Compression; 5] =
    [Compression::NoCompression, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];

async fn produce(partitions: &[PartitionClient], phase: &str, codec: Compression) {
    for (partition, client) in partitions.iter().enumerate() {
        let mine: Vec<_> = records(phase).into_iter().filter(|r| r.partition as usize == partition).collect();
        let batch = mine.iter().map(|record| Record {
            key: Some(record.key.clone().into_bytes()),
            value: Some(record.value.clone().into_bytes()),
            headers: record
                .headers
                .iter()
                .map(|(k, v)| ((*k).to_owned(), v.clone().into_bytes()))
                .collect::<BTreeMap<_, _>>(),
            timestamp: Utc::now(),
        });
        let offsets = client.produce(batch.collect(), codec).await.expect("produce");
        for (record, offset) in mine.iter().zip(offsets) {
            println!("produced\t{}\t{partition}\t{offset}", record.key);
        }
    }
}

/// Reads each partition from `next` to its end, and moves `next`.
async fn read(partitions: &[PartitionClient], by: &str, next: &mut [i64]) {
    for (partition, client) in partitions.iter().enumerate() {
        let end =
            client.get_offset(rskafka::client::partition::OffsetAt::Latest).await.expect("the end offset");
        while next[partition] < end {
            let (batch, _) = client.fetch_records(next[partition], 1..1_000_000, 1_000).await.expect("fetch");
            for read in batch {
                let record = read.record;
                // The library keeps headers sorted by name, on the way in as well: the walk's order is that of
                // their names backwards.
                let headers =
                    record.headers.into_iter().rev().map(|(k, v)| (k, String::from_utf8(v).expect("text")));
                let (key, value) = (record.key.unwrap_or_default(), record.value.unwrap_or_default());
                print_read(by, partition as i32, read.offset, &key, &value, headers.collect());
                next[partition] = read.offset + 1;
            }
        }
    }
}

async fn partition_clients(client: &Client, topic: &str) -> Vec<PartitionClient> {
    let mut clients = Vec::new();
    for partition in 0..PARTITIONS {
        clients.push(
            client
                .partition_client(topic, partition, UnknownTopicHandling::Retry)
                .await
                .expect("a partition"),
        );
    }
    clients
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let [bootstrap, topic, _group] = arguments();
    let client = ClientBuilder::new(vec![bootstrap]).build().await.expect("connect");
    let controller = client.controller_client().expect("the controller");
    controller.create_topic(&topic, PARTITIONS, 1, 30_000).await.expect("create the topic");
    let partitions = partition_clients(&client, &topic).await;
    for (phase, codec) in PHASES.into_iter().zip(CODECS) {
        produce(&partitions, phase, codec).await;
    }
    let mut next = vec![0; PARTITIONS as usize];
    read(&partitions, "assignment", &mut next).await;
    restart();
    produce(&partitions, "after", Compression::NoCompression).await;
    read(&partitions, "assignment", &mut next).await;
    controller.delete_topic(&topic, 30_000).await.expect("delete the topic");
    while client.list_topics().await.expect("list topics").iter().any(|t| t.name == topic) {}
    println!("done");
}
