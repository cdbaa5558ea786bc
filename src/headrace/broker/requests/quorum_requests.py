"""Passes requests of voters and observers to the metadata quorum's driver, and returns its answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.quorum.port.controller import ControllerError
from headrace.env.completion import Completion
from headrace.raft.messages import VoterResponse
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.broker.net.context import RequestContext
    from headrace.broker.requests.services import NodeServices
    from headrace.raft.messages import AddVoterRequest, RemoveVoterRequest, Request

FIXED_VOTERS: Final = "The voters are fixed: this node votes by itself, and has no listener for other controllers."


def is_node(context: RequestContext) -> bool:
    """Returns whether the client may act as a node of the cluster, and exempts it from quotas if so."""
    if not context.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME):
        return False
    context.exempt()
    return True


def is_of_cluster(broker: NodeServices, cluster_id: str | None) -> bool:
    """Returns whether a request is for the cluster of this node. Old requests have no cluster id."""
    return cluster_id is None or cluster_id == broker.cluster_id


async def change_voters(
    broker: NodeServices,
    cluster_id: str | None,
    read: Callable[[], AddVoterRequest | RemoveVoterRequest | ErrorCode],
    context: RequestContext,
) -> VoterResponse | ErrorCode:
    """Returns the response to a change of the voters that an operator or a controller requests. `read` decodes it, and
    is called only if the client is authorized."""
    if not context.authorize(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if not is_of_cluster(broker, cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if broker.quorum.member.is_static:
        return VoterResponse(broker.quorum.epoch, None, ErrorCode.UNSUPPORTED_VERSION, FIXED_VOTERS)
    asked = read()
    if isinstance(asked, ErrorCode):
        return asked
    try:
        answer, _ = await broker.quorum.requested(asked)
    except ControllerError as error:
        return error.code
    assert isinstance(answer, VoterResponse)
    return answer


def ask_quorum(broker: NodeServices, asked: Request | ErrorCode, respond: Callable[[Any, bytes], Any]) -> Any:
    """Returns the answer to a node's message, or its completion: a fetch may have to wait. `respond` builds the
    response."""
    if isinstance(asked, ErrorCode):
        return respond(asked, b"")
    answer = broker.quorum.requested(asked)
    if answer.done():
        return _answered(answer, respond)

    def abandon() -> None:
        answer.cancel()

    def answered(_: object) -> None:
        if not answer.cancelled():
            pending.complete(_answered(answer, respond))

    pending: Completion[Any] = Completion(broker.node.completions, abandon)
    answer.add_done_callback(answered)
    return pending


def _answered(answer: Future[tuple[Any, bytes]], respond: Callable[[Any, bytes], Any]) -> Any:
    try:
        message, records = answer.result()
    except ControllerError as error:
        return respond(error.code, b"")
    return respond(message, records)
