"""WriteTxnMarkers (27), versions 1-2: a coordinator, or an administrator, ends a transaction in partitions.

Each partition succeeds or fails alone; the answer lists every partition, and leaves when all markers are committed. On
`__consumer_offsets` the group coordinator writes the marker, in order with its own records, and is done when the
offsets of the transaction count (KAFKA-17507).
A partition whose replicas do not keep up does not delay others: after `ANSWERED_AFTER_MS` it is answered with
REQUEST_TIMED_OUT, on which coordinators retry. A marker that is requested again before it is committed is not written a
second time.
v2: the version of the transaction, which decides whether a marker must have a higher epoch than its transaction
(KIP-1228).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.pieces import SMALL_PER_STEP, Steps, are_few, at_once, in_pieces, parts_of
from headrace.broker.requests.readiness import keys_in, once_ready
from headrace.broker.requests.registry import handles
from headrace.env.completion import Completion, when_known
from headrace.machine.outcome import Ending
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.transactions.transaction import RAISES_EPOCH_FROM
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.markers import EndMarker
from headrace.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from headrace.broker.coordinators.local_markers import PartitionEnding
    from headrace.broker.requests.services import Services
    from headrace.env.owner import Timer

ANSWERED_AFTER_MS: Final = 100
"""Time limit for an answer. A coordinator has one request in flight to each broker, and all other markers wait for
it."""
WRITTEN_AT_ONCE: Final = 20
"""Markers that are written without checking whether the piece is full."""


@handles(ApiKey.WRITE_TXN_MARKERS)
def handle(broker: Services, request: WriteTxnMarkersRequest, context: RequestContext) -> Any:
    """Writes markers once the partitions take appends."""
    keys = _keys(request)
    may = context.may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME) or context.authorize(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    )
    if not may:
        return in_pieces(
            broker, context, _Writing(broker, context).refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        )
    context.exempt()

    def write() -> Any:
        steps = _Writing(broker, context).of_another_broker(request)
        return at_once(steps) if are_few(request.markers, "partition_indexes") else in_pieces(broker, context, steps)

    return once_ready(broker, keys, write, for_appends=True)


def _keys(request: WriteTxnMarkersRequest) -> Iterator[tuple[str, int] | None]:
    for marker in request.markers:
        yield None
        yield from keys_in((topic.name, topic.partition_indexes) for topic in marker.topics)


class _Writing:
    """One request: it is answered when the last of its partitions is done, or when its time is up."""

    def __init__(self, broker: Services, context: RequestContext) -> None:
        self._broker = broker
        self._context = context
        self._response = WriteTxnMarkersResponse()
        self._results: dict[int, WritableTxnMarkerResult] = {}
        self._pending: Completion[WriteTxnMarkersResponse] = Completion(broker.node.completions)
        self._left = 1
        self._timer: Timer | None = None

    def refuse(self, request: WriteTxnMarkersRequest, error: ErrorCode) -> Steps[WriteTxnMarkersResponse]:
        """Returns the response with the same error for every partition."""
        for marker in request.markers:
            yield 1
            for some in self._partitions(marker):
                for _, result in some:
                    result.error_code = error
                yield 1
        return self._response

    def of_another_broker(self, request: WriteTxnMarkersRequest) -> Steps[Completion[WriteTxnMarkersResponse]]:
        """Writes the markers of a request. Its answer leaves once all are committed, or after ANSWERED_AFTER_MS."""
        markers: list[PartitionEnding] = []
        results: list[WritableTxnMarkerPartitionResult] = []
        self._context.keep(markers)
        self._context.keep(results)
        for marker in request.markers:
            yield 1
            end = EndMarker(
                marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, marker.transaction_result
            )
            ending = Ending(end, marker.transaction_version >= RAISES_EPOCH_FROM)
            for some in self._partitions(marker):
                markers += [((topic, result.partition_index), ending) for topic, result in some]
                results += [result for _, result in some]
                yield 1
        self._left += len(markers)
        written = 0
        for few in parts_of(markers, WRITTEN_AT_ONCE):
            for answer in self._broker.local_markers.write(few):
                when_known(answer, partial(self._ended, results[written]))
                written += 1
            yield WRITTEN_AT_ONCE
        self._one_less()
        if not self._pending.done:
            self._timer = self._broker.requests_owner.later(ANSWERED_AFTER_MS / 1000, self._time_is_up)
        return self._pending

    def _time_is_up(self) -> None:
        self._timer = None
        self._pending.complete(self._response)

    def _partitions(self, marker: WritableTxnMarker) -> Iterator[list[tuple[str, WritableTxnMarkerPartitionResult]]]:
        """Yields (topic, result in the answer) of each partition of a marker, a few at a time. Markers of one producer
        share one result, as coordinators look a producer up only once."""
        answer = self._results.get(marker.producer_id)
        if answer is None:
            answer = self._results[marker.producer_id] = WritableTxnMarkerResult(producer_id=marker.producer_id)
            self._response.markers.append(answer)
        for topic in marker.topics:
            of_topic = WritableTxnMarkerTopicResult(name=topic.name)
            answer.topics.append(of_topic)
            for indexes in parts_of(topic.partition_indexes, SMALL_PER_STEP) if topic.partition_indexes else ((),):
                results = [WritableTxnMarkerPartitionResult(each, ErrorCode.REQUEST_TIMED_OUT) for each in indexes]
                of_topic.partitions.extend(results)
                yield [(topic.name, result) for result in results]

    def _ended(self, result: WritableTxnMarkerPartitionResult, error: ErrorCode) -> None:
        result.error_code = error
        self._one_less()

    def _one_less(self) -> None:
        self._left -= 1
        if not self._left and not self._pending.done:
            if self._timer is not None:
                self._timer.cancel()
            self._pending.complete(self._response)
