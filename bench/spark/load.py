"""What the rows of the bench read: topics of JSON values, and a trickle of records; in a process of its own.

python -m bench.spark.load json BOOTSTRAP TOPIC COUNT           COUNT values of five fields over two partitions
python -m bench.spark.load trickle BOOTSTRAP TOPIC RATE         RATE records of 100 bytes a second, until killed
"""

from __future__ import annotations

import itertools
import json
import sys
import time

from confluent_kafka import KafkaError, Producer

PARTITIONS = 2
DISTINCT = 10_000
FLUSH_PATIENCE_S = 120.0


def values() -> list[bytes]:
    """JSON objects of an integer, a text, a number, a truth and a time."""
    return [
        json.dumps(
            {
                "id": 1_000_000_000 + number,
                "name": f"customer-{number % 977:05}",
                "amount": round(number * 0.37 % 1000, 2),
                "paid": number % 3 == 0,
                "at": f"2026-11-{number % 28 + 1:02}T{number % 24:02}:{number % 60:02}:{number % 59:02}Z",
            }
        ).encode()
        for number in range(DISTINCT)
    ]


def fill_json(bootstrap: str, topic: str, count: int) -> None:
    """Raises AssertionError where not all of it is delivered."""
    failed: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "queue.buffering.max.messages": 2_000_000,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _message: failed.append(error),
        }
    )
    for number, value in zip(range(count), itertools.cycle(values())):
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
    left = producer.flush(FLUSH_PATIENCE_S)
    assert not left and not failed, failed[0] if failed else f"{left} are not delivered"


def trickle(bootstrap: str, topic: str, rate: int) -> None:
    """Evenly, each record by itself."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    began = time.monotonic()
    for number in itertools.count():
        producer.produce(topic, b"x" * 100, partition=number % PARTITIONS)
        producer.poll(0)
        time.sleep(max(0.0, began + (number + 1) / rate - time.monotonic()))


def main(arguments: list[str]) -> int:
    what, bootstrap, topic, number = arguments
    {"json": fill_json, "trickle": trickle}[what](bootstrap, topic, int(number))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
