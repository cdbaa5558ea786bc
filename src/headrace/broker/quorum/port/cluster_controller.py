"""The controller as seen by a node of a multi-voter cluster: this node while it is active, else the active one,
remotely.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.quorum.port.node_requests import wire_form
from headrace.client.errors import ClientError
from headrace.controller.access import Access
from headrace.controller.context import ControllerRequest
from headrace.controller.directories import FailDirectories
from headrace.controller.heartbeats import Heartbeat, HeartbeatReply
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.quorum.driver import QuorumDriver
    from headrace.broker.quorum.port.controller_link import ControllerLink
    from headrace.broker.quorum.port.local_controller import LocalController

R = TypeVar("R")

ANSWER_S: Final = 30.0
"""How long the active controller may take for an answer (Kafka's controller.socket.timeout.ms)."""
HEARTBEAT_S: Final = 2.0
"""How long for the answer to a heartbeat: a controller that does not give it may be stopped, or cut off."""


class ClusterController:
    """See `controller.Controller`. `heartbeat_now` is called where the controller hears of something by heartbeats
    alone: that a log directory failed."""

    def __init__(self, driver: QuorumDriver, local: LocalController, link: ControllerLink) -> None:
        self.heartbeat_now: Callable[[], None] = lambda: None
        self._driver = driver
        self._local = local
        self._link = link

    def ask(self, request: ControllerRequest[R], access: Access | None = None) -> Awaitable[R]:
        """See Controller. What a client asks is decided here or not at all: it goes elsewhere in an envelope alone,
        which says on whose behalf (`requests/forwarding`)."""
        if isinstance(request, FailDirectories):
            self.heartbeat_now()
            return self._done()
        driver = self._driver
        if access is not None or driver.decides or driver.raft.known_leader == driver.node_id:
            return self._local.ask(request, access)
        return self._ask_elsewhere(request)

    async def _done(self) -> Any:
        return None

    async def _ask_elsewhere(self, request: ControllerRequest[R]) -> R:
        form = wire_form(request, self._driver.image)
        if form is None:
            raise ControllerError(ErrorCode.NOT_CONTROLLER)
        beats = isinstance(request, Heartbeat)
        timeout_s = HEARTBEAT_S if beats else ANSWER_S
        try:
            response = await self._link.ask(form.request, form.response_class, timeout_s=timeout_s, is_repeatable=beats)
        except ClientError as error:
            self._link.sent_away()
            raise ControllerError(ErrorCode.NOT_CONTROLLER, str(error)) from error
        reply: R = form.read(response)
        if isinstance(reply, HeartbeatReply) and reply.error is ErrorCode.NOT_CONTROLLER:
            self._link.sent_away()
            raise ControllerError(ErrorCode.NOT_CONTROLLER)
        return reply
