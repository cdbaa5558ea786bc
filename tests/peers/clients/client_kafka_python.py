"""A producer and a member of a group with kafka-python, at its defaults but for acks=all."""

from __future__ import annotations

import sys
import time
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from .threads import run, say


def produce(bootstrap: str, topic: str, partitions: int, stopped: Any) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all")
    sent = 0
    while not stopped():
        number = sent
        asked = producer.send(topic, str(number).encode(), partition=number % partitions)
        asked.add_callback(lambda found, number=number: say(f"ack {found.partition} {found.offset} {number}"))
        asked.add_errback(lambda error: say(f"error produce: {error!r}"))
        sent += 1
        time.sleep(0.002)
    producer.flush()
    say(f"flushed {sent}")
    producer.close()


def consume(bootstrap: str, topic: str, group: str, stopped: Any) -> None:
    servers = bootstrap.split(",")
    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest")
    # A member that knows no partition yet assigns itself none, joins once more when it knows them, and never takes up
    # that assignment if the call of poll ends before the answer comes (3.0.12; 13 of 240 runs with Apache Kafka).
    consumer.partitions_for_topic(topic)
    consumer.subscribe([topic])
    try:
        while not stopped():
            for records in consumer.poll(timeout_ms=100).values():
                for record in records:
                    say(f"got {record.partition} {record.offset} {record.value.decode()}")
        consumer.commit()
    except KafkaError as error:
        say(f"error consumer: {error!r}")
    consumer.close()


if __name__ == "__main__":
    run(sys.argv[1:], produce, consume)
