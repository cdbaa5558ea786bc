"""What Produce requests of several partitions have in common that a client sends one after the other.

It names the same topics and partitions in the same order again and again, so that two requests differ in their records,
the lengths of these and the correlation id. A `Layout` is what is between the records, and the answer but for its
numbers; a `Group` is the requests of one layout that arrived together, with nothing in between.
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
"""Where the client id begins in a frame, its size included: everything before it differs between alike requests."""
NO_TAGS: Final[Buffer] = b"\0\0\0"
"""What follows the records of the last partition: no tagged fields of partition, topic and request."""
HEADER_BYTES: Final = 61
INDEX_BYTES: Final = 4
LONG_BYTES: Final = 8
WIDTH_MAX: Final = 200
"""Partitions of a layout: a connection keeps one, and what names more is decoded each time."""

Plan = list[list["Replica"]]
"""Of each topic that a request names: the partitions, in their order."""
Parts = list[list[tuple["Replica", int]]]
"""Of each topic that a request names: the partitions, and the position of its records among what goes to each."""
_MARK: Final = 0x1122334455667788
_NUMBERS: Final = Struct(">qqq")
"""Base offset, time of the append and log start offset, as they lie in an answer."""


@final
class Layout:
    """Of requests that one connection sends. `plan`: the replicas of each topic, in the order of the request."""

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
        """`generation`: of the authorizer that allowed it."""
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
        """Bytes of an answer, the field of its size included."""
        return len(self._answer)

    def answers(self, group: Group, columns: Sequence[PlainResults]) -> bytearray:
        """The answers to all requests of a group, one after the other; `columns`: how each partition's appends went."""
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
    """See the module. `chunks`: where the records go, one list for each partition of the layout."""

    __slots__ = ("chunks", "correlation_ids", "firsts", "forbidden", "layout", "sizes")

    def __init__(self, layout: Layout, chunks: list[list[Buffer]]) -> None:
        self.layout = layout
        self.chunks = chunks
        self.firsts = [len(each) for each in chunks]
        """Where the records of the first request are in each."""
        self.correlation_ids = array("q")
        self.sizes: list[int] = []
        self.forbidden = TRANSACTIONAL
        """Attributes of batches that the handler looks into."""
        for replica in layout.replicas:
            self.forbidden |= replica.log.opened_bits

    def parts(self, number: int) -> Parts:
        """The partitions of one of the requests, and where its records are among what goes to each."""
        firsts = iter(self.firsts)
        return [[(replica, next(firsts) + number) for replica in topic] for topic in self.layout.plan]

    def take(self, view: memoryview, at: int, stop: int, correlation_id: int) -> bool:
        """Takes the request in `view[at:stop]` (size included) if it differs from the layout in nothing but its
        records, and all of these are plain; nothing has happened otherwise."""
        layout = self.layout
        if not records_of(view, at + CLIENT_ID_AT, stop, layout.gaps, self.forbidden, layout.places, self.chunks):
            return False
        self.correlation_ids.append(correlation_id)
        self.sizes.append(stop - at - 4)
        return True


def is_open(layout: Layout, generation: int) -> bool:
    """Whether each of its partitions takes plain batches now, from whom that generation of the authorizer allows it."""
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
    """The layout of a flexible request (its frame without the size) for these replicas; None where it has none: for it
    names a partition twice, or has fields that no client sends."""
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
    # What was reckoned is what was decoded: a checksum lies in so much of a batch.
    found: list[list[memoryview]] = [[] for _ in sizes]
    if not records_of(frame, CLIENT_ID_AT - 4, len(frame), layout.gaps, 0, layout.places, found):
        return None
    begins = [bytes(records[:HEADER_BYTES]) for (records,) in found]
    decoded = [data.records for topic in request.topic_data for data in topic.partition_data]
    return layout if begins == [bytes(each[:HEADER_BYTES]) for each in decoded] else None  # type: ignore[index]


def _length_bytes(size: int) -> int:
    """Bytes of the length that leads so many bytes, or elements, in a compact field."""
    return max(1, -(-(size + 1).bit_length() // 7))
