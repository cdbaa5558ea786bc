"""A program of `programs` at work on a cluster: what it was told, and whether that is true in the end."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

from . import programs
from .jars import ROOT

PATIENCE_S = 60.0
LOOK_S = 0.01


@dataclass
class Program:
    """Runs within a `with` block. `acknowledged` is by (partition, offset), `got` the numbers in order, with how often
    each came."""

    name: str
    bootstrap: str
    topic: str
    partitions: int
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """How it comes in: see `programs`."""
    security: Mapping[str, str] = field(default_factory=dict)
    """The same for the consumer that checks, as librdkafka's settings."""
    patience_s: float = PATIENCE_S
    acknowledged: dict[tuple[int, int], int] = field(default_factory=dict)
    got: Counter[int] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sent: int | None = None
    closed: bool = False

    def __enter__(self) -> Self:
        arguments = [self.bootstrap, self.topic, f"{self.topic}-group", str(self.partitions)]
        self._stderr = self.log.open("wb")
        self.process = subprocess.Popen(
            [*programs.command(self.name), *arguments], cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, text=True, bufsize=1,
            env={**os.environ, **self.environment},
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self._stderr.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            what, _, rest = line.strip().partition(" ")
            if what in ("ack", "got"):
                partition, offset, number = map(int, rest.split())
                if what == "ack":
                    self.acknowledged[partition, offset] = number
                else:
                    self.got[number] += 1
            elif what == "flushed":
                self.sent = int(rest)
            elif what == "closed":
                self.closed = True
            else:
                (self.notes if what == "note" else self.errors).append(rest)

    def _order(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def until(self, look: Callable[[], bool], what: str) -> None:
        """Waits for something that must come."""
        last = time.monotonic() + self.patience_s
        while not look():
            said = f"{what}; errors {self.errors[:3]}, notes {self.notes[:3]}, {self.log.read_text()[-999:]}"
            assert self.process.poll() is None, f"the program has ended: {said}"
            assert time.monotonic() < last, said
            time.sleep(LOOK_S)

    def goes_on(self) -> None:
        """Returns when every partition has acknowledged more than it had, and the consumer was handed some of it."""
        before = len(self.acknowledged)

        def moved() -> bool:
            news = list(self.acknowledged.copy().items())[before:]  # another thread fills it
            written = {partition for (partition, _), _ in news}
            read = {number % self.partitions for _, number in news if number in self.got}
            return len(written) == len(read) == self.partitions

        self.until(moved, f"no more than {before} records are acknowledged and read")

    def finish(self) -> None:
        """The producer ends, the consumer reads all that there is, and leaves."""
        self._order()
        self.until(lambda: self.sent is not None, "the producer does not end")
        self.until(lambda: len(self.got) >= len(set(self.acknowledged.values())), "the consumer does not see all")
        self._order()
        self.until(lambda: self.closed or self.process.poll() is not None, "the consumer does not close")
        assert self.process.wait(PATIENCE_S) == 0

    def check(self, *, once: bool) -> None:
        """Nothing acknowledged is lost or moved, nothing is unread, no error came; `once`: nothing is there twice."""
        assert self.errors == []
        found = read_all(self.bootstrap, self.topic, self.partitions, self.security)
        lost = {place: number for place, number in self.acknowledged.items() if found.get(place) != number}
        assert lost == {}, f"{len(lost)} acknowledged records are not where they were said to be"
        assert set(self.got) == set(found.values()), "the consumer has not seen what is there"
        if once:
            assert self.sent is not None and len(self.acknowledged) == self.sent
            for partition in range(self.partitions):
                numbers = [number for (index, _), number in found.items() if index == partition]
                assert numbers == list(range(partition, self.sent, self.partitions)), f"partition {partition}"


def read_all(
    bootstrap: str, topic: str, partitions: int, security: Mapping[str, str] | None = None
) -> dict[tuple[int, int], int]:
    """Every record of a topic: (partition, offset) -> number, in the order of both."""
    own = {"bootstrap.servers": bootstrap, "group.id": "check", "log_level": 0, "check.crcs": True}
    consumer = Consumer({**(security or {}), **own})
    found: dict[tuple[int, int], int] = {}
    try:
        for partition in range(partitions):
            end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=PATIENCE_S)[1]
            consumer.assign([TopicPartition(topic, partition, 0)])
            last, position = time.monotonic() + PATIENCE_S, 0
            while position < end:
                assert time.monotonic() < last, f"partition {partition}: reading stopped at {position} of {end}"
                for message in consumer.consume(10_000, timeout=0.1):
                    if message.error():
                        raise KafkaException(message.error())
                    position = (message.offset() or 0) + 1
                    found[partition, position - 1] = int(message.value() or b"")
    finally:
        consumer.close()
    return found
