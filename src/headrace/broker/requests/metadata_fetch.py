"""Fetch on a controller's listener: serves the metadata log to the other voters and to observers.

A request has one partition and no session, and gets whole batches as they are in the log. Source: KIP-595.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.answers import CloseConnectionError
from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.codec import FETCH_VERSION
from headrace.broker.requests.pieces import Steps, in_pieces
from headrace.broker.requests.quorum_requests import ask_quorum, is_node
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services

_REFUSED_ONCE_FROM: Final = 13
"""First version with a top-level error only; earlier ones repeat a refusal at each partition."""


def handle(broker: Services, request: FetchRequest, context: RequestContext) -> Any:
    """Answers from the metadata log, or refuses clients that may not act as nodes. Raises CloseConnectionError for a
    version that the quorum does not use."""
    quorum = broker.quorum
    asked = quorum.codec.read_fetch(request) if is_node(context) else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if asked is ErrorCode.CLUSTER_AUTHORIZATION_FAILED and context.api_version < _REFUSED_ONCE_FROM:
        return in_pieces(broker, context, _refused_each(request, asked))
    if context.api_version < FETCH_VERSION and not isinstance(asked, ErrorCode):
        raise CloseConnectionError(f"the metadata log is fetched from version {FETCH_VERSION} on")

    def respond(message: Any, records: bytes) -> FetchResponse:
        return quorum.codec.fetch_response(message, records, quorum.raft.log.start_offset)

    return ask_quorum(broker, asked, respond)


def _refused_each(request: FetchRequest, error: ErrorCode) -> Steps[FetchResponse]:
    topics: list[FetchableTopicResponse] = []
    for topic in request.topics:
        answered = FetchableTopicResponse(topic.topic)
        topics.append(answered)
        yield 1
        for each in topic.partitions:
            answered.partitions.append(PartitionData(partition_index=each.partition, error_code=error))
            yield 1
    return FetchResponse(error_code=error, responses=topics)
