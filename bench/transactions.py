"""Transactions by librdkafka (confluent-kafka), with the settings that it comes with; in a process of its own.

python -m bench.transactions commit BOOTSTRAP TOPIC WARM_UP_S SECONDS     one producer, one transaction after the other
python -m bench.transactions small BOOTSTRAP TOPIC WARM_UP_S SECONDS      the same with one record in each
python -m bench.transactions fill BOOTSTRAP TOPIC COUNT                   COUNT committed records of 1 KB
                                                                          each prints one line of JSON
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from confluent_kafka import KafkaError, Producer

PATIENCE_S = 60.0
RECORDS = 4
"""Records of 100 bytes in a transaction, in turn to two partitions."""
PARTITIONS = 2
FILL_RECORDS = 1000
"""Records of 1 KB in a transaction of a topic that is filled."""
CONCURRENT = KafkaError(KafkaError.CONCURRENT_TRANSACTIONS).str()
"""How librdkafka's log names that answer of a coordinator."""
ABORTED_OF = 10
"""One in so many of the transactions that fill a topic is aborted."""


def producer_for(bootstrap: str, name: str, **more: Any) -> Producer:
    """A producer whose transactions may begin."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"{name}-{time.monotonic_ns()}", "log_level": 0, **more}
    )
    producer.init_transactions(PATIENCE_S)
    return producer


def commit(bootstrap: str, topic: str, warm_up_s: float, seconds: float) -> dict[str, Any]:
    """Transactions of a few records, one after the other; how long each commit took, from its call to its return.

    The call comes when the records are queued, as in a program that commits what it has: it sends them and waits for
    them. `cpu_s` is what librdkafka and Python use themselves.
    """
    producer = producer_for(bootstrap, "one")
    value = b"x" * 100
    commits: list[float] = []
    spent = used = 0.0
    for length in (warm_up_s, seconds):
        commits.clear()
        used = time.process_time()
        before = now = time.perf_counter()
        while now < before + length:
            producer.begin_transaction()
            for number in range(RECORDS):
                producer.produce(topic, value, partition=number % PARTITIONS)
            called = time.perf_counter()
            producer.commit_transaction(PATIENCE_S)
            now = time.perf_counter()
            commits.append(now - called)
        spent = now - before
        used = time.process_time() - used
    return {"transactions": len(commits), "seconds": spent, "cpu_s": used, "commits": commits}


class Concurrent(logging.Handler):
    """Counts the lines of librdkafka's log that tell of an answer with CONCURRENT_TRANSACTIONS."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += CONCURRENT in record.getMessage()


def small(bootstrap: str, topic: str, warm_up_s: float, seconds: float) -> dict[str, Any]:
    """Transactions of one record, one after the other; how long each took from its begin to the end of its commit,
    and how often the coordinator answered that the one before is still being ended."""
    counting, logger = Concurrent(), logging.getLogger("librdkafka")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(counting)
    producer = producer_for(bootstrap, "small", debug="eos", log_level=7, logger=logger)
    took: list[float] = []
    spent = 0.0
    for length in (warm_up_s, seconds):
        producer.poll(0)
        took.clear()
        counting.count = 0
        start = now = time.perf_counter()
        while now < start + length:
            began = now
            producer.begin_transaction()
            producer.produce(topic, b"x" * 100)
            producer.commit_transaction(PATIENCE_S)
            producer.poll(0)
            now = time.perf_counter()
            took.append(now - began)
        spent = now - start
    return {"seconds": spent, "took": took, "concurrent": counting.count}


def fill(bootstrap: str, topic: str, count: int) -> dict[str, Any]:
    """Transactions of 1,000 records, every tenth aborted, the last committed, until `count` records are committed."""
    producer = producer_for(bootstrap, "fill", **{"queue.buffering.max.kbytes": 65_536, "linger.ms": 50})
    value = b"x" * 1024
    committed = transactions = 0
    while committed < count:
        aborted = transactions % ABORTED_OF == ABORTED_OF // 2
        records = FILL_RECORDS if aborted else min(FILL_RECORDS, count - committed)
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic, value, partition=0)
        producer.flush(PATIENCE_S)  # an abort drops what is not sent yet
        if aborted:
            producer.abort_transaction(PATIENCE_S)
        else:
            producer.commit_transaction(PATIENCE_S)
            committed += records
        transactions += 1
    return {"records": committed, "transactions": transactions}


PACED = {"commit": commit, "small": small}


def main(arguments: list[str]) -> int:
    what, bootstrap, topic, *numbers = arguments
    if what in PACED:
        outcome = PACED[what](bootstrap, topic, *map(float, numbers))
    else:
        outcome = fill(bootstrap, topic, *map(int, numbers))
    print(json.dumps(outcome))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
