"""The short path of Produce: requests that arrived together are appended together.

A run collects the Produce requests of one readable event. Their batches for one partition share one write; each request
gets its own answer, in order, or none with acks=0. Requests with one partition each (from librdkafka, and mostly from
Java producers) are answered from a template that the generated codec made; those with several are answered as in the
handler. If any partition of a request needs more - a transaction, an unknown topic, an offline replica, a batch that
has to be decompressed - the request is left to the handler in `apis/k00_produce.py`, which gives the same answers.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from headrace.broker.net.long_answers import FEW_ELEMENT_BYTES
from headrace.broker.requests.pieces import are_many
from headrace.broker.requests.produce_layout import (
    CLIENT_ID_AT,
    FLEXIBLE_FROM,
    NO_TAGS,
    PRODUCE,
    TOPIC_IDS_FROM,
    TRANSACTIONAL,
    Group,
    Layout,
    Parts,
    Plan,
    is_open,
    layout_of,
)
from headrace.log.append_results import PlainResults
from headrace.log.validate import ANY_BATCH_BIT
from headrace.security.authorizer import OPEN_GENERATION, Operation, ResourceType
from headrace.wire.apis import APIS
from headrace.wire.frame import encode_response
from headrace.wire.messages.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from headrace.wire.primitives import Buffer, DecodeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.broker.net.client_session import AnsweredConnection
    from headrace.broker.partitions.replica import Replica
    from headrace.broker.requests.apis.k00_produce import Waiting
    from headrace.broker.requests.services import Services
    from headrace.log.append_results import AppendResult

START_OFFSET_FROM: Final = 5
ZSTD_FROM: Final = 7
"""First version that takes zstd batches; the handler refuses them in earlier ones."""
ATTRIBUTES_AT: Final = 23
"""End of the low byte of a batch's attributes."""

SEVERAL: Final = -1
"""Value in place of a position: the entry is a request with several partitions."""
ALIKE: Final = -2
"""Value in place of a position: the entry is a group of alike requests with several partitions."""
PARTS_MAX: Final = 200
"""Partitions in requests with several, after which a run takes no further one: the handler takes the next."""
ALIKE_PARTS_MAX: Final = 1000
"""The limit for alike requests, which cost a fraction."""
RECORDS_LEAST: Final = 64
"""Bytes of the shortest batch and the fields around it; a shorter request goes to the handler."""

Shape = tuple[int, bytes, int, "Replica", int, int, int]
"""Version, the bytes between correlation id and records, the end of these in a frame, the replica, acks, the timeout in
milliseconds, and the authorizer's generation in which the client was allowed to write."""

Asked = tuple[int, int, int, int, int]
"""Correlation id, version, size, timeout in milliseconds and acks of a request."""
Entry = tuple[int, int, "Replica", int, int, int, int]
"""Correlation id, version, replica, position among the replica's chunks, size, timeout in milliseconds and acks."""
_MARK: Final = 0x1122334455667788
_WRITE: Final = Operation.WRITE
_TOPIC: Final = ResourceType.TOPIC
"""Bound here, as looking up an enum's member in its class costs half as much as a decision."""
_decode: Final = ProduceRequest.decode


class ResponseTemplate:
    """A successful response for one partition in one version, in which all but the numbers is fixed.

    `pack(size, correlation_id, prefix, base_offset, log_append_time_ms[, log_start_offset], suffix)`.
    """

    __slots__ = ("has_start_offset", "pack", "prefix", "size", "suffix")

    def __init__(self, replica: Replica, version: int) -> None:
        partition = PartitionProduceResponse(
            index=replica.index, base_offset=_MARK, log_append_time_ms=_MARK, log_start_offset=_MARK
        )
        topic = TopicProduceResponse(name=replica.topic, topic_id=replica.topic_id, partition_responses=[partition])
        frame = bytes(encode_response(PRODUCE, version, 0, ProduceResponse(responses=[topic])))
        self.has_start_offset = version >= START_OFFSET_FROM
        numbers = 3 if self.has_start_offset else 2
        mark = Struct(">q").pack(_MARK) * numbers
        at = frame.index(mark)
        self.prefix = frame[8:at]
        self.suffix = frame[at + len(mark) :]
        self.size = len(frame) - 4
        self.pack = Struct(f">ii{len(self.prefix)}s{numbers}q{len(self.suffix)}s").pack

    def filled(self, correlation_id: int, base_offset: int, log_append_time_ms: int, log_start_offset: int) -> bytes:
        """Returns the response with these numbers."""
        if self.has_start_offset:
            return self.pack(
                self.size, correlation_id, self.prefix, base_offset, log_append_time_ms, log_start_offset, self.suffix
            )
        return self.pack(self.size, correlation_id, self.prefix, base_offset, log_append_time_ms, self.suffix)


def shape_of(
    frame: memoryview, version: int, replica: Replica, records: Buffer, acks: int, timeout_ms: int, generation: int
) -> Shape | None:
    """Returns the shape of a flexible request with one partition; None if fields follow its records."""
    count = len(records) + 1
    length_bytes = 1 if count < 1 << 7 else 2 if count < 1 << 14 else 3 if count < 1 << 21 else 4
    cut = len(frame) - len(NO_TAGS) - len(records) - length_bytes
    if length_bytes > 3 or frame[len(frame) - len(NO_TAGS) :] != NO_TAGS:
        return None
    return version, bytes(frame[CLIENT_ID_AT - 4 : cut]), cut + 4, replica, acks, timeout_ms, generation


class ProduceRun:
    """The run of all connections of a server: it begins and ends within one readable event."""

    __slots__ = (
        "_chunks",
        "_count",
        "_group",
        "_groups",
        "_named",
        "_parts",
        "_services",
        "_several",
        "entries",
        "shape",
    )

    def __init__(self, services: Services) -> None:
        self.entries: list[Entry] = []
        self.shape: Shape | Layout | Plan | None = None
        """The form of the last request that `add` took; None if the next one cannot be compared with it."""
        self._chunks: dict[Replica, list[Buffer]] = {}
        """The batches to append, by replica."""
        self._several: list[Parts] = []
        """The partitions by topic of each SEVERAL entry, in order."""
        self._parts = 0
        self._groups: list[Group] = []
        """The group of each ALIKE entry, in order."""
        self._group: tuple[Group, Entry] | None = None
        """The last group, and its entry."""
        self._named: Plan | None = None
        """The partitions by topic of the current connection's last request with several."""
        self._parts = 0
        """How many partitions those that name several name together."""
        self._services = services
        self._count = services.metrics.counter(f"requests.{APIS[PRODUCE].name}")

    def add(
        self,
        connection: AnsweredConnection,
        frame: memoryview,
        version: int,
        correlation_id: int,
        client_id_length: int,
    ) -> bool:
        """Takes a request into the run. Returns false, and changes nothing, if the handler has to answer it."""
        try:
            at = 10 + client_id_length if client_id_length > 0 else 10
            if version >= FLEXIBLE_FROM:
                if frame[at]:
                    return False
                at += 1
                if frame[at]:
                    return False  # a transaction, which the handler decodes
            request = _decode(frame, version, at, FEW_ELEMENT_BYTES)
        except (DecodeError, IndexError):
            return False
        acks = request.acks
        topics = request.topic_data
        if not topics or not -1 <= acks <= 1 or version < ZSTD_FROM or request.transactional_id is not None:
            return False
        topic = topics[0]
        if len(topics) > 1 or len(topic.partition_data) != 1:
            if are_many(topics, "partition_data"):
                return False
            return self._add_several(connection, request, version, correlation_id, frame)
        replica = self._plain(connection, topic, topic.partition_data[0], version, acks)
        if replica is None:
            return False
        records: Buffer = topic.partition_data[0].records  # type: ignore[assignment]
        timeout_ms = request.timeout_ms
        self._take(replica, correlation_id, version, records, len(frame), timeout_ms, acks)
        # All connections share the run: an older shape may include the permission of another one.
        self.shape = None
        if version >= FLEXIBLE_FROM:
            generation = self._services.authorizer.generation
            self.shape = shape_of(frame, version, replica, records, acks, timeout_ms, generation)
        return True

    def _plain(
        self,
        connection: AnsweredConnection,
        topic: TopicProduceData,
        data: PartitionProduceData,
        version: int,
        acks: int,
    ) -> Replica | None:
        """Returns the replica to append to; None if the handler has to answer."""
        broker = self._services
        replicas = broker.replicas
        if version >= TOPIC_IDS_FROM:
            replica = replicas.by_id.get((topic.topic_id, data.index))
        else:
            replica = replicas.by_name.get((topic.name, data.index))
        records = data.records
        if (
            replica is None
            or not records
            or len(records) < ATTRIBUTES_AT
            or (records[ATTRIBUTES_AT - 1] | ANY_BATCH_BIT) & (TRANSACTIONAL | replica.log.opened_bits)  # type: ignore[index]
            or not replica.takes_appends
            or replica.internal
            or (acks == -1 and replica.shared and replica.under_min_isr)
        ):
            return None
        if broker.authorizer.generation != OPEN_GENERATION and not self._may_write(connection, replica.topic):
            return None
        return replica

    def _add_several(
        self,
        connection: AnsweredConnection,
        request: ProduceRequest,
        version: int,
        correlation_id: int,
        frame: memoryview,
    ) -> bool:
        """Takes a request with several partitions as `add` does: all of them, or none."""
        before, self._named = self._named, None
        if self._parts > PARTS_MAX:
            return False
        acks = request.acks
        plan: list[list[tuple[Replica, Buffer]]] = []
        for topic in request.topic_data:
            parts: list[tuple[Replica, Buffer]] = []
            for data in topic.partition_data:
                replica = self._plain(connection, topic, data, version, acks)
                if replica is None:
                    return False
                parts.append((replica, data.records))  # type: ignore[arg-type]
            if not parts:
                return False
            plan.append(parts)
        self.shape = None
        taken: Parts = []
        for parts in plan:
            taken.append([])
            for replica, records in parts:
                chunks = self._chunks.setdefault(replica, [])
                taken[-1].append((replica, len(chunks)))
                chunks.append(records)
            self._parts += len(parts)
        self._several.append(taken)
        first = plan[0][0][0]
        self.entries.append((correlation_id, version, first, SEVERAL, len(frame), request.timeout_ms, acks))
        if version >= FLEXIBLE_FROM:
            named = [[replica for replica, _ in parts] for parts in plan]
            # A layout costs more than a request: it is made only if the last request had the same partitions.
            if named == before:
                self.shape = layout_of(frame, version, request, named, self._services.authorizer.generation)
            else:
                self.shape = named
        return True

    def _may_write(self, connection: AnsweredConnection, topic: str) -> bool:
        """Returns whether the connection may write to a topic, for as long as the authorizer's generation stays the
        same."""
        authorizer = self._services.authorizer
        return authorizer.generation >= OPEN_GENERATION and authorizer.authorize(
            connection.client.principal, connection.client.peer_host, _WRITE, _TOPIC, topic
        )

    def _take(
        self,
        replica: Replica,
        correlation_id: int,
        version: int,
        records: Buffer,
        size: int,
        timeout_ms: int,
        acks: int,
    ) -> None:
        chunks = self._chunks.get(replica)
        if chunks is None:
            self._chunks[replica] = [records]
            self.entries.append((correlation_id, version, replica, 0, size, timeout_ms, acks))
        else:
            self.entries.append((correlation_id, version, replica, len(chunks), size, timeout_ms, acks))
            chunks.append(records)

    def add_alike(
        self, shape: Shape | Layout | Plan, view: memoryview, at: int, stop: int, version: int, correlation_id: int
    ) -> bool:
        """Takes the request in `view[at:stop]` (size included) if it differs from `shape` only in its records.

        A producer sends the same bytes before its records again and again: comparing them costs less than decoding
        them.
        """
        if not isinstance(shape, tuple):
            if isinstance(shape, Layout):
                self._named = shape.plan
                return self._add_of_layout(shape, view, at, stop, version, correlation_id)
            self._named = shape
            return False
        known_version, prefix, cut, replica, acks, timeout_ms, generation = shape
        cut += at
        if version != known_version or cut + RECORDS_LEAST > stop or view[at + CLIENT_ID_AT : cut] != prefix:
            return False
        n = view[cut]
        cut += 1
        if n > 127:
            high = view[cut]
            cut += 1
            n += (high << 7) - 128
            if high > 127:
                n += (view[cut] << 14) - 16384
                if view[cut] > 127:
                    return False
                cut += 1
        end = cut + n - 1
        if (
            end + 3 != stop
            or view[end:stop] != NO_TAGS
            or not replica.takes_appends
            or (view[cut + ATTRIBUTES_AT - 1] | ANY_BATCH_BIT) & (TRANSACTIONAL | replica.log.opened_bits)
            or (acks < 0 and replica.shared and replica.under_min_isr)
            or self._services.authorizer.generation != generation
        ):
            return False
        self._take(replica, correlation_id, version, view[cut:end], stop - at - 4, timeout_ms, acks)
        return True

    def _add_of_layout(
        self, layout: Layout, view: memoryview, at: int, stop: int, version: int, correlation_id: int
    ) -> bool:
        """Takes a request with several partitions as `add_alike` does."""
        if version != layout.version or self._parts > ALIKE_PARTS_MAX:
            return False
        entries = self.entries
        if self._group is not None and self._group[0].layout is layout and entries[-1] is self._group[1]:
            group = self._group[0]
        elif is_open(layout, self._services.authorizer.generation):
            group = Group(layout, [self._chunks.setdefault(replica, []) for replica in layout.replicas])
        else:
            return False
        if not group.take(view, at, stop, correlation_id):
            return False
        self._parts += len(layout.replicas)
        if len(group.sizes) == 1:
            entry = (correlation_id, version, layout.replicas[0], ALIKE, 0, layout.timeout_ms, layout.acks)
            entries.append(entry)
            self._group = group, entry
            self._groups.append(group)
        return True

    def finish(self, connection: AnsweredConnection) -> None:
        """Appends all batches taken, and answers the requests in order."""
        entries = self.entries
        if not entries:
            return
        broker = self._services
        append = broker.replicas.appender.append_many
        now_ms = broker.node.clock.now_ms()
        # Reset first: if an append raises, the next connection must not find these requests.
        by_replica, self._chunks, self.entries = self._chunks, {}, []
        several, self._several = iter(self._several), []
        groups, self._groups, self._group = self._groups, [], None
        self._parts = 0
        at_once = len(entries)
        for group in groups:
            at_once += len(group.sizes) - 1
        self._count.value += at_once
        results = {replica: append(replica, chunks, now_ms) for replica, chunks in by_replica.items()}
        alike = iter(groups)
        for correlation_id, version, replica, position, size, timeout_ms, acks in entries:
            if position < 0:
                if position == ALIKE:
                    late = self._answer_group(connection, next(alike), results)
                else:
                    asked = correlation_id, version, size, timeout_ms, acks
                    late = self._answer_late(connection, asked, next(several), results)
                if connection.closed:
                    return
                at_once -= late
                continue
            outcome = results[replica]
            if type(outcome) is PlainResults:
                if not acks:
                    continue
                if not replica.answers_wait:
                    template = replica.templates.get(version) or self._template(replica, version)
                    frame = template.filled(correlation_id, outcome.offsets[position], -1, outcome.log_start_offset)
                    connection.answer_bytes(PRODUCE, version, correlation_id, frame)
                    continue
            result = outcome[position]
            if result.error or (acks and replica.answers_wait):
                asked = correlation_id, version, size, timeout_ms, acks
                at_once -= self._answer_late(connection, asked, [[(replica, position)]], results)
                if connection.closed:
                    return
            elif acks:
                template = replica.templates.get(version) or self._template(replica, version)
                frame = template.filled(
                    correlation_id, result.base_offset, result.log_append_time_ms, result.log_start_offset
                )
                connection.answer_bytes(PRODUCE, version, correlation_id, frame)
        times = connection.shared.times
        if times is not None:
            times.produced += at_once

    def _template(self, replica: Replica, version: int) -> ResponseTemplate:
        template = replica.templates[version] = ResponseTemplate(replica, version)
        return template

    def _answer_group(
        self, connection: AnsweredConnection, group: Group, results: dict[Replica, Sequence[AppendResult]]
    ) -> int:
        """Answers alike requests; returns how many of them were not answered from a template."""
        layout = group.layout
        columns: list[PlainResults] = []
        for replica in layout.replicas:
            column = results[replica]
            if type(column) is not PlainResults or (layout.acks and replica.answers_wait):
                break
            columns.append(column)
        else:
            if layout.acks:
                block = layout.answers(group, columns)
                connection.answer_bytes(PRODUCE, layout.version, group.correlation_ids[0], block)
            return 0
        late = 0
        for number, (correlation_id, size) in enumerate(zip(group.correlation_ids, group.sizes, strict=True)):
            asked = correlation_id, layout.version, size, layout.timeout_ms, layout.acks
            late += self._answer_late(connection, asked, group.parts(number), results)
            if connection.closed:
                break
        return late

    def _answer_late(
        self, connection: AnsweredConnection, asked: Asked, parts: Parts, results: dict[Replica, Sequence[AppendResult]]
    ) -> int:
        """Answers a request without a template, and returns 1, as such requests are timed on their own."""
        correlation_id, version, size, timeout_ms, acks = asked
        if acks:
            waiting = self._waiting(connection, version, parts, results, timeout_ms, acks < 0)
            connection.answer(PRODUCE, version, correlation_id, size, waiting.finish())
        elif any(results[each][at].error for topic in parts for each, at in topic):
            self._waiting(connection, version, parts, results, timeout_ms, False)
            self._close(connection)
        return 1

    def _close(self, connection: AnsweredConnection) -> None:
        """Closes the connection after an error with acks=0. Later requests may be appended, and are not
        acknowledged."""
        from headrace.broker.requests.apis.k00_produce import UNANSWERED

        connection.close(UNANSWERED)

    def _waiting(
        self,
        connection: AnsweredConnection,
        version: int,
        parts: Parts,
        results: dict[Replica, Sequence[AppendResult]],
        timeout_ms: int,
        needs_all: bool,
    ) -> Waiting:
        """Returns an answer with errors, for several partitions, or that waits: for a sync, or for other replicas."""
        from headrace.broker.requests.apis.k00_produce import Waiting

        waiting = Waiting(self._services, version, timeout_ms, connection.client)
        for each in parts:
            topic = waiting.topic(each[0][0].topic, each[0][0].topic_id)
            for replica, position in each:
                waiting.appended(topic, replica, results[replica][position], needs_all)
        return waiting
