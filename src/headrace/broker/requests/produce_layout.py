"""The layout that consecutive Produce requests of one connection for several partitions share.

A producer names the same topics and partitions in the same order again and again, so two of its requests differ only in
their records, the lengths of these and the correlation id. A `Layout` holds the bytes between the records, and the
answer except for its numbers. A `Group` holds consecutive requests of one layout that arrived together.
"""

from __future__ import annotations

from array import array
from struct import Struct
from typing import TYPE_CHECKING, Final, final

from headrace.log.validate import ANY_BATCH_BIT
from headrace.wire._produce import put, records_of
from headrace.wire.apis import ApiKey
from headrace.wire.frame import encode_response
from headrace.wire.messages.k00_produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.wire.primitives import Buffer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.broker.partitions.replica import Replica
    from headrace.log.append_results import PlainResults

PRODUCE: Final = int(ApiKey.PRODUCE)
FLEXIBLE_FROM: Final = 9
TOPIC_IDS_FROM: Final = 13
TRANSACTIONAL: Final = 0x10
CLIENT_ID_AT: Final = 12
"""Position of the client id in a frame that begins with its size: the bytes before it differ even between alike
requests."""
NO_TAGS: Final[Buffer] = b"\0\0\0"
"""The bytes after the records of the last partition: no tagged fields of partition, topic and request."""
HEADER_BYTES: Final = 61
INDEX_BYTES: Final = 4
LONG_BYTES: Final = 8
WIDTH_MAX: Final = 200
"""Most partitions of a layout. A connection keeps one layout; wider requests are decoded each time."""

Plan = list[list["Replica"]]
"""The partitions of each topic of a request, in its order."""
Parts = list[list[tuple["Replica", int]]]
"""For each topic of a request: its partitions, each with the position of its records among that replica's chunks."""
_MARK: Final = 0x1122334455667788
_NUMBERS: Final = Struct(">qqq")
"""Base offset, append time and log start offset, as they are encoded in an answer."""


@final
class Layout:
    """The common form of requests that one connection sends. `plan` has the replicas of each topic, in request
    order."""

    __slots__ = (
        "_answer",
        "_answer_places",
        "acks",
        "gaps",
        "generation",
        "places",
        "plan",
        "replicas",
        "timeout_ms",
        "version",
    )

    def __init__(self, version: int, request: ProduceRequest, gaps: list[bytes], plan: Plan, generation: int) -> None:
        """`generation` is the authorizer's generation in which the client was allowed to write."""
        self.version = version
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.generation = generation
        self.gaps = gaps
        self.plan = plan
        self.replicas = [replica for topic in plan for replica in topic]
        self.places = array("q", bytes(2 * LONG_BYTES * len(self.replicas)))
        self._answer = bytearray()
        self._answer_places: list[int] = []

    def _make_answer(self) -> None:
        responses = []
        for topic in self.plan:
            parts = [
                PartitionProduceResponse(
                    index=each.index, base_offset=_MARK, log_append_time_ms=_MARK, log_start_offset=_MARK
                )
                for each in topic
            ]
            one = TopicProduceResponse(name=topic[0].topic, topic_id=topic[0].topic_id, partition_responses=parts)
            responses.append(one)
        frame = bytes(encode_response(PRODUCE, self.version, 0, ProduceResponse(responses=responses)))
        mark = _NUMBERS.pack(_MARK, _MARK, _MARK)
        at = 0
        for _ in self.replicas:
            at = frame.index(mark, at)
            self._answer_places.append(at)
            at += len(mark)
        self._answer = bytearray(frame)

    @property
    def answer_bytes(self) -> int:
        """Size of an answer in bytes, including its size field."""
        return len(self._answer)

    def answers(self, group: Group, columns: Sequence[PlainResults]) -> bytearray:
        """Returns the answers to all requests of a group, concatenated. `columns` has the append results of each
        partition."""
        if not self._answer_places:
            self._make_answer()
        for at, column in zip(self._answer_places, columns, strict=True):
            _NUMBERS.pack_into(self._answer, at, 0, -1, column.log_start_offset)
        count, size = len(group.correlation_ids), len(self._answer)
        block = self._answer * count
        put(block, 4, size, count, 4, group.correlation_ids, 0)
        for at, column, first in zip(self._answer_places, columns, group.firsts, strict=True):
            put(block, at, size, count, LONG_BYTES, column.offsets, first)
        return block


class Group:
    """Consecutive requests of one layout. `chunks` has a list for each partition of the layout, which `take` fills."""

    __slots__ = ("chunks", "correlation_ids", "firsts", "forbidden", "layout", "sizes")

    def __init__(self, layout: Layout, chunks: list[list[Buffer]]) -> None:
        self.layout = layout
        self.chunks = chunks
        self.firsts = [len(each) for each in chunks]
        """The position of the first request's records in each list."""
        self.correlation_ids = array("q")
        self.sizes: list[int] = []
        self.forbidden = TRANSACTIONAL
        """Attribute bits of batches that only the handler can process."""
        for replica in layout.replicas:
            self.forbidden |= replica.log.opened_bits

    def parts(self, number: int) -> Parts:
        """Returns the partitions of one request, each with the position of its records among that replica's chunks."""
        firsts = iter(self.firsts)
        return [[(replica, next(firsts) + number) for replica in topic] for topic in self.layout.plan]

    def take(self, view: memoryview, at: int, stop: int, correlation_id: int) -> bool:
        """Takes the request in `view[at:stop]` (size included) if it differs from the layout only in its records, and
        all of these are plain. Returns false and changes nothing otherwise."""
        layout = self.layout
        if not records_of(view, at + CLIENT_ID_AT, stop, layout.gaps, self.forbidden, layout.places, self.chunks):
            return False
        self.correlation_ids.append(correlation_id)
        self.sizes.append(stop - at - 4)
        return True


def is_open(layout: Layout, generation: int) -> bool:
    """Returns whether each partition takes plain batches now, and the client is still allowed to write in that
    generation of the authorizer."""
    if generation != layout.generation:
        return False
    needs_all = layout.acks < 0
    for replica in layout.replicas:
        if (
            not replica.takes_appends
            or replica.log.opened_bits & ANY_BATCH_BIT
            or (needs_all and replica.shared and replica.under_min_isr)
        ):
            return False
    return True


def layout_of(frame: memoryview, version: int, request: ProduceRequest, plan: Plan, generation: int) -> Layout | None:
    """Returns the layout of a flexible request (its frame without the size) for these replicas. None if it names a
    partition twice, names too many, or has fields that clients do not send."""
    sizes: list[int] = []
    gaps: list[int] = []
    for topic in request.topic_data:
        if sizes:
            name = len(topic.name.encode()) if version < TOPIC_IDS_FROM else 0
            named = name + _length_bytes(name) if version < TOPIC_IDS_FROM else len(topic.topic_id)
            gaps.append(2 + named + _length_bytes(len(topic.partition_data)) + INDEX_BYTES)
        gaps += [1 + INDEX_BYTES] * (len(topic.partition_data) - 1)
        sizes += [len(data.records) for data in topic.partition_data]  # type: ignore[arg-type]
    if len(sizes) > WIDTH_MAX or len({replica for topic in plan for replica in topic}) != len(sizes):
        return None
    at = len(frame) - len(NO_TAGS)
    cut = [bytes(frame[at:])]
    for size, gap in zip(reversed(sizes), [*reversed(gaps), 0], strict=True):
        at -= size + _length_bytes(size)
        begin = at - gap if gap else CLIENT_ID_AT - 4
        if at <= begin or begin < 0:
            return None
        cut.append(bytes(frame[begin:at]))
        at = begin
    layout = Layout(version, request, cut[::-1], plan, generation)
    # Verifies the computed gaps against the decoded records: a batch header contains the checksum.
    found: list[list[memoryview]] = [[] for _ in sizes]
    if not records_of(frame, CLIENT_ID_AT - 4, len(frame), layout.gaps, 0, layout.places, found):
        return None
    begins = [bytes(records[:HEADER_BYTES]) for (records,) in found]
    decoded = [data.records for topic in request.topic_data for data in topic.partition_data]
    return layout if begins == [bytes(each[:HEADER_BYTES]) for each in decoded] else None  # type: ignore[index]


def _length_bytes(size: int) -> int:
    """Returns the size in bytes of the length prefix of a compact field with so many bytes or elements."""
    return max(1, -(-(size + 1).bit_length() // 7))
