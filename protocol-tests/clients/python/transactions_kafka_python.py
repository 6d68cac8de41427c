"""kafka-python: the transactions of clients/README.md."""
import os
import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

bootstrap, source, target, group = sys.argv[1:5]


def emit(*fields):
    print("\t".join(str(field) for field in fields), flush=True)


def connect():
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id="id-" + group)
    producer.init_transactions()
    return producer


def consumer(group_id):
    return KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group_id, isolation_level="read_committed",
        auto_offset_reset="earliest", enable_auto_commit=False)


def produce(producer, phase, count, commit):
    producer.begin_transaction()
    for i in range(count):
        producer.send(source, b"value", f"{phase}-{i}".encode(), partition=i % 2)
    producer.flush(60)
    producer.commit_transaction() if commit else producer.abort_transaction()


def read(topic, wanted):
    reader = consumer(None)
    reader.assign([TopicPartition(topic, partition) for partition in range(2)])
    reader.seek_to_beginning()
    seen = 0
    while seen < wanted:
        for messages in reader.poll(200).values():
            for message in messages:
                emit("read", topic, message.partition, message.offset, message.key.decode())
                seen += 1
    reader.close()


def transform(producer, wanted):
    reader = consumer(group)
    reader.subscribe([source])
    aborted, done = False, 0
    while done < wanted:
        batches = reader.poll(200)
        if not batches:
            continue
        producer.begin_transaction()
        offsets, count = {}, 0
        for partition, messages in batches.items():
            offsets[partition] = OffsetAndMetadata(messages[-1].offset + 1, "", -1)
            for message in messages:
                producer.send(target, message.value, b"out-" + message.key, partition=message.partition)
                count += 1
        producer.send_offsets_to_transaction(offsets, group)
        if not aborted:
            producer.abort_transaction()
            for partition, messages in batches.items():
                reader.seek(partition, messages[0].offset)
            aborted = True
            continue
        producer.commit_transaction()
        done += count
    reader.close()


producer = connect()
produce(producer, "first", 20, True)
produce(producer, "aborted", 20, False)
produce(producer, "second", 10, True)
read(source, 30)
transform(producer, 30)
read(target, 30)
rival = connect()
try:
    produce(producer, "fenced", 2, True)
except KafkaError as error:
    # The first error comes as itself, later ones name it.
    if not any(name in repr(error) for name in ("ProducerFenced", "InvalidProducerEpoch")):
        raise
    emit("fenced")
produce(rival, "last", 4, True)
emit("done")
os._exit(0)
