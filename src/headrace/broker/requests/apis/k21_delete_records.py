"""DeleteRecords (21), versions 0-2.

Moves the log start offset up; -1 means the high watermark. Segments that lie wholly below it go with the next
retention. Records of a topic that is only compacted cannot be deleted this way (POLICY_VIOLATION).
v2 flexible.
Not done: replicas on other brokers, whose log start the answer would have to wait for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.partitions.replica import Replica
from headrace.broker.requests.readiness import once_ready
from headrace.broker.requests.registry import handles
from headrace.metadata.image import INTERNAL_TOPICS
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k21_delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

HIGH_WATERMARK: Final = -1


@handles(ApiKey.DELETE_RECORDS)
def handle(broker: Services, request: DeleteRecordsRequest, context: RequestContext) -> Any:
    keys = ((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
    return once_ready(broker, keys, lambda: _delete_all(broker, request, context))


def _delete_all(broker: Services, request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    for topic in request.topics:
        answer = DeleteRecordsTopicResult(name=topic.name)
        response.topics.append(answer)
        refused = ErrorCode.NONE
        if not context.authorize(Operation.DELETE, ResourceType.TOPIC, topic.name):
            refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif topic.name in INTERNAL_TOPICS:
            refused = ErrorCode.INVALID_TOPIC_EXCEPTION
        for partition in topic.partitions:
            result = DeleteRecordsPartitionResult(partition_index=partition.partition_index, low_watermark=-1)
            answer.partitions.append(result)
            if refused:
                result.error_code = refused
            else:
                _delete(broker, topic.name, partition.offset, result)
    return response


def _delete(broker: Services, topic: str, offset: int, result: DeleteRecordsPartitionResult) -> None:
    replica = broker.replicas.find(topic, result.partition_index)
    if not isinstance(replica, Replica):
        result.error_code = replica
        return
    log = replica.log
    if not log.config.delete:
        result.error_code = ErrorCode.POLICY_VIOLATION
        return
    before = replica.high_watermark if offset == HIGH_WATERMARK else offset
    if before < 0 or before > replica.high_watermark:
        result.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        return
    log.delete_records_before(before)
    result.low_watermark = log.log_start_offset
    replica.touch()
