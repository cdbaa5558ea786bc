"""Fetch on a controller's listener: the metadata log, for the other voters and for observers.

One partition, no session, whole batches as they lie in the log. Source: KIP-595.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.broker.net.answers import CloseConnectionError
from headrace.broker.net.context import RequestContext
from headrace.broker.quorum.codec import FETCH_VERSION
from headrace.broker.requests.quorum_requests import ask_quorum, is_node
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k01_fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from headrace.broker.requests.services import Services


def handle(broker: Services, request: FetchRequest, context: RequestContext) -> Any:
    """See the module."""
    if context.api_version < FETCH_VERSION:
        raise CloseConnectionError(f"the metadata log is fetched from version {FETCH_VERSION} on")
    quorum = broker.quorum
    said = quorum.codec.read_fetch(request) if is_node(context) else ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    def respond(message: Any, records: bytes) -> FetchResponse:
        return quorum.codec.fetch_response(message, records, quorum.raft.log.start_offset)

    return ask_quorum(broker, said, respond)
