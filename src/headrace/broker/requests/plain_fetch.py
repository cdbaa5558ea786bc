"""The common path of Fetch: a consumer of one partition that asks the same question again, further on.

Such a request differs from the one before in its correlation id and its offset alone, so its other bytes are
compared instead of decoded, and the answer is a template around a range of a segment. Whatever is not plain - nothing
to read yet, an error, data that is not in memory, aborted transactions - is left to the handler in `apis/k01_fetch.py`,
which gives the same answers the long way.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from headrace.broker.requests.fetching import READ_COMMITTED
from headrace.replicas.sessions import FINAL_EPOCH
from headrace.security.authorizer import OpenAuthorizer
from headrace.wire.apis import APIS, ApiKey
from headrace.wire.file_slice import FileSlice
from headrace.wire.frame import RequestHeader, encode_request, encode_response_parts
from headrace.wire.messages.k01_fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headrace.wire.primitives import varint

if TYPE_CHECKING:
    from headrace.broker.net.connection import Connection
    from headrace.broker.net.context import RequestContext
    from headrace.broker.partitions.replica import Replica
    from headrace.broker.requests.services import Services

FETCH: Final = int(ApiKey.FETCH)
FLEXIBLE_FROM: Final = 12
TOPIC_IDS_FROM: Final = 13
CLIENT_ID_AT: Final = 12
"""Where the client id begins in a frame, its size included: what is before it was looked at already."""

_MARK: Final = 0x1122334455667788
_MARK_BYTES: Final = _MARK.to_bytes(8, "big")
_read_offset: Final = Struct(">q").unpack_from


class PlainFetch:
    """One partition as one connection asks for it."""

    __slots__ = (
        "_answer_head",
        "_answer_middle",
        "_answer_size",
        "_answer_tail",
        "_client_id",
        "_committed",
        "_count",
        "_leader_epoch",
        "_max_bytes",
        "_min_bytes",
        "_offset_at",
        "_pack",
        "_prefix",
        "_request",
        "_services",
        "_size",
        "_suffix",
        "replica",
        "version",
    )

    def __init__(self, broker: Services, request: FetchRequest, replica: Replica, context: RequestContext) -> None:
        """`request` names one partition and is this object's from now on."""
        self._services = broker
        self.version = context.api_version
        self.replica = replica
        self._client_id = context.client_id
        self._count = broker.metrics.counter(f"requests.{APIS[FETCH].name}")
        self._request = request
        asked = request.topics[0].partitions[0]
        self._leader_epoch = asked.current_leader_epoch
        self._committed = request.isolation_level == READ_COMMITTED
        self._max_bytes = min(request.max_bytes, broker.config.integer("fetch.max.bytes"), asked.partition_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        asked.fetch_offset = _MARK
        frame = encode_request(RequestHeader(FETCH, self.version, 0, self._client_id), request)
        self._size = len(frame)
        self._offset_at = frame.rindex(_MARK_BYTES)
        self._prefix = frame[CLIENT_ID_AT : self._offset_at]
        self._suffix = frame[self._offset_at + 8 :]
        self._make_answer()

    def _make_answer(self) -> None:
        """Everything but the numbers and the records of an answer is fixed."""
        replica = self.replica
        aborted: list[AbortedTransaction] | None = [] if self._committed else None
        data = PartitionData(replica.index, 0, _MARK, _MARK, _MARK, aborted_transactions=aborted, records=_MARK_BYTES)
        topic = FetchableTopicResponse(replica.topic, replica.topic_id, [data])
        parts = encode_response_parts(FETCH, self.version, 0, FetchResponse(responses=[topic]))
        frame = b"".join(part for part in parts if not isinstance(part, FileSlice))
        at = frame.index(_MARK_BYTES * 3)
        records_at = frame.rindex(_MARK_BYTES)
        self._answer_head = frame[8:at]
        self._answer_middle = frame[at + 24 : records_at - 1]  # the byte between is the length of the records
        self._answer_tail = frame[records_at + 8 :]
        self._answer_size = len(frame) - 4 - 1 - 8
        self._pack = Struct(f">ii{len(self._answer_head)}sqqq{len(self._answer_middle)}s").pack

    def is_for(self, request: FetchRequest, context: RequestContext) -> bool:
        """Whether this was made for a request like that one."""
        if context.api_version != self.version or context.client_id != self._client_id:
            return False
        asked = request.topics[0].partitions[0]
        offset, asked.fetch_offset = asked.fetch_offset, _MARK
        alike = request == self._request
        asked.fetch_offset = offset
        return alike

    def answer(self, connection: Connection, view: memoryview, at: int, stop: int, correlation_id: int) -> bool:
        """Answers the request in `view[at:stop]` (size included); False leaves it to the handler: nothing has happened.

        The caller has compared key and version.
        """
        offset_at = at + self._offset_at
        replica = self.replica
        services = self._services
        if (
            stop - at != self._size
            or view[at + CLIENT_ID_AT : offset_at] != self._prefix
            or view[offset_at + 8 : stop] != self._suffix
            or replica.error
            or replica.state.check_epoch(self._leader_epoch)
            or type(services.authorizer) is not OpenAuthorizer
        ):
            return False
        offset: int = _read_offset(view, offset_at)[0]
        log = replica.log
        high_watermark = replica.state.high_watermark
        stable = log.last_stable_offset(high_watermark)
        upper = stable if self._committed else high_watermark
        try:
            found = log.read(offset, max_bytes=self._max_bytes, max_offset=upper, wait=False)
            if self._committed and log.aborted_transactions(offset, found, wait=False):
                return False
        except OSError:
            return False  # cold, or failing: the handler meets it again, and answers
        records = found.slice
        if records is None or found.error or found.size < self._min_bytes:
            return False
        size = found.size
        length = varint(size + 1)
        head = self._pack(
            self._answer_size + len(length) + size,
            correlation_id,
            self._answer_head,
            high_watermark,
            stable,
            log.log_start_offset,
            self._answer_middle,
        )
        self._count.value += 1
        services.fetches.bytes.value += size
        connection.answer_records(head + length, records, self._answer_tail)
        return True


def plain_fetch_of(
    broker: Services, request: FetchRequest, context: RequestContext, known: PlainFetch | None
) -> PlainFetch | None:
    """The short way for requests like this one, which was answered the long way: `known` where it is that already,
    and where this one is not plain."""
    topics = request.topics
    if (
        len(topics) != 1
        or len(topics[0].partitions) != 1
        or context.api_version < FLEXIBLE_FROM
        or request.session_id
        or request.session_epoch != FINAL_EPOCH
        or topics[0].partitions[0].last_fetched_epoch >= 0
    ):
        return known
    topic = topics[0]
    index = topic.partitions[0].partition
    replicas = broker.replicas
    if context.api_version >= TOPIC_IDS_FROM:
        replica = replicas.by_id.get((topic.topic_id, index))
    else:
        replica = replicas.by_name.get((topic.topic, index))
    if replica is None:
        return known
    if known is not None and known.replica is replica and known.is_for(request, context):
        return known
    return PlainFetch(broker, request, replica, context)
