"""confluent-kafka (librdkafka): an idempotent producer that is left alone for as long as its caller likes.

PROGRAM BOOTSTRAP TOPIC: for each line on stdin writes seven records to partition 0, one request each, and prints `written`
when all are acknowledged.
"""
import sys

from confluent_kafka import KafkaException, Producer

bootstrap, topic = sys.argv[1:3]


def check(error, _message=None):
    if error:
        raise KafkaException(error)


producer = Producer({
    "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 1,
    "topic.metadata.refresh.interval.ms": 1000, "reconnect.backoff.max.ms": 500})
number = 0
for _ in sys.stdin:
    for _ in range(7):
        producer.produce(topic, f"i-{number}".encode(), partition=0, on_delivery=check)
        number += 1
    assert producer.flush(60) == 0
    print("written", flush=True)
