"""DescribeLogDirs (35), versions 1-5: the replicas in each log directory with their sizes, and the free space.

Source: KIP-113, KIP-827, KIP-1066.
v2 flexible. v3 a top-level error. v4 sizes of volumes. v5 cordoned directories.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, in_pieces, parts_of
from headrace.broker.requests.registry import handles
from headrace.log.log import Log
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.DESCRIBE_LOG_DIRS)
def handle(broker: Services, request: DescribeLogDirsRequest, context: RequestContext) -> Any:
    """Describes each directory, with the partitions of the request or all (null)."""
    return in_pieces(broker, context, _directories(broker, request, context))


def _directories(
    broker: Services, request: DescribeLogDirsRequest, context: RequestContext
) -> Steps[DescribeLogDirsResponse]:
    if not context.authorize(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = set()
        context.keep(wanted)
        for topic in request.topics:
            yield 1
            for some in parts_of(topic.partitions, SMALL_PER_STEP):
                wanted.update([(topic.topic, partition) for partition in some])
                yield 1
    results: list[DescribeLogDirsResult] = []
    for path in list(broker.logs.directories):
        results.append((yield from _directory(broker, path, wanted)))
    return DescribeLogDirsResponse(results=results)


def _directory(broker: Services, path: str, wanted: set[tuple[str, int]] | None) -> Steps[DescribeLogDirsResult]:
    home, disk = broker.logs.directories[path], broker.node.disk
    cordoned = broker.config.cordoned_log_dirs
    result = DescribeLogDirsResult(log_dir=path, is_cordoned=path in cordoned or "*" in cordoned)
    if home.failure is None:
        try:
            result.total_bytes, result.usable_bytes = disk.total_bytes(path), disk.free_bytes(path)
        except OSError:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            broker.replicas.failures.suspect(path)
            return result
    if home.failure is not None:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    logs = [log for log in broker.logs.logs_in(path) if wanted is None or log.topic_partition in wanted]
    result.topics = yield from _topics(broker, logs)
    return result


def _topics(broker: Services, logs: Iterable[Log]) -> Steps[list[DescribeLogDirsTopic]]:
    by_name: dict[str, DescribeLogDirsTopic] = {}
    for log in sorted(logs, key=lambda log: (log.topic_partition, log.is_future)):
        yield 1
        name, index = log.topic_partition
        topic = by_name.get(name)
        if topic is None:
            topic = by_name[name] = DescribeLogDirsTopic(name=name)
        lag = 0
        if log.is_future:
            current = broker.logs.get(name, index)
            lag = 0 if current is None else max(0, current.end_offset - log.end_offset)
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=index, partition_size=log.size_bytes(), offset_lag=lag, is_future_key=log.is_future
            )
        )
    return list(by_name.values())
