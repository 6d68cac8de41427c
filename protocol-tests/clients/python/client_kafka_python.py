"""kafka-python."""
import queue
import threading

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.consumer.subscription_state import ConsumerRebalanceListener

import scenario
from scenario import PARTITIONS, Seen, emit

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
bootstrap, topic, group = scenario.arguments()


def produce(producer, phase):
    sent = [(key, producer.send(topic, value, key, headers, partition))
            for partition, key, value, headers in scenario.records(phase)]
    for key, future in sent:
        done = future.get(60)
        emit("produced", key.decode(), done.partition, done.offset)


def show(by, batches, seen):
    for partition_records in batches.values():
        for record in partition_records:
            scenario.read(by, record.partition, record.offset, record.key, record.value, record.headers)
            seen.add(record.key)


class Member(threading.Thread, ConsumerRebalanceListener):
    """A member polls in a thread of its own: its library joins inside poll and waits for the others there."""

    def __init__(self, name):
        super().__init__(daemon=True)
        self.name, self.owned, self.batches = name, [], queue.Queue()
        self.leave = self.commit = False
        self.committed = threading.Event()

    def run(self):
        try:
            self.consume()
        except BaseException as error:
            self.batches.put(error)
            raise

    def consume(self):
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, group_id=group, client_id=self.name, enable_auto_commit=False,
            auto_offset_reset="earliest", heartbeat_interval_ms=200)
        consumer.subscribe([topic], listener=self)
        while not self.leave:
            batches = consumer.poll(timeout_ms=100)
            if batches:
                self.batches.put(batches)
            if self.commit:
                consumer.commit()
                self.commit = False
                self.committed.set()
        consumer.close()

    def on_partitions_assigned(self, assigned):
        self.owned = sorted(p.partition for p in assigned)
        emit("assigned", self.name, ",".join(map(str, self.owned)))

    def on_partitions_revoked(self, revoked):
        self.owned = []
        emit("assigned", self.name, "")

    def take(self, seen):
        """What has come within the last moment."""
        try:
            batches = self.batches.get(timeout=0.05)
        except queue.Empty:
            return
        if isinstance(batches, BaseException):
            raise batches
        show(self.name, batches, seen)

    def commit_now(self):
        self.committed.clear()
        self.commit = True
        if not self.committed.wait(60):
            raise SystemExit("member %s does not commit" % self.name)

    def close(self):
        self.leave = True
        self.join(60)


admin = KafkaAdminClient(bootstrap_servers=bootstrap)
admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
for codec in CODECS:
    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, compression_type=codec, linger_ms=20)
    produce(producer, codec or "none")
    producer.close()
phases = [codec or "none" for codec in CODECS]

by_hand = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
by_hand.assign([TopicPartition(topic, p) for p in range(PARTITIONS)])
by_hand.seek_to_beginning()
seen = Seen()
while not seen.has(phases):
    show("assignment", by_hand.poll(timeout_ms=200), seen)
by_hand.close()

producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=20)
a, b, seen = Member("a"), Member("b"), Seen()
a.start()
b.start()
while not (seen.has(phases) and len(a.owned) == len(b.owned) == 2):
    a.take(seen)
    b.take(seen)
produce(producer, "together")
while not seen.has(["together"]):
    a.take(seen)
    b.take(seen)
a.commit_now()
b.commit_now()
a.close()
while len(b.owned) != PARTITIONS:
    b.take(seen)
produce(producer, "alone")
while not seen.has(["alone"]):
    b.take(seen)
b.commit_now()
teller = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
for p in range(PARTITIONS):
    emit("committed", p, teller.committed(TopicPartition(topic, p)))
teller.close()

scenario.restart()
produce(producer, "after")
while not seen.has(["after"]):
    b.take(seen)
b.commit_now()
b.close()
producer.close()
admin.delete_groups([group]) if hasattr(admin, "delete_groups") else admin.delete_consumer_groups([group])
admin.delete_topics([topic])
while topic in admin.list_topics():
    pass
admin.close()
emit("done")
