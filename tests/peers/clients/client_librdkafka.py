"""A producer and a member of a group with librdkafka (confluent-kafka), idempotent."""

from __future__ import annotations

import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from .threads import run, say


def produce(bootstrap: str, topic: str, partitions: int, stopped: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})

    def tell(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            say(f"error produce: {error}")
        else:
            say(f"ack {message.partition()} {message.offset()} {(message.value() or b'').decode()}")

    sent = 0
    while not stopped():
        producer.produce(topic, str(sent).encode(), partition=sent % partitions, on_delivery=tell)
        sent += 1
        producer.poll(0)
        time.sleep(0.002)
    producer.flush()
    say(f"flushed {sent}")


def consume(bootstrap: str, topic: str, group: str, stopped: Any) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    while not stopped():
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error() is not None:
            say(f"error poll: {message.error()}")
        else:
            say(f"got {message.partition()} {message.offset()} {(message.value() or b'').decode()}")
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() != KafkaError._NO_OFFSET:  # the commits at intervals have had them all
            say(f"error commit: {error}")
    consumer.close()


if __name__ == "__main__":
    run(sys.argv[1:], produce, consume)
