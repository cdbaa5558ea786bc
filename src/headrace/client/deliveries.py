"""Batches on their way to brokers: of each partition, in the order of their sequences."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from headrace.client.errors import BrokerError, ClientError
from headrace.client.metadata import TopicPartition
from headrace.client.retry import PAUSE_FIRST_S
from headrace.wire.records import Record

IN_FLIGHT_MAX = 5
"""Requests in flight a broker; brokers remember five batches a producer, and cannot detect older duplicates."""


@dataclass(slots=True, eq=False)
class Delivery:
    """What became of one batch. `base_offset` is -1 where the broker did not say (acks=0, or a duplicate of old).

    Of a batch that was split, it is the first part's; other producers may have written between the parts.
    """

    topic: str
    partition: int
    record_count: int
    size: int
    done: bool = False
    base_offset: int = -1
    log_append_time_ms: int = -1
    error: ClientError | None = None


@dataclass(slots=True, eq=False)
class Batch:
    """`unsure` once an attempt has ended without saying whether the batch is in the log.

    `order` is the number of the batch, and behind it those of parts. `whole` is the batch that was split, and
    `parts_left` says how many of its parts are not acknowledged.
    """

    data: bytearray | memoryview
    delivery: Delivery
    order: tuple[int, ...]
    deadline: float
    unsure: bool = False
    whole: Batch | None = None
    parts_left: int = 0

    def part_delivered(self, part: Batch) -> None:
        """Takes note that a part of this batch, which was split, is in the log."""
        self.parts_left -= 1
        delivery = self.delivery
        if not any(part.order[len(self.order) :]):
            # the first part, of the first part, ...
            delivery.base_offset = part.delivery.base_offset
        delivery.log_append_time_ms = max(delivery.log_append_time_ms, part.delivery.log_append_time_ms)
        delivery.done = self.parts_left == 0


@dataclass(slots=True, eq=False)
class OpenBatch:
    """A batch that still takes records."""

    records: list[Record] = field(default_factory=list)
    size: int = 0
    since: float = 0.0


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """Batches of one partition: `queue` waits to be sent, `flying` is on its way, both in sequence order.

    Until the first batch is acknowledged only one flies: a broker takes any sequence from a producer that it does not
    know, so a second one could overtake a first one that was refused (by a leader that is not ready yet).

    A broker knows a batch again among the five newest alone. So nothing new flies beside one that a later one has
    overtaken: if it is in the log already, the log would grow away from it.

    The epoch is the partition's own: brokers keep producers by partition, so one that starts again concerns no other.
    `lost` is the answer that makes it do so, kept until nothing flies any more.
    """

    at: TopicPartition
    epoch: int
    known: bool = False
    lost: BrokerError | None = None
    next_sequence: int = 0
    newest: tuple[int, ...] = ()
    """The order of the newest batch that is acknowledged."""
    queue: deque[Batch] = field(default_factory=deque)
    flying: deque[Batch] = field(default_factory=deque)
    not_before: float = 0.0
    """When it is tried again after a failure; 0 once a batch was taken."""
    pause_s: float = PAUSE_FIRST_S
    warns_at: float = 0.0
    trouble: str = ""

    @property
    def may_fly(self) -> bool:
        if not self.queue or self.lost is not None or len(self.flying) >= (IN_FLIGHT_MAX if self.known else 1):
            return False
        return all(batch.order > self.newest for batch in self.flying)

    def put_back(self, batch: Batch) -> None:
        """Queues a batch once more, in front of everything that came after it."""
        if batch in self.flying:
            self.flying.remove(batch)
        self.queue.insert(self._place(batch), batch)

    def replace(self, batch: Batch, parts: list[tuple[bytearray, int]]) -> list[Batch]:
        """Puts the parts of a batch, each with its number of records, in its place. They are as unsure as it is."""
        if batch in self.flying:
            self.flying.remove(batch)
        else:
            self.queue.remove(batch)
        whole = batch if batch.whole is None else batch.whole
        whole.parts_left += len(parts) - (whole is not batch)
        found = [
            Batch(
                data,
                Delivery(*self.at, count, len(data)),
                (*batch.order, number),
                batch.deadline,
                unsure=batch.unsure,
                whole=whole,
            )
            for number, (data, count) in enumerate(parts)
        ]
        place = self._place(batch)
        for number, part in enumerate(found):
            self.queue.insert(place + number, part)
        return found

    def _place(self, batch: Batch) -> int:
        return sum(other.order < batch.order for other in self.queue)
