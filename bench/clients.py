"""Loads by librdkafka (confluent-kafka): produce, consume, end-to-end latency; in a process of its own.

python -m bench.clients produce BOOTSTRAP TOPIC COUNT SIZE [PARTITIONS]
python -m bench.clients consume BOOTSTRAP TOPIC COUNT
python -m bench.clients latency BOOTSTRAP TOPIC COUNT                     each prints one line of JSON
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

PATIENCE_S = 60.0
LATENCY_WARM_UP = 300


def produce(bootstrap: str, topic: str, count: int, size: int, partitions: int = 1) -> dict[str, Any]:
    """Records of `size` bytes as fast as librdkafka takes them, acks=all; from the first call to the last delivery."""
    failed: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1_048_576,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _message: failed.append(error),
        }
    )
    value = b"x" * size
    send = producer.produce
    before = time.perf_counter()
    for number in range(count):
        while True:
            try:
                send(topic, value, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.01)
    while producer.flush(1.0):
        assert time.perf_counter() - before < 10 * PATIENCE_S, "deliveries do not end"
    spent = time.perf_counter() - before
    assert not failed, failed[0]
    return {"records": count, "seconds": spent, "bytes": count * size}


def consumer_at(bootstrap: str, topic: str, offset: int, **more: Any) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",  # as it comes
            **more,
        }
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    return consumer


def consume(bootstrap: str, topic: str, count: int) -> dict[str, Any]:
    """`count` records from the beginning; the clock starts with the first of them.

    librdkafka rests for a second by default when its queue is full, which a fast broker fills at once: with that, the
    rate says how often it was full.
    """
    consumer = consumer_at(bootstrap, topic, 0, **{"fetch.queue.backoff.ms": 1})
    first = consumer.consume(1, PATIENCE_S)
    assert first, "nothing came"
    size = len(first[0].value() or b"")
    got = 0
    before = time.perf_counter()
    while got < count - 1:
        got += len(consumer.consume(min(10_000, count - 1 - got), 1.0))
        assert time.perf_counter() - before < PATIENCE_S, f"{got} of {count}"
    spent = time.perf_counter() - before
    consumer.close()
    return {"records": got, "seconds": spent, "bytes": got * size}


def latency(bootstrap: str, topic: str, count: int) -> dict[str, Any]:
    """A record of 100 bytes, out and back, one after the other."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "socket.nagle.disable": True})
    consumer = consumer_at(bootstrap, topic, 0, **{"fetch.wait.max.ms": 500, "socket.nagle.disable": True})
    value = b"x" * 100
    times: list[float] = []
    for number in range(count + LATENCY_WARM_UP):
        started = time.perf_counter()
        producer.produce(topic, value, partition=0)
        producer.poll(0)
        message = consumer.poll(PATIENCE_S)
        if message is None or message.error():
            raise KafkaException(message.error() if message else "nothing came")
        if number >= LATENCY_WARM_UP:
            times.append(time.perf_counter() - started)
    producer.flush()
    consumer.close()
    times.sort()

    def at(share: float) -> float:
        return times[min(len(times) - 1, int(share * len(times)))] * 1000

    return {"p50_ms": at(0.5), "p99_ms": at(0.99), "p999_ms": at(0.999)}


def main(arguments: list[str]) -> int:
    what, bootstrap, topic, *numbers = arguments
    run: Any = {"produce": produce, "consume": consume, "latency": latency}[what]
    print(json.dumps(run(bootstrap, topic, *map(int, numbers))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
