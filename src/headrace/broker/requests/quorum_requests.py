"""What voters and observers say to the metadata quorum: from the wire to its driver, and the answer when it has one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.broker.net.answers import Pending
from headrace.broker.quorum.controller import ControllerError
from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.broker.net.context import RequestContext
    from headrace.broker.requests.services import Services
    from headrace.raft.messages import Request


def is_node(context: RequestContext) -> bool:
    """Whether the asker may speak as a node of the cluster."""
    return context.authorize(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


def ask_quorum(broker: Services, said: Request | ErrorCode, respond: Callable[[Any, bytes], Any]) -> Any:
    """The answer to what a node says; `respond` puts it into its wire form. A fetch may have to wait for it."""
    if isinstance(said, ErrorCode):
        return respond(said, b"")
    answer = broker.quorum.requested(said)
    if answer.done():
        return _answered(answer, respond)

    def abandon() -> None:
        answer.cancel()

    def answered(_: object) -> None:
        if not answer.cancelled():
            pending.resolve(_answered(answer, respond))

    pending: Pending[Any] = Pending(abandon)
    answer.add_done_callback(answered)
    return pending


def _answered(answer: Future[tuple[Any, bytes]], respond: Callable[[Any, bytes], Any]) -> Any:
    try:
        message, records = answer.result()
    except ControllerError as error:
        return respond(error.code, b"")
    return respond(message, records)
