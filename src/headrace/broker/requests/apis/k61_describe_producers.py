"""DescribeProducers (61), version 0: the active producers of a partition, as its leader knows them. Source: KIP-664."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, in_pieces
from headrace.broker.requests.readiness import keys_in, once_ready
from headrace.broker.requests.registry import handles
from headrace.controller.names import illegal_name
from headrace.security.authorizer import Operation, ResourceType
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode, message_of
from headrace.wire.messages.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


@handles(ApiKey.DESCRIBE_PRODUCERS)
def handle(broker: Services, request: DescribeProducersRequest, context: RequestContext) -> Any:
    """Answers once the logs are open; each partition once."""
    keys = keys_in((topic.name, topic.partition_indexes) for topic in request.topics)
    return once_ready(broker, keys, lambda: in_pieces(broker, context, _describe(broker, request, context)))


def _describe(
    broker: Services, request: DescribeProducersRequest, context: RequestContext
) -> Steps[DescribeProducersResponse]:
    """Describes the active producers of each partition in the request."""
    response = DescribeProducersResponse()
    seen: set[tuple[str, int]] = set()
    context.keep(seen)
    for topic in request.topics:
        refused = None
        if illegal_name(topic.name) is not None:
            refused = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif not context.authorize(Operation.READ, ResourceType.TOPIC, topic.name):
            refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        answer = TopicResponse(name=topic.name)
        response.topics.append(answer)
        yield 1
        for index in topic.partition_indexes:
            yield 1
            if (topic.name, index) not in seen:
                seen.add((topic.name, index))
                found = _refused(index, refused) if refused else _partition(broker, topic.name, index)
                answer.partitions.append(found)
                yield len(found.active_producers) // SMALL_PER_STEP
    return response


def _refused(index: int, error: ErrorCode) -> PartitionResponse:
    return PartitionResponse(partition_index=index, error_code=error, error_message=message_of(error))


def _partition(broker: Services, name: str, index: int) -> PartitionResponse:
    replica = broker.replicas.find(name, index)
    if isinstance(replica, ErrorCode):
        return _refused(index, replica)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.batches[-1].last_sequence if producer.batches else -1,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_first_offset,
            )
            for producer_id, producer in replica.log.producers.items()
        ],
    )
