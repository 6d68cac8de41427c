"""confluent-kafka (librdkafka): the steady work of clients/README.md."""
import os
import sys
import threading
import time
import traceback

from confluent_kafka import Consumer, KafkaException, Producer

bootstrap, plain, transactional, group = sys.argv[1:5]
stopped, enough = threading.Event(), threading.Event()
printing = threading.Lock()


def emit(*fields):
    with printing:
        print("\t".join(str(field) for field in fields), flush=True)


def acked(value):
    def report(error, _message):
        if error:
            raise KafkaException(error)
        emit("acked", value)
    return report


def produce():
    producer = Producer({
        "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2, "request.timeout.ms": 5000,
        "socket.timeout.ms": 6000, "reconnect.backoff.max.ms": 500})
    number = 0
    while not stopped.is_set():
        value = f"p-{number}"
        producer.produce(plain, value.encode(), partition=number % 3, on_delivery=acked(value))
        producer.poll(0.005)
        number += 1
    assert producer.flush(120) == 0


def again(call):
    """The same call may be made again after an error that says so."""
    for attempt in range(100):
        try:
            return call(10)
        except KafkaException as error:
            if not error.args[0].retriable() or attempt == 99:
                raise
            time.sleep(0.1)


def transact():
    producer = Producer({
        "bootstrap.servers": bootstrap, "transactional.id": "steady-" + group, "socket.timeout.ms": 6000,
        "transaction.timeout.ms": 60000, "reconnect.backoff.max.ms": 500})
    again(producer.init_transactions)
    number = 0
    while not stopped.is_set():
        producer.begin_transaction()
        try:
            for i in range(5):
                producer.produce(transactional, f"t-{number + i}".encode(), partition=(number + i) % 3)
            again(producer.commit_transaction)
            emit("committed", number, number + 4)
        except KafkaException as error:
            if error.args[0].fatal() or not error.args[0].txn_requires_abort():
                raise
            again(producer.abort_transaction)
            emit("aborted", number, number + 4)
        number += 5
        time.sleep(0.02)


def read(topic, kind, isolation):
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": f"{group}-{kind}", "isolation.level": isolation,
        "auto.offset.reset": "earliest", "session.timeout.ms": 6000, "auto.commit.interval.ms": 200,
        "socket.timeout.ms": 6000, "reconnect.backoff.max.ms": 500})
    consumer.subscribe([topic])
    while not enough.is_set():
        for message in consumer.consume(500, 0.1):
            # Errors that a consumer only tells of.
            if not message.error():
                emit(kind, message.value().decode())
    consumer.close()


def start(work, *arguments):
    def run():
        try:
            work(*arguments)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    thread = threading.Thread(target=run)
    thread.start()
    return thread


writers = [start(produce), start(transact)]
readers = [start(read, plain, "read", "read_uncommitted"), start(read, transactional, "readtxn", "read_committed")]
sys.stdin.readline()
stopped.set()
for writer in writers:
    writer.join()
emit("stopped")
sys.stdin.readline()
enough.set()
for reader in readers:
    reader.join()
emit("done")
