"""What the parts of `bench.scale` share: the cluster's records, the table of what was measured, and the clocks."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from bench.__main__ import keep, number
from headrace.metadata import bootstrap
from headrace.wire.messages import metadata_records as mr

FIRST = 1000
"""The id of the first broker: the node that decides is none of them."""
TURN_S = 0.02
"""How long the loop may be held."""
TICK_S = 0.001
MS, MB = 1e3, 1e6


@dataclasses.dataclass(frozen=True)
class Size:
    """The cluster: every topic has as many partitions, every partition three replicas."""

    brokers: int = 200
    topics: int = 10_000
    partitions: int = 200_000
    replicas: int = 3


class Table:
    """What was measured, said as soon as it is known and kept as JSON lines."""

    def __init__(self, size: Size, path: Path) -> None:
        self._size = size
        self._path = path
        self._rows: list[dict[str, Any]] = []

    def add(self, title: str, value: float, unit: str, bar: float | None = None) -> None:
        """A row; a bar is the most that it may be."""
        holds = None if bar is None else value <= bar
        mark = "" if bar is None else f"(<= {bar:g}) {'holds' if holds else 'MISSES'}"
        print(f"{title:64} {number(value):>8} {unit:6} {mark}".rstrip(), flush=True)
        self._rows.append({"title": title, "value": value, "unit": unit, "bar": bar, "holds": holds})
        keep(self._path, {"scale": dataclasses.asdict(self._size)}, self._rows)

    def held(self, title: str, ticker: Ticker) -> None:
        """How long the loop was held at most while something went on."""
        self.add(f"{title}: the loop was held", ticker.longest_s * MS, "ms", TURN_S * MS)
        self.add(f"{title}: with so much work", ticker.most_work_s * MS, "ms", TURN_S * MS)


@contextmanager
def timed() -> Iterator[Callable[[], float]]:
    """Seconds that the block took, once it is over."""
    gc.collect()
    before = time.perf_counter()
    spent = 0.0
    yield lambda: spent
    spent = time.perf_counter() - before


class Ticker:
    """Looks how long the loop leaves others without a turn, while the block goes on. `most_work_s` is the processor
    time of this process in one such time: what else runs on the machine does not count."""

    def __init__(self) -> None:
        self.longest_s = self.most_work_s = 0.0

    async def _tick(self) -> None:
        while True:
            before, worked = time.perf_counter(), time.process_time()
            await asyncio.sleep(TICK_S)
            self.longest_s = max(self.longest_s, time.perf_counter() - before - TICK_S)
            self.most_work_s = max(self.most_work_s, time.process_time() - worked)

    async def __aenter__(self) -> Self:
        gc.collect()
        self._task = asyncio.get_running_loop().create_task(self._tick())
        await asyncio.sleep(5 * TICK_S)
        self.longest_s = self.most_work_s = 0.0
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(2 * TICK_S)
        self._task.cancel()


def broker_records(size: Size) -> list[Any]:
    """Every broker as it is once it was unfenced."""
    return [
        mr.RegisterBrokerRecord(
            broker_id=broker,
            incarnation_id=broker.to_bytes(16, "big"),
            broker_epoch=broker,
            end_points=[mr.BrokerEndpoint(name="PLAINTEXT", host=f"b{broker}", port=9092, security_protocol=0)],
            features=[
                mr.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in bootstrap.SUPPORTED_FEATURES.items()
            ],
            rack=f"r{broker % 3}",
            fenced=False,
            log_dirs=[directory_of(broker)],
        )
        for broker in range(FIRST, FIRST + size.brokers)
    ]


def directory_of(broker: int) -> bytes:
    return broker.to_bytes(16, "little")


def topic_records(size: Size, number: int, chance: random.Random) -> list[Any]:
    """A topic whose replicas lie anywhere."""
    topic_id = (number + 1).to_bytes(16, "big")
    records: list[Any] = [mr.TopicRecord(name=f"topic-{number:06}", topic_id=topic_id)]
    for index in range(size.partitions // size.topics):
        replicas = [FIRST + each for each in chance.sample(range(size.brokers), size.replicas)]
        records.append(
            mr.PartitionRecord(
                partition_id=index, topic_id=topic_id, replicas=replicas, isr=list(replicas), leader=replicas[0],
                leader_epoch=0, partition_epoch=0, directories=[directory_of(each) for each in replicas],
            )
        )  # fmt: skip
    return records
