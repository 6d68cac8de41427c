"""aiokafka."""
import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

import scenario
from scenario import PARTITIONS, Seen, emit

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
bootstrap, topic, group = scenario.arguments()


async def produce(producer, phase):
    sent = [(key, await producer.send(topic, value, key, partition, headers=headers))
            for partition, key, value, headers in scenario.records(phase)]
    for key, future in sent:
        done = await future
        emit("produced", key.decode(), done.partition, done.offset)


async def poll(consumer, by, seen):
    for partition_records in (await consumer.getmany(timeout_ms=100)).values():
        for record in partition_records:
            scenario.read(by, record.partition, record.offset, record.key, record.value, record.headers)
            seen.add(record.key)


class Member(ConsumerRebalanceListener):
    def __init__(self, name):
        self.name, self.owned = name, []
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=group, client_id=name, enable_auto_commit=False,
            auto_offset_reset="earliest", heartbeat_interval_ms=200, metadata_max_age_ms=2000)

    async def start(self):
        self.consumer.subscribe([topic], listener=self)
        await self.consumer.start()

    def on_partitions_assigned(self, assigned):
        self.owned = sorted(p.partition for p in assigned)
        emit("assigned", self.name, ",".join(map(str, self.owned)))

    def on_partitions_revoked(self, revoked):
        self.owned = []
        emit("assigned", self.name, "")


async def main():
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    for codec in CODECS:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, compression_type=codec, linger_ms=20)
        await producer.start()
        await produce(producer, codec or "none")
        await producer.stop()
    phases = [codec or "none" for codec in CODECS]

    by_hand = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    await by_hand.start()
    by_hand.assign([TopicPartition(topic, p) for p in range(PARTITIONS)])
    await by_hand.seek_to_beginning()
    seen = Seen()
    while not seen.has(phases):
        await poll(by_hand, "assignment", seen)
    await by_hand.stop()

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=20)
    await producer.start()
    a, b, seen = Member("a"), Member("b"), Seen()
    await asyncio.gather(a.start(), b.start())
    while not (seen.has(phases) and len(a.owned) == len(b.owned) == 2):
        await poll(a.consumer, "a", seen)
        await poll(b.consumer, "b", seen)
    await produce(producer, "together")
    while not seen.has(["together"]):
        await poll(a.consumer, "a", seen)
        await poll(b.consumer, "b", seen)
    await b.consumer.commit()
    await a.consumer.commit()
    await a.consumer.stop()
    while len(b.owned) != PARTITIONS:
        await poll(b.consumer, "b", seen)
    await produce(producer, "alone")
    while not seen.has(["alone"]):
        await poll(b.consumer, "b", seen)
    await b.consumer.commit()
    for p in range(PARTITIONS):
        emit("committed", p, await b.consumer.committed(TopicPartition(topic, p)))

    await asyncio.to_thread(scenario.restart)
    await produce(producer, "after")
    while not seen.has(["after"]):
        await poll(b.consumer, "b", seen)
    await b.consumer.commit()
    await b.consumer.stop()
    await producer.stop()
    await admin.delete_topics([topic])
    while topic in await admin.list_topics():
        pass
    await admin.close()
    emit("done")


asyncio.run(main())
