"""kafka-python: reads partition 0 until its position is the end, and prints the offset of each record.

    read_to_end.py BOOTSTRAP TOPIC
"""
import sys

from kafka import KafkaConsumer, TopicPartition

bootstrap, topic = sys.argv[1:]
partition = TopicPartition(topic, 0)
consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
consumer.assign([partition])
consumer.seek_to_beginning(partition)
end = consumer.end_offsets([partition])[partition]
while consumer.position(partition) < end:
    for record in consumer.poll(500).get(partition, []):
        print(record.offset)
consumer.close()
