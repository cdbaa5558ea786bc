"""DeleteRecords (21), versions 0-2: moves the log start offset up; -1 means up to the high watermark.

Retention deletes the segments wholly below it later. The answer waits, for timeout_ms at most, until the followers on
unfenced brokers have done the same. Records of a topic that is only compacted cannot be deleted (POLICY_VIOLATION).
v2 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.partitions.replica import Replica
from headrace.broker.requests.pieces import are_many, in_parts, join_topics, requests_in_parts
from headrace.broker.requests.readiness import once_ready
from headrace.broker.requests.registry import handles
from headrace.env.completion import Completion, when_known
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
    if not are_many(request.topics, "partitions"):
        return _delete(broker, request, context)
    parts = requests_in_parts(request, "topics", "partitions")
    return in_parts(broker, context, parts, _delete, _join)


def _join(whole: DeleteRecordsResponse, part: DeleteRecordsResponse) -> None:
    join_topics(whole.topics, part.topics, "partitions")


def _delete(broker: Services, request: DeleteRecordsRequest, context: RequestContext) -> Any:
    keys = ((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
    return once_ready(broker, keys, lambda: _Deletion(broker, request.timeout_ms).of(request, context))


class _Deletion:
    """One request, which is answered when the last of its partitions is done."""

    def __init__(self, broker: Services, timeout_ms: int) -> None:
        self._broker = broker
        self._timeout_ms = timeout_ms
        self._response = DeleteRecordsResponse()
        self._pending: Completion[DeleteRecordsResponse] = Completion(broker.node.completions)
        self._left = 1

    def of(self, request: DeleteRecordsRequest, context: RequestContext) -> Completion[DeleteRecordsResponse]:
        """Deletes the records of a request; returns the completion of its answer."""
        for topic in request.topics:
            answer = DeleteRecordsTopicResult(name=topic.name)
            self._response.topics.append(answer)
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
                    self._delete(topic.name, partition.offset, result)
        self._one_less()
        return self._pending

    def _one_less(self) -> None:
        self._left -= 1
        if not self._left:
            self._pending.complete(self._response)

    def _delete(self, topic: str, offset: int, result: DeleteRecordsPartitionResult) -> None:
        replica = self._broker.replicas.find(topic, result.partition_index)
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
        replica.delete_before(before)
        result.low_watermark = replica.low_watermark
        replica.touch()
        self._left += 1

        def deleted(error: ErrorCode) -> None:
            result.error_code = error
            if not error:
                result.low_watermark = replica.low_watermark
            self._one_less()

        completion = self._broker.replicas.deletions.when_deleted(replica, before, self._timeout_ms)
        when_known(completion, deleted)
