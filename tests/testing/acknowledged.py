"""A librdkafka producer beside nodes that fail: what it was acknowledged, when, and whether all of it can be read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Self

import confluent_kafka as ck

TOPIC = "t"
PARTITIONS = 3


def until(look: Callable[[], object], what: str, timeout_s: float = 90.0) -> float:
    """Waits for something that must come; how long it took."""
    began = time.monotonic()
    while not look():
        assert time.monotonic() - began < timeout_s, f"{what} does not come"
        time.sleep(0.005)
    return time.monotonic() - began


class Load:
    """Writes with acks=all to every partition of `TOPIC`, one record after the other, until it is told to stop."""

    def __init__(self, bootstrap: str, security: Mapping[str, str] | None = None) -> None:
        """`security` is more of librdkafka's settings."""
        self.bootstrap = bootstrap
        self.security = dict(security or {})
        self.acked: list[tuple[float, int, int, bytes]] = []
        """(when, partition, offset, value) of each."""
        self.implied: list[tuple[int, bytes]] = []
        """Acknowledged without an offset: librdkafka infers it of a retry, when what follows it is acknowledged."""
        self.errors: list[object] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        producer = ck.Producer(
            {
                **self.security,
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 50,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "topic.metadata.refresh.interval.ms": 200,
                "socket.timeout.ms": 1000,
                "log_level": 0,
            }
        )
        number = 0
        while not self._stop.is_set():
            producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered)
            number += 1
            producer.poll(0.002)
        assert producer.flush(60) == 0

    def _delivered(self, error: object, message: ck.Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        at, offset, value = message.partition(), message.offset(), message.value()
        assert at is not None and isinstance(value, bytes)
        if offset is None:
            self.implied.append((at, value))
        else:
            self.acked.append((time.monotonic(), at, offset, value))

    def __enter__(self) -> Self:
        self._thread.start()
        self.goes_on()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def goes_on(self) -> None:
        """Every partition acknowledges more than it had."""
        had = len(self.acked)
        every = set(range(PARTITIONS))
        until(lambda: {at for _, at, _, _ in self.acked[had:]} == every, "an acknowledgement from each partition")

    def acked_after(self, began: float, partition: int) -> bool:
        """Whether a partition has acknowledged a record since then."""
        return any(moment > began for moment, at, _, _ in self.acked[-500:] if at == partition)

    def gap_s(self, partition: int) -> float:
        """The longest time between two acknowledgements of a partition."""
        moments = [moment for moment, at, _, _ in self.acked if at == partition]
        return max(after - before for before, after in pairwise(moments))

    def is_kept(self) -> None:
        """Asserts that all that was acknowledged can be read, and nothing twice."""
        found = read_all(self.bootstrap, self.security)
        assert not self.errors
        assert [ack for ack in self.acked if found.get((ack[1], ack[2])) != ack[3]] == []
        assert set(self.implied) <= {(at, value) for (at, _), value in found.items()}
        assert len(set(found.values())) == len(found), "a record was written twice"


def read_all(bootstrap: str, security: Mapping[str, str] | None = None) -> dict[tuple[int, int], bytes]:
    """What a consumer finds, by partition and offset."""
    own = {"bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True, "log_level": 0}
    consumer = ck.Consumer({**(security or {}), **own})
    consumer.assign([ck.TopicPartition(TOPIC, at, 0) for at in range(PARTITIONS)])
    found: dict[tuple[int, int], bytes] = {}
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(60)
        assert message is not None, "nothing to read"
        at, offset, value = message.partition(), message.offset(), message.value()
        assert at is not None
        if message.error() is not None:
            ended.add(at)
        else:
            assert offset is not None and isinstance(value, bytes)
            found[at, offset] = value
    consumer.close()
    return found
