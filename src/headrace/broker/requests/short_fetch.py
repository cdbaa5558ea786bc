"""The short path of Fetch: a consumer that continues to read, in a session or without one.

Such requests differ in a few numbers, which are read in place (`wire/fetch_layout.py`). Batches are read from where the
reader's last ones ended (`log/cursor.py`), and the answer leaves in one send. All else - too little data yet, an error,
data that is not in memory, aborted transactions, a session that changes - is left to the handler in
`apis/k01_fetch.py`, which gives the same answers.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.broker.net.output import SMALL_SLICE_BYTES
from headrace.broker.requests.fetching.reading import FOLLOWERS_SERVE_FROM, READ_COMMITTED
from headrace.broker.requests.nearest_replicas import nearest_of
from headrace.broker.requests.resting import ConsumerReads, RestingForConsumer
from headrace.log.cursor import OTHERWISE, Cursor
from headrace.replicas.sessions import FINAL_EPOCH, Key, Session, SessionPartition
from headrace.security.authorizer import OPEN_GENERATION, Operation, ResourceType
from headrace.wire.apis import APIS, ApiKey
from headrace.wire.fetch_layout import FetchLayout
from headrace.wire.file_slice import FileSlice
from headrace.wire.primitives import Buffer, Part
from headrace.wire.uuids import ZERO

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.broker.net.client_session import AnsweredConnection
    from headrace.broker.net.context import RequestContext
    from headrace.broker.partitions.replica import Replica
    from headrace.broker.requests.nearest_replicas import Nearest
    from headrace.broker.requests.services import Services
    from headrace.wire.messages.k01_fetch import FetchRequest

FETCH: Final = int(ApiKey.FETCH)
CLIENT_ID_AT: Final = 12
"""Position of the client id in a frame that begins with its size: the caller has checked the bytes before it."""
READERS_MAX: Final = 4096
"""Most readers that a connection keeps without a session; it drops them all when it needs more."""

LOOKED_AT_MAX: Final = 1000
"""Most partitions of a session that are read in one turn of the loop."""
NAMED_BYTES_MAX: Final = 32 * 1024
"""Most bytes of the topics in a request."""

_pack_front = struct.Struct(">ii").pack
_read_offset = struct.Struct(">q").unpack_from

_layout = cache(FetchLayout)


class Reader:
    """The position of one connection, or one session, in a partition, and without a session also the request's
    fields."""

    __slots__ = ("current_leader_epoch", "cursor", "fetch_offset", "key", "max_bytes", "replica", "session_partition")

    def __init__(self, replica: Replica, key: Key, session_partition: SessionPartition | None) -> None:
        """`session_partition` is None without a session; with one it has the request's fields."""
        self.replica = replica
        self.cursor = Cursor()
        self.key = key
        self.session_partition = session_partition
        self.fetch_offset = 0
        self.max_bytes = 0
        self.current_leader_epoch = -1


class _Alike(NamedTuple):
    """The topics of a request for one partition, as bytes around the offset, and its reader."""

    before: bytes
    offset_at: int
    behind: bytes
    wanted: list[Reader]

    def offset(self, view: memoryview, at: int, end: int) -> int:
        """Returns the offset in topics that differ in nothing else; -1 if they differ."""
        offset_at = self.offset_at
        if view[at:offset_at] == self.before and view[offset_at + 8 : end] == self.behind:
            offset: int = _read_offset(view, offset_at)[0]
            return offset
        return -1


class _Found(NamedTuple):
    """The answer's part for one partition: `size` bytes are in `copied`, or else sent from `records`."""

    reader: Reader
    high_watermark: int
    stable: int
    log_start_offset: int
    size: int
    records: FileSlice | None
    copied: memoryview | None


class ShortFetch:
    """The short path for one connection's requests of one version, client id and rack."""

    __slots__ = (
        "_alike",
        "_alike_in_session",
        "_before",
        "_behind",
        "_client_id",
        "_count",
        "_layout",
        "_permitted",
        "_permitted_at",
        "_rack_id",
        "_readable",
        "_readers",
        "_reads_followers",
        "_services",
        "version",
    )

    def __init__(self, broker: Services, request: FetchRequest, context: RequestContext) -> None:
        self._services = broker
        self.version = context.api_version
        self._reads_followers = self.version >= FOLLOWERS_SERVE_FROM
        self._layout = layout = _layout(self.version)
        self._client_id = context.client_id
        self._rack_id = request.rack_id
        self._before = layout.before(context.client_id)
        self._behind = layout.behind(request.rack_id)
        self._count = broker.metrics.counter(f"requests.{APIS[FETCH].name}")
        self._readers: dict[tuple[bytes, int], Reader] = {}
        self._readable: set[str] = set()
        """Topics that the connection may read, in the authorizer's generation `_permitted_at`."""
        self._permitted_at = OPEN_GENERATION
        self._permitted: list[Reader] | None = None
        """The readers of the last request; the client may read all of them."""
        self._alike: _Alike | None = None
        """The last request without a session, if it was for one partition."""
        self._alike_in_session: _Alike | None = None
        """The last request in a session, if it changed the session's only partition."""

    def is_for(self, request: FetchRequest, context: RequestContext) -> bool:
        """Returns whether this path fits a request: same version, client id and rack."""
        return (
            context.api_version == self.version
            and context.client_id == self._client_id
            and request.rack_id == self._rack_id
        )

    def answer(self, connection: AnsweredConnection, view: memoryview, at: int, stop: int, correlation_id: int) -> bool:
        """Answers the request in `view[at:stop]` (size included). Returns false if the handler has to answer it;
        nothing has changed then, except that the session may have the request's fields already.

        The caller has compared key and version.
        """
        before, behind, layout = self._before, self._behind, self._layout
        view = view[at + CLIENT_ID_AT : stop]
        head_at = len(before)
        topics_at = head_at + layout.head_bytes
        topics_end = len(view) - len(behind)
        if not 0 < topics_end - topics_at <= NAMED_BYTES_MAX or view[:head_at] != before or view[topics_end:] != behind:
            return False
        if layout.has_sessions:
            min_bytes, max_bytes, isolation, session_id, epoch = layout.read_head(view, head_at)
        else:
            min_bytes, max_bytes, isolation = layout.read_head(view, head_at)
            session_id, epoch = 0, FINAL_EPOCH
        try:
            if epoch == FINAL_EPOCH:
                session = None
                asked = None if session_id else self._asked_again(view, topics_at, topics_end)
            else:
                session = self._session(session_id, epoch, connection.client.principal)
                asked = None
                if session is not None and (session.kept is None or self._goes_on(session, connection, isolation)):
                    asked = self._asked_in(session, view, topics_at, topics_end)
        except (struct.error, IndexError):
            return False  # malformed: the decoder refuses it
        if not asked:
            return False
        generation = self._services.authorizer.generation
        if generation != OPEN_GENERATION and not (
            (asked is self._permitted and generation == self._permitted_at)
            or self._may_read(connection, asked, generation)
        ):
            return False
        max_bytes = min(max_bytes, self._services.config.fetch_max_bytes)
        found = self._read(asked, max_bytes, isolation == READ_COMMITTED, connection.shared.scratch)
        if found is None:
            return False
        size = sum([each.size for each in found])
        if not size or size < min(min_bytes, max_bytes):
            return False
        self._count.value += 1
        self._counts(found, size)
        if session is not None:
            _tell(session, found)
        self._send(connection, correlation_id, session, found, isolation == READ_COMMITTED)
        times = connection.shared.times
        if times is not None:
            times.fetched += 1
        return True

    def _may_read(self, connection: AnsweredConnection, asked: list[Reader], generation: int) -> bool:
        """Returns whether the connection may read these partitions, and remembers it for this generation of the
        authorizer."""
        if generation < OPEN_GENERATION:
            return False
        readable = self._readable
        if generation != self._permitted_at:
            readable.clear()
            self._permitted_at, self._permitted = generation, None
        for reader in asked:
            topic = reader.replica.topic
            if topic not in readable:
                if not self._services.authorizer.authorize(
                    connection.client.principal, connection.client.peer_host, Operation.READ, ResourceType.TOPIC, topic
                ):
                    return False
                readable.add(topic)
        self._permitted = asked
        return True

    def _counts(self, found: list[_Found], size: int) -> None:
        fetches = self._services.fetches
        fetches.bytes.value += size
        for each in found:
            replica = each.reader.replica
            if replica.error:
                fetches.follower_bytes.value += each.size
            else:
                replica.bytes_out += each.size

    # --- what is asked for

    def _session(self, session_id: int, epoch: int, principal: str) -> Session | None:
        cache = self._services.fetch_sessions
        found = cache.find(session_id, epoch, self._layout.has_topic_ids, self._services.node.clock.now_ms(), principal)
        return found if isinstance(found, Session) else None

    def _goes_on(self, session: Session, connection: AnsweredConnection, isolation: int) -> bool:
        """Returns whether the resting partitions of a session may continue to rest."""
        kept = session.kept
        return isinstance(kept, RestingForConsumer) and kept.reads == ConsumerReads(
            isolation == READ_COMMITTED, self._services.authorizer.generation, connection.client.peer_host
        )

    def _asked_again(self, view: memoryview, at: int, end: int) -> list[Reader] | None:
        """Returns what `_asked` does. Reads only the offset if a request for one partition is otherwise like the last
        one."""
        alike = self._alike
        if alike is not None and (offset := alike.offset(view, at, end)) >= 0:
            alike.wanted[0].fetch_offset = offset
            return alike.wanted
        asked = self._asked(view, at, end)
        self._alike = self._like(view, at, end, asked) if asked is not None and len(asked) == 1 else None
        return asked

    def _like(self, view: memoryview, at: int, end: int, wanted: list[Reader]) -> _Alike:
        offset_at = end - self._layout.offset_from_end
        return _Alike(bytes(view[at:offset_at]), offset_at, bytes(view[offset_at + 8 : end]), wanted)

    def _asked(self, view: memoryview, at: int, end: int) -> list[Reader] | None:
        """Returns the readers of a request without a session, in its order; None if the handler has to answer it."""
        named = self._named(view, at, end)
        if named is None:
            return None
        readers = self._readers
        wanted: list[Reader] = []
        for topic, index, offset, max_bytes, epoch in named:
            reader = readers.get((topic, index)) or self._new_reader(topic, index)
            if reader is None:
                return None
            reader.fetch_offset = offset
            reader.max_bytes = max_bytes
            reader.current_leader_epoch = epoch
            wanted.append(reader)
        twice = len(wanted) > 1 and len(set(wanted)) < len(wanted)
        return None if twice else wanted

    def _named(self, view: memoryview, at: int, end: int) -> list[tuple[bytes, int, int, int, int]] | None:
        """Returns (topic, index, offset, maximum of bytes, leader epoch) of each partition in the topics of a request;
        None if one needs the handler."""
        layout = self._layout
        named: list[tuple[bytes, int, int, int, int]] = []
        topics, at = layout.read_count(view, at)
        for _ in range(topics):
            topic, at = layout.read_topic(view, at)
            count, at = layout.read_count(view, at)
            for _ in range(count):
                index, offset, max_bytes, epoch = self._partition(view, at)
                if max_bytes < 0:
                    return None
                named.append((topic, index, offset, max_bytes, epoch))
                at += layout.partition_bytes
            if layout.is_flexible:
                at += not view[at]
        return named if at == end else None

    def _partition(self, view: memoryview, at: int) -> tuple[int, int, int, int]:
        """Returns (index, offset, maximum of bytes, leader epoch); the maximum is -1 if the partition needs the
        handler."""
        layout = self._layout
        if layout.is_flexible:
            index, epoch, offset, last_epoch, max_bytes = layout.read_partition(view, at)
            if last_epoch >= 0 or view[at + layout.partition_bytes - 1]:
                max_bytes = -1
        elif layout.has_epochs:
            index, epoch, offset, max_bytes = layout.read_partition(view, at)
        else:
            index, offset, max_bytes = layout.read_partition(view, at)
            epoch = -1
        return index, offset, max_bytes, epoch

    def _find(self, topic: bytes, index: int) -> Replica | None:
        """Returns the replica of this broker that leads or follows the partition."""
        replicas = self._services.replicas
        if not self._layout.has_topic_ids:
            return replicas.held((topic.decode(errors="replace"), index))
        led = replicas.by_id.get((topic, index))
        known = self._services.image.topics.by_id(topic) if led is None else None
        if known is None:
            return led
        held = replicas.held((known.name, index))
        return held if held is not None and held.topic_id == topic else None

    def _new_reader(self, topic: bytes, index: int) -> Reader | None:
        replica = self._find(topic, index)
        if replica is None:
            return None
        if len(self._readers) >= READERS_MAX:
            self._readers.clear()
        reader = self._readers[topic, index] = Reader(replica, (ZERO, replica.topic, index), None)
        return reader

    def _asked_in(self, session: Session, view: memoryview, at: int, end: int) -> list[Reader] | None:
        """Updates a session with a request's partitions, and returns the readers of what it fetches; None if the
        handler has to answer. Reads only the offset if the session's only partition is otherwise requested as the last
        time."""
        alike = self._alike_in_session
        if alike is not None and session.kept is None and (offset := alike.offset(view, at, end)) >= 0:
            reader = alike.wanted[0]
            session_partition = session.only
            if session_partition is not None and session_partition is reader.session_partition:
                session_partition.fetch_offset = offset
                session_partition.max_bytes = reader.max_bytes
                session_partition.current_leader_epoch = reader.current_leader_epoch
                session_partition.last_fetched_epoch = -1
                return alike.wanted
        wanted = self._taken_in(session, view, at, end)
        self._alike_in_session = None
        if wanted is not None and len(wanted) == 1 and end - at > self._layout.partition_bytes:
            reader, session_partition = wanted[0], wanted[0].session_partition
            assert session_partition is not None, "a session reads its own partitions"
            reader.max_bytes = session_partition.max_bytes
            reader.current_leader_epoch = session_partition.current_leader_epoch
            self._alike_in_session = self._like(view, at, end, wanted)
        return wanted

    def _taken_in(self, session: Session, view: memoryview, at: int, end: int) -> list[Reader] | None:
        """Returns what `_asked_in` does, from every field of the request."""
        named = self._named(view, at, end)
        if named is None:
            return None
        partitions, has_ids, kept = session.partitions, self._layout.has_topic_ids, session.kept
        for topic, index, offset, max_bytes, epoch in named:
            key = (topic, "", index) if has_ids else (ZERO, topic.decode(errors="replace"), index)
            partition = partitions.get(key)
            if partition is None:
                return None
            partition.fetch_offset = offset
            partition.max_bytes = max_bytes
            partition.current_leader_epoch = epoch
            partition.last_fetched_epoch = -1
            if kept is not None:
                kept.named(partition)
        looked_at: Collection[SessionPartition] = partitions.values()
        if isinstance(kept, RestingForConsumer):
            kept.look_at_log_starts()
            looked_at = list(kept.awake)
        if len(looked_at) > LOOKED_AT_MAX:
            return None
        wanted: list[Reader] = []
        for partition in looked_at:
            reader = partition.reader
            if not isinstance(reader, Reader):
                reader = self._session_reader(partition)
                if reader is None:
                    return None
            wanted.append(reader)
        return wanted

    def _session_reader(self, partition: SessionPartition) -> Reader | None:
        has_ids, index = self._layout.has_topic_ids, partition.index
        topic_id, name = (partition.topic_id, "") if has_ids else (ZERO, partition.topic)
        replica = self._find(topic_id if self._layout.has_topic_ids else name.encode(), index)
        if replica is None:
            return None
        partition.reader = reader = Reader(replica, (topic_id, name, index), partition)
        return reader

    # --- what there is

    def _read(self, wanted: list[Reader], left: int, committed: bool, room: memoryview) -> list[_Found] | None:
        """Reads every partition once, in order, until the answer is full. None if one needs the handler.

        Leaves out partitions of a session that have no news. Small reads are copied into the buffer `room`.
        """
        found: list[_Found] = []
        min_one = True
        for reader in wanted:
            replica, session_partition = reader.replica, reader.session_partition
            asked = reader if session_partition is None else session_partition
            state, bounds, offset = replica.state, replica.log.bounds, asked.fetch_offset
            away = replica.error and not (self._reads_followers and replica.serves_as_follower)
            if away or state.check_epoch(asked.current_leader_epoch):
                self._forget(reader)
                return None
            if session_partition is not None and session_partition.last_fetched_epoch >= 0:
                return None
            high_watermark, start = state.high_watermark, bounds.log_start_offset
            if offset < bounds.local_log_start_offset or offset > bounds.end_offset:
                return None
            size = 0
            records = copied = None
            if (left > 0 or min_one) and offset < high_watermark:
                limit = min(left, asked.max_bytes)
                upper = state.last_stable_offset if committed else high_watermark
                try:
                    size, records = self._read_one(reader, offset, limit, upper, min_one, committed, room)
                except OSError:
                    return None  # cold or failing: the handler gets the same error, and answers
                if size:
                    min_one = False
                    left -= size
                    if records is None:
                        copied, room = room[:size], room[size:]
            if (
                size
                or session_partition is None
                or high_watermark != session_partition.sent_high_watermark
                or start != session_partition.sent_log_start_offset
            ):
                stable = state.last_stable_offset
                found.append(_Found(reader, high_watermark, stable, start, size, records, copied))
        return found

    def _read_one(
        self, reader: Reader, offset: int, limit: int, upper: int, min_one: bool, committed: bool, room: memoryview
    ) -> tuple[int, FileSlice | None]:
        """Returns the number of bytes read, and their file slice unless they are in `room`. Raises OSError if the
        handler has to read them."""
        cursor, log = reader.cursor, reader.replica.log.reader
        if offset >= upper:
            return 0, None
        size = OTHERWISE
        if limit > 0:
            size = cursor.read(log, offset, limit, upper, min_one, room[:SMALL_SLICE_BYTES])
        records = None
        if size == OTHERWISE:
            size = cursor.locate(log, offset, limit, upper, min_one)
            records = cursor.slice(size) if size else None
        if size and committed and not cursor.none_aborted(log):
            raise BlockingIOError("aborted transactions are to be named")
        return size, records

    def _forget(self, reader: Reader) -> None:
        """Drops the readers, as a replica was replaced or is led by another broker now. The next request looks them up
        again."""
        self._readers.clear()
        self._alike = self._alike_in_session = None
        if reader.session_partition is not None:
            reader.session_partition.reader = None

    # --- the answer

    def _send(
        self,
        connection: AnsweredConnection,
        correlation_id: int,
        session: Session | None,
        found: list[_Found],
        committed: bool,
    ) -> None:
        layout = self._layout
        topics: dict[str, list[_Found]] = {}
        for each in found:
            topics.setdefault(each.reader.replica.topic, []).append(each)
        text = layout.answer_head(0 if session is None else session.id, len(topics))
        total = 0
        heads: list[bytes] = []
        records: list[_Found] = []
        end = layout.after_records
        for topic, partitions in topics.items():
            text += layout.topic_head(topic, partitions[0].reader.replica.topic_id, len(partitions))
            for each in partitions:
                size = each.size
                text += layout.partition_head(
                    each.reader.replica.index,
                    each.high_watermark,
                    each.stable,
                    each.log_start_offset,
                    committed,
                    size,
                )
                if size:
                    heads.append(text)
                    total += len(text) + size
                    records.append(each)
                    text = end
                else:
                    text += end
            text += end
        text += end
        total += len(text)
        heads[0] = _pack_front(total + 4, correlation_id) + heads[0]
        _answer(connection, heads, records, text, total + 8)


def _answer(connection: AnsweredConnection, heads: list[bytes], records: list[_Found], tail: bytes, total: int) -> None:
    """Sends an answer at once if no earlier one is pending, as far as the socket takes it, and queues the rest."""
    sent = 0
    if all(each.copied is not None for each in records):
        buffers: list[Buffer] = []
        for head, each in zip(heads, records, strict=True):
            assert each.copied is not None
            buffers += (head, each.copied)
        if tail:
            buffers.append(tail)
        sent = connection.send_at_once(buffers)
        if sent == total or connection.closed:
            return
    parts: list[Part] = []
    for head, each in zip(heads, records, strict=True):
        parts += (head, each.records if each.records is not None else each.reader.cursor.slice(each.size))
    parts.append(tail)
    connection.answer_records(parts, sent)


def _tell(session: Session, found: list[_Found]) -> None:
    """Records in the session which offsets an answer reports."""
    for each in found:
        partition = each.reader.session_partition
        assert partition is not None, "a session reads its own partitions"
        partition.sent(error=0, high_watermark=each.high_watermark, log_start_offset=each.log_start_offset)
    session.next_epoch()
    if session.only is None:
        session.rotate([each.reader.key for each in found if each.size])


def short_fetch_of(
    broker: Services, request: FetchRequest, context: RequestContext, known: ShortFetch | None
) -> ShortFetch:
    """Returns the short path for requests like this one, which took the general one: `known` if it fits."""
    if known is not None and known.is_for(request, context):
        return known
    nearest = nearest_of(broker, request.rack_id, context.listener)
    if nearest is not None:
        return _NearestShortFetch(broker, request, context, nearest)
    return ShortFetch(broker, request, context)


def reads_of(context: RequestContext, isolation: int) -> ConsumerReads:
    """Returns the terms under which a request reads."""
    return ConsumerReads(isolation == READ_COMMITTED, context.authorizer.generation, context.client_host)


class _NearestShortFetch(ShortFetch):
    """The short path for a consumer that may be sent to a nearer replica (`nearest_replicas`)."""

    __slots__ = ("_nearest",)

    def _goes_on(self, session: Session, connection: AnsweredConnection, isolation: int) -> bool:
        return False  # a resting partition may have a nearer replica by now

    def __init__(self, broker: Services, request: FetchRequest, context: RequestContext, nearest: Nearest) -> None:
        super().__init__(broker, request, context)
        self._nearest = nearest

    def _read(self, wanted: list[Reader], left: int, committed: bool, room: memoryview) -> list[_Found] | None:
        for reader in wanted:
            asked = reader if reader.session_partition is None else reader.session_partition
            # a client that reads from a follower was sent there
            if not reader.replica.error and self._nearest(reader.replica, asked.fetch_offset) >= 0:
                return None
        return super()._read(wanted, left, committed, room)
