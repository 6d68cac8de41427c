"""confluent-kafka (librdkafka): the transactions of clients/README.md."""
import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

bootstrap, source, target, group = sys.argv[1:5]


def emit(*fields):
    print("\t".join(str(field) for field in fields), flush=True)


def connect():
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "id-" + group, "linger.ms": 5})
    producer.init_transactions(60)
    return producer


def consumer(group_id):
    return Consumer({
        "bootstrap.servers": bootstrap, "group.id": group_id, "isolation.level": "read_committed",
        "auto.offset.reset": "earliest", "enable.auto.commit": False})


def produce(producer, phase, count, commit):
    producer.begin_transaction()
    for i in range(count):
        producer.produce(source, b"value", f"{phase}-{i}".encode(), i % 2)
    producer.flush(60)
    producer.commit_transaction(60) if commit else producer.abort_transaction(60)


def read(topic, wanted):
    reader = consumer("reader-" + group)
    reader.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    seen = 0
    while seen < wanted:
        for message in reader.consume(100, 0.2):
            if message.error():
                raise KafkaException(message.error())
            emit("read", topic, message.partition(), message.offset(), message.key().decode())
            seen += 1
    reader.close()


def transform(producer, wanted):
    reader = consumer(group)
    reader.subscribe([source])
    aborted, done = False, 0
    while done < wanted:
        messages = [message for message in reader.consume(100, 0.2) if not message.error()]
        if not messages:
            continue
        before, after = {}, {}
        producer.begin_transaction()
        for message in messages:
            before.setdefault(message.partition(), message.offset())
            after[message.partition()] = message.offset() + 1
            producer.produce(target, message.value(), b"out-" + message.key(), message.partition())
        offsets = [TopicPartition(source, partition, offset) for partition, offset in after.items()]
        producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), 60)
        if not aborted:
            producer.abort_transaction(60)
            for partition, offset in before.items():
                reader.seek(TopicPartition(source, partition, offset))
            aborted = True
            continue
        producer.commit_transaction(60)
        done += len(messages)
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
except KafkaException as error:
    if not error.args[0].fatal():
        raise
    emit("fenced")
produce(rival, "last", 4, True)
emit("done")
