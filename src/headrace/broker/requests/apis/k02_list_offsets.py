"""ListOffsets (2), versions 1-11: the offsets of partitions, earliest, latest or by timestamp.

A lookup that reads a segment runs on a worker. The latest offset is the high watermark, or the last stable offset for
read_committed. Without tiered storage the earliest local offset is the log start, and there is no tiered offset and
none pending upload.
v2 isolation level. v4 leader epochs. v6 flexible. v7 the largest timestamp (-3). v8 earliest local (-4). v9 latest
tiered (-5). v10 a timeout for tiered reads. v11 earliest pending upload (-6).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.partitions.replica import Replica
from headrace.broker.requests.fetching.reading import READ_COMMITTED
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, in_pieces, parts_of
from headrace.broker.requests.readiness import keys_in, once_ready
from headrace.broker.requests.registry import handles
from headrace.log.log import Log
from headrace.log.read_results import TimestampOffset
from headrace.log.reader import LogReader
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
SINCE_VERSION: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_DEBUGGER: Final = -2
_NOTHING: Final = TimestampOffset(-1, -1, -1)

Lookup = tuple[ListOffsetsPartitionResponse, Replica, int, Callable[[LogReader], TimestampOffset | None]]


@handles(ApiKey.LIST_OFFSETS)
def handle(broker: Services, request: ListOffsetsRequest, context: RequestContext) -> Any:
    """Answers once the partitions are ready, on a worker if files must be read."""
    keys = keys_in((topic.name, (each.partition_index for each in topic.partitions)) for topic in request.topics)
    return once_ready(broker, keys, lambda: in_pieces(broker, context, _list(broker, request, context)))


def _list(
    broker: Services, request: ListOffsetsRequest, context: RequestContext
) -> Steps[ListOffsetsResponse | Coroutine[Any, Any, ListOffsetsResponse]]:
    times: Counter[tuple[str, int]] = Counter()
    context.keep(times)
    for topic in request.topics:
        yield 1
        for some in parts_of(topic.partitions, SMALL_PER_STEP):
            times.update([(topic.name, each.partition_index) for each in some])
            yield 1
    response = ListOffsetsResponse()
    lookups: list[Lookup] = []
    for topic in request.topics:
        answer = ListOffsetsTopicResponse(name=topic.name)
        response.topics.append(answer)
        allowed = context.authorize(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)
        yield 1
        for partition in topic.partitions:
            yield 1
            found = ListOffsetsPartitionResponse(partition_index=partition.partition_index)
            answer.partitions.append(found)
            if not allowed:
                found.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif times[topic.name, partition.partition_index] > 1:
                found.error_code = ErrorCode.INVALID_REQUEST
            else:
                _answer(broker, request, topic.name, partition, context.api_version, found, lookups)
    return _look_up(broker, response, lookups, context.api_version) if lookups else response


def _answer(
    broker: Services,
    request: ListOffsetsRequest,
    topic: str,
    asked: ListOffsetsPartition,
    version: int,
    found: ListOffsetsPartitionResponse,
    lookups: list[Lookup],
) -> None:
    """Answers a partition if no file must be read; else adds it to `lookups`."""
    timestamp = asked.timestamp
    if timestamp < 0 and version < SINCE_VERSION.get(timestamp, version + 1):
        found.error_code = ErrorCode.UNSUPPORTED_VERSION
        return
    replica = broker.replicas.find(topic, asked.partition_index)
    if not isinstance(replica, Replica):
        found.error_code = replica
        return
    fenced = replica.state.check_epoch(asked.current_leader_epoch)
    if fenced:
        found.error_code = fenced
        return
    log = replica.log
    readable = replica.high_watermark
    is_consumer = request.replica_id < 0 and request.replica_id != _DEBUGGER
    if not is_consumer:
        readable = log.end_offset
    elif request.isolation_level == READ_COMMITTED:
        readable = replica.state.last_stable_offset
    if timestamp == LATEST and is_consumer and replica.high_watermark < replica.state.epoch_start:
        found.error_code = ErrorCode.OFFSET_NOT_AVAILABLE if version >= 5 else ErrorCode.LEADER_NOT_AVAILABLE
    elif timestamp == LATEST:
        _fill(found, TimestampOffset(readable, -1, replica.leader_epoch), version)
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        _fill(found, log.reader.earliest_timestamp_offset(), version)
    elif timestamp == MAX_TIMESTAMP:
        lookups.append((found, replica, readable, LogReader.max_timestamp_offset))
    elif timestamp >= 0:
        lookups.append((found, replica, readable, lambda reader: reader.offset_for_timestamp(timestamp)))


def _fill(found: ListOffsetsPartitionResponse, where: TimestampOffset, version: int) -> None:
    found.offset = where.offset
    found.timestamp = where.timestamp
    if version >= 4:
        found.leader_epoch = where.leader_epoch


Searched = tuple[Log, "TimestampOffset | OSError | None"]
"""The log that was searched, and the result."""


def _searched(replica: Replica, search: Callable[[LogReader], TimestampOffset | None]) -> Searched:
    log = replica.log
    try:
        try:
            return log, search(log.reader)
        except FileNotFoundError:
            # Retention, compaction or a move removed a segment in between: the answer is another one now.
            log = replica.log
            return log, search(log.reader)
    except OSError as error:
        return log, error


async def _look_up(
    broker: Services, response: ListOffsetsResponse, lookups: list[Lookup], version: int
) -> ListOffsetsResponse:
    """Searches the logs of `lookups` on a worker, and returns the complete response."""

    def read() -> list[Searched]:
        return [_searched(replica, search) for _, replica, _, search in lookups]

    results = await broker.node.workers.run(read)
    for (found, replica, readable, _), (log, result) in zip(lookups, results, strict=True):
        if isinstance(result, OSError):
            broker.replicas.failures.storage_failed(replica, result, log)
            found.error_code = replica.error or ErrorCode.KAFKA_STORAGE_ERROR
        elif result is not None and result.offset < readable:
            _fill(found, result, version)
    return response
