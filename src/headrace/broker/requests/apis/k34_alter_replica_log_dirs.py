"""AlterReplicaLogDirs (34), versions 1-2: moves a replica to another log directory of this broker. Source: KIP-113.

v2 flexible.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import Steps, in_pieces
from headrace.broker.requests.readiness import keys_in, once_ready
from headrace.broker.requests.registry import handles
from headrace.machine.split_table import SplitTable
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

MAX_FILE_NAME = 255


@handles(ApiKey.ALTER_REPLICA_LOG_DIRS)
def handle(broker: Services, request: AlterReplicaLogDirsRequest, context: RequestContext) -> Any:
    """Begins moves once the logs are open."""
    return once_ready(broker, _keys(request), lambda: in_pieces(broker, context, _begin(broker, request, context)))


def _keys(request: AlterReplicaLogDirsRequest) -> Iterator[tuple[str, int] | None]:
    for home in request.dirs:
        yield None
        yield from keys_in((asked.name, asked.partitions) for asked in home.topics)


def _begin(
    broker: Services, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> Steps[AlterReplicaLogDirsResponse]:
    """Begins moves, which continue after the answer; each partition has its own result."""
    denied = not context.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    topics: SplitTable[str, AlterReplicaLogDirTopicResult] = SplitTable()
    context.keep(topics)
    results: list[AlterReplicaLogDirTopicResult] = []
    for home in request.dirs:
        yield 1
        for asked in home.topics:
            yield 1
            result = topics.get(asked.name)
            if result is None:
                result = topics[asked.name] = AlterReplicaLogDirTopicResult(topic_name=asked.name)
                results.append(result)
            for index in asked.partitions:
                yield 1
                error = (
                    ErrorCode.CLUSTER_AUTHORIZATION_FAILED if denied else _move(broker, home.path, asked.name, index)
                )
                result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error))
    return AlterReplicaLogDirsResponse(results=results)


def _move(broker: Services, path: str, name: str, index: int) -> ErrorCode:
    # The copy's folder is named by the topic, the partition, 32 digits and "-future".
    if len(f"{name}-{index}.") + 32 + len("-future") > MAX_FILE_NAME:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return broker.moves.start(name, index, path)
