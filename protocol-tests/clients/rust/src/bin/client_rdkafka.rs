//! rdkafka (librdkafka).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use barnabas_rust_clients::{PARTITIONS, PHASES, Seen, arguments, print_read, records, restart, text};
use futures_executor::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::message::{Header, Headers, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{ClientConfig, ClientContext, Message, Offset, TopicPartitionList};

const LIMIT: Duration = Duration::from_secs(60);

struct Delivered;

impl ClientContext for Delivered {}

impl ProducerContext for Delivered {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        match result {
            Ok(message) => {
                let key = text(message.key().unwrap_or_default());
                println!("produced\t{key}\t{}\t{}", message.partition(), message.offset());
            }
            Err((error, _)) => panic!("produce: {error}"),
        }
    }
}

struct Owned {
    name: String,
    partitions: Arc<Mutex<BTreeSet<i32>>>,
}

impl ClientContext for Owned {}

impl ConsumerContext for Owned {
    fn post_rebalance(&self, _: &BaseConsumer<Owned>, rebalance: &Rebalance<'_>) {
        let owned = match rebalance {
            Rebalance::Assign(list) => list.elements().iter().map(|element| element.partition()).collect(),
            Rebalance::Revoke(_) => BTreeSet::new(),
            Rebalance::Error(error) => panic!("{}: {error}", self.name),
        };
        let list: Vec<String> = owned.iter().map(|partition: &i32| partition.to_string()).collect();
        println!("assigned\t{}\t{}", self.name, list.join(","));
        *self.partitions.lock().expect("no holder panics") = owned;
    }
}

struct Member {
    name: &'static str,
    consumer: BaseConsumer<Owned>,
    partitions: Arc<Mutex<BTreeSet<i32>>>,
}

impl Member {
    fn new(config: &ClientConfig, name: &'static str) -> Member {
        let partitions = Arc::default();
        let context = Owned { name: name.to_owned(), partitions: Arc::clone(&partitions) };
        let consumer = config.create_with_context(context).expect("create a consumer");
        Member { name, consumer, partitions }
    }

    fn owns(&self) -> usize {
        self.partitions.lock().expect("no holder panics").len()
    }

    fn poll(&self, seen: &mut Seen) {
        let Some(polled) = self.consumer.poll(Duration::from_millis(20)) else { return };
        let message = match polled {
            Ok(message) => message,
            Err(error) => return eprintln!("{}: {error}", self.name),
        };
        let headers = message.headers().map(|headers| {
            headers.iter().map(|h| (h.key.to_owned(), text(h.value.unwrap_or_default()).to_owned())).collect()
        });
        let (key, value) = (message.key().unwrap_or_default(), message.payload().unwrap_or_default());
        print_read(self.name, message.partition(), message.offset(), key, value, headers.unwrap_or_default());
        seen.0.insert(text(key).to_owned());
    }
}

fn producer(base: &ClientConfig, codec: &str) -> ThreadedProducer<Delivered> {
    let mut config = base.clone();
    config.set("enable.idempotence", "true").set("compression.type", codec).set("linger.ms", "20");
    config.create_with_context(Delivered).expect("create a producer")
}

fn produce(producer: &ThreadedProducer<Delivered>, topic: &str, phase: &str) {
    for record in records(phase) {
        let headers = record.headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
            headers.insert(Header { key, value: Some(value) })
        });
        let message =
            BaseRecord::to(topic).partition(record.partition).key(&record.key).payload(&record.value);
        producer.send(message.headers(headers)).map_err(|(error, _)| error).expect("queue a record");
    }
    producer.flush(LIMIT).expect("all records are answered");
}

fn main() {
    let [bootstrap, topic, group] = arguments();
    let mut base = ClientConfig::new();
    base.set("bootstrap.servers", &bootstrap);
    let admin: AdminClient<DefaultClientContext> = base.create().expect("create an admin client");
    let options = AdminOptions::new().operation_timeout(Some(LIMIT));
    let new_topic = NewTopic::new(&topic, PARTITIONS, TopicReplication::Fixed(1));
    for result in block_on(admin.create_topics(&[new_topic], &options)).expect("create the topic") {
        result.expect("create the topic");
    }
    for codec in PHASES {
        produce(&producer(&base, codec), &topic, codec);
    }

    let mut config = base.clone();
    config.set("group.id", &group).set("enable.auto.commit", "false").set("auto.offset.reset", "earliest");
    config.set("heartbeat.interval.ms", "200");
    let by_hand = Member::new(&config, "assignment");
    let mut list = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        list.add_partition_offset(&topic, partition, Offset::Beginning).expect("a valid offset");
    }
    by_hand.consumer.assign(&list).expect("assign by hand");
    let mut seen = Seen::default();
    while !seen.has(&PHASES) {
        by_hand.poll(&mut seen);
    }
    drop(by_hand);

    let alone = producer(&base, "none");
    let (a, b, mut seen) = (Member::new(&config, "a"), Member::new(&config, "b"), Seen::default());
    for member in [&a, &b] {
        member.consumer.subscribe(&[&topic]).expect("subscribe");
    }
    while !(seen.has(&PHASES) && a.owns() == 2 && b.owns() == 2) {
        a.poll(&mut seen);
        b.poll(&mut seen);
    }
    produce(&alone, &topic, "together");
    while !seen.has(&["together"]) {
        a.poll(&mut seen);
        b.poll(&mut seen);
    }
    b.consumer.commit_consumer_state(CommitMode::Sync).expect("b commits");
    a.consumer.commit_consumer_state(CommitMode::Sync).expect("a commits");
    drop(a);
    while b.owns() != PARTITIONS as usize {
        b.poll(&mut seen);
    }
    produce(&alone, &topic, "alone");
    while !seen.has(&["alone"]) {
        b.poll(&mut seen);
    }
    b.consumer.commit_consumer_state(CommitMode::Sync).expect("b commits");
    for element in b.consumer.committed(LIMIT).expect("fetch the committed offsets").elements() {
        println!("committed\t{}\t{}", element.partition(), element.offset().to_raw().unwrap_or(-1));
    }

    restart();
    produce(&alone, &topic, "after");
    while !seen.has(&["after"]) {
        b.poll(&mut seen);
    }
    b.consumer.commit_consumer_state(CommitMode::Sync).expect("b commits");
    drop(b);
    for result in block_on(admin.delete_groups(&[&group], &options)).expect("delete the group") {
        result.expect("delete the group");
    }
    for result in block_on(admin.delete_topics(&[&topic], &options)).expect("delete the topic") {
        result.expect("delete the topic");
    }
    while admin
        .inner()
        .fetch_metadata(None, LIMIT)
        .expect("list topics")
        .topics()
        .iter()
        .any(|t| t.name() == topic)
    {}
    println!("done");
}
