"""aiokafka: the transactions of clients/README.md."""
import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import InvalidProducerEpoch, ProducerFenced

bootstrap, source, target, group = sys.argv[1:5]


def emit(*fields):
    print("\t".join(str(field) for field in fields), flush=True)


async def connect():
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="id-" + group)
    await producer.start()
    return producer


async def produce(producer, phase, count, commit):
    await producer.begin_transaction()
    for i in range(count):
        await producer.send_and_wait(source, b"value", f"{phase}-{i}".encode(), i % 2)
    if commit:
        await producer.commit_transaction()
    else:
        await producer.abort_transaction()


def consumer(*topics, group_id=None):
    return AIOKafkaConsumer(
        *topics, bootstrap_servers=bootstrap, group_id=group_id, isolation_level="read_committed",
        auto_offset_reset="earliest", enable_auto_commit=False)


async def read(topic, wanted):
    reader = consumer()
    await reader.start()
    reader.assign([TopicPartition(topic, partition) for partition in range(2)])
    await reader.seek_to_beginning()
    for _ in range(wanted):
        message = await reader.getone()
        emit("read", topic, message.partition, message.offset, message.key.decode())
    await reader.stop()


async def transform(producer, wanted):
    reader = consumer(source, group_id=group)
    await reader.start()
    aborted, done = False, 0
    while done < wanted:
        batches = await reader.getmany(timeout_ms=200)
        if not batches:
            continue
        await producer.begin_transaction()
        offsets, count = {}, 0
        for partition, messages in batches.items():
            offsets[partition] = messages[-1].offset + 1
            for message in messages:
                await producer.send_and_wait(target, message.value, b"out-" + message.key, message.partition)
                count += 1
        await producer.send_offsets_to_transaction(offsets, group)
        if not aborted:
            await producer.abort_transaction()
            for partition, messages in batches.items():
                reader.seek(partition, messages[0].offset)
            aborted = True
            continue
        await producer.commit_transaction()
        done += count
    await reader.stop()


async def main():
    producer = await connect()
    await produce(producer, "first", 20, True)
    await produce(producer, "aborted", 20, False)
    await produce(producer, "second", 10, True)
    await read(source, 30)
    await transform(producer, 30)
    await read(target, 30)
    rival = await connect()
    try:
        await produce(producer, "fenced", 2, True)
    except (ProducerFenced, InvalidProducerEpoch):
        emit("fenced")
    await produce(rival, "last", 4, True)
    await rival.stop()
    emit("done")
    sys.stdout.flush()
    # The fenced producer does not stop well.
    import os
    os._exit(0)


asyncio.run(main())
