"""Reading: offsets by time or end, and raw batches from the leaders of partitions.

A `Fetcher` keeps one fetch outstanding at every leader and asks for the next piece before it hands out the one that has
arrived, so the broker reads while the caller decodes. What it hands out are whole record batches as the broker stored
them, in memory that nobody else touches; `headrace.wire.records` or `headrace.arrow` open them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from headrace.client.conversation import Steps
from headrace.client.metadata import TopicPartition
from headrace.client.operations import operation
from headrace.client.routing import Router
from headrace.wire.batch import BatchHeader, iter_whole_headers, read_header
from headrace.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

Isolation = Literal["read_uncommitted", "read_committed"]
Reset = Literal["fail", "earliest", "latest"]


@dataclass(frozen=True, slots=True)
class OffsetAt:
    """What ListOffsets found: -1 as the offset means that no record is that young."""

    offset: int
    timestamp: int
    leader_epoch: int


@operation
def list_offsets(
    router: Router,
    times: Mapping[TopicPartition, int],
    *,
    isolation: Isolation = "read_uncommitted",
    timeout_s: float | None = None,
) -> Steps[dict[TopicPartition, OffsetAt]]:
    """Finds the first offset at or after a timestamp in ms, or a special one: `LATEST`, `EARLIEST`, `MAX_TIMESTAMP`...

    With read_committed, `LATEST` is the last stable offset. Raises `BrokerError`.
    """
    level = int(isolation == "read_committed")

    def request_of(part: dict[TopicPartition, int]) -> ListOffsetsRequest:
        topics: dict[str, ListOffsetsTopic] = {}
        for (name, index), timestamp in part.items():
            topic = topics.setdefault(name, ListOffsetsTopic(name=name))
            topic.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=timestamp))
        return ListOffsetsRequest(
            replica_id=-1, isolation_level=level, topics=list(topics.values()), timeout_ms=int(router.timeout_s * 1000)
        )

    def results_of(response: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, int, OffsetAt]]:
        for topic in response.topics:
            for p in topic.partitions:
                yield (topic.name, p.partition_index), p.error_code, OffsetAt(p.offset, p.timestamp, p.leader_epoch)

    return (yield from router.at_leaders(times, request_of, ListOffsetsResponse, results_of, timeout_s=timeout_s))


@operation
def earliest_offsets(router: Router, topic: str) -> Steps[dict[int, int]]:
    """Finds the log start offset of every partition of a topic."""
    partitions = yield from router.partitions(topic)
    found = yield from list_offsets.steps(router, dict.fromkeys(partitions, EARLIEST))
    return {partition: at.offset for (_, partition), at in found.items()}


@operation
def latest_offsets(router: Router, topic: str, *, isolation: Isolation = "read_uncommitted") -> Steps[dict[int, int]]:
    """Finds the end of every partition of a topic: the high watermark, or the last stable offset for read_committed."""
    partitions = yield from router.partitions(topic)
    found = yield from list_offsets.steps(router, dict.fromkeys(partitions, LATEST), isolation=isolation)
    return {partition: at.offset for (_, partition), at in found.items()}


@dataclass(slots=True)
class Fetched:
    """Whole batches of one partition, in offset order.

    `records` may begin below `position` (a batch that contains it) and, with an end set, reach beyond that end: readers
    drop records outside [`position`, `end`). `next_position` is where the next piece continues. `aborted` lists
    (producer id, first offset) of aborted transactions in here, for read_committed; see `visible_batches`.
    """

    topic: str
    partition: int
    position: int
    next_position: int
    end: int | None
    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] = field(default_factory=list)

    def __repr__(self) -> str:
        """Where it is and how large; the records are encoded batches."""
        some = self.next_position > self.position
        span = f"offsets {self.position} to {self.next_position - 1}" if some else "nothing"
        return f"<Fetched {self.topic}-{self.partition}, {span}, {len(self.records)} bytes>"


def _place(at: TopicPartition, offset: int) -> str:
    return f"topic {at[0]} partition {at[1]} offset {offset}"


def whole_batches(records: memoryview, position: int = 0) -> tuple[memoryview, int | None]:
    """Cut off the batch that the fetch limit left incomplete; returns the rest and the offset after its last batch.

    Sizes and base offsets lie outside the checksum. So what cannot be a batch is cut off too: its length is less than a
    header, or it does not end above `position`. Of two of which the later begins before the end of the earlier one,
    either may be wrong, and both go.
    """
    before = end = 0
    due_before = due = position
    for at, header in iter_whole_headers(records):
        if at and header.base_offset < due:
            end, due = before, due_before
            break
        if header.next_offset <= max(due, header.base_offset):
            break
        before, due_before = end, due
        end, due = at + header.size, header.next_offset
    return records[:end], due if end else None


def visible_batches(
    fetched: Fetched, *, committed: bool = False, control: bool = False
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yields the data batches of a piece, without aborted transactions if `committed`; control batches if `control`.

    A transaction is aborted from its first offset until its producer's next control batch (KIP-98).
    """
    waiting = sorted(fetched.aborted, key=lambda producer: producer[1])
    aborted: set[int] = set()
    at, size = 0, len(fetched.records)
    while at < size:
        header = read_header(fetched.records, at)
        body = fetched.records[at : at + header.size]
        at += header.size
        while waiting and waiting[0][1] <= header.last_offset:
            aborted.add(waiting.pop(0)[0])
        if header.is_control:
            aborted.discard(header.producer_id)
            if control:
                yield header, body
        elif not (committed and header.is_transactional and header.producer_id in aborted):
            yield header, body
