"""confluent-kafka (librdkafka)."""
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import scenario
from scenario import PARTITIONS, Seen, emit

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
bootstrap, topic, group = scenario.arguments()


def produce(producer, phase):
    def delivered(error, message):
        if error:
            raise SystemExit("produce %s: %s" % (message.key(), error))
        emit("produced", message.key().decode(), message.partition(), message.offset())

    for partition, key, value, headers in scenario.records(phase):
        producer.produce(topic, value, key, partition, on_delivery=delivered, headers=headers)
    if producer.flush(60):
        raise SystemExit("records of phase %s are still queued" % phase)


def poll(consumer, by, seen):
    for message in consumer.consume(100, 0.1):
        if message.error():
            raise SystemExit("%s reads: %s" % (by, message.error()))
        scenario.read(by, message.partition(), message.offset(), message.key(), message.value(), message.headers())
        seen.add(message.key())


class Member:
    def __init__(self, name):
        self.name, self.owned = name, []
        self.consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": group, "client.id": name,
            "auto.offset.reset": "earliest", "enable.auto.commit": False, "heartbeat.interval.ms": 200})
        self.consumer.subscribe([topic], on_assign=self.assigned, on_revoke=self.revoked)

    def assigned(self, consumer, partitions):
        self.owned = sorted(p.partition for p in partitions)
        emit("assigned", self.name, ",".join(map(str, self.owned)))

    def revoked(self, consumer, partitions):
        self.owned = []
        emit("assigned", self.name, "")


admin = AdminClient({"bootstrap.servers": bootstrap})
for future in admin.create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
    future.result(60)

for codec in CODECS:
    produce(Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": codec, "linger.ms": 20}), codec)

by_hand = Consumer({"bootstrap.servers": bootstrap, "group.id": group + "-unused", "enable.auto.commit": False})
by_hand.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
seen = Seen()
while not seen.has(CODECS):
    poll(by_hand, "assignment", seen)
by_hand.close()

producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
a, b, seen = Member("a"), Member("b"), Seen()
while not (seen.has(CODECS) and len(a.owned) == len(b.owned) == 2):
    poll(a.consumer, "a", seen)
    poll(b.consumer, "b", seen)
produce(producer, "together")
while not seen.has(["together"]):
    poll(a.consumer, "a", seen)
    poll(b.consumer, "b", seen)
b.consumer.commit(asynchronous=False)
a.consumer.commit(asynchronous=False)
a.consumer.close()
while len(b.owned) != PARTITIONS:
    poll(b.consumer, "b", seen)
produce(producer, "alone")
while not seen.has(["alone"]):
    poll(b.consumer, "b", seen)
b.consumer.commit(asynchronous=False)
for partition in b.consumer.committed([TopicPartition(topic, p) for p in range(PARTITIONS)], 30):
    emit("committed", partition.partition, partition.offset)

scenario.restart()
produce(producer, "after")
while not seen.has(["after"]):
    poll(b.consumer, "b", seen)
b.consumer.commit(asynchronous=False)
b.consumer.close()
for future in admin.delete_consumer_groups([group]).values():
    future.result(60)
for future in admin.delete_topics([topic]).values():
    future.result(60)
while topic in admin.list_topics(timeout=30).topics:
    pass
emit("done")
