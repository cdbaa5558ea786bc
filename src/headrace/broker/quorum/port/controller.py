"""The controller port: what the node asks of the controller, which decides on the cluster's metadata here, elsewhere
or nowhere.

Handlers and drivers hold a `Controller` and give it requests of `headrace.controller`. The one that decides here is
in `local_controller`, the one that asks the node that decides in `cluster_controller`.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, TypeVar

from headrace.controller.access import Access
from headrace.controller.context import ControllerRequest
from headrace.wire.errors import ErrorCode, message_of

R = TypeVar("R")


class ControllerError(Exception):
    """No part of the request took effect, as far as is known here; `code` is the Kafka error for the caller.

    KAFKA_STORAGE_ERROR: the metadata log cannot be written. NOT_CONTROLLER: nobody here decides, or not any more: what
    was decided and not committed may still come true under the next leader. REQUEST_TIMED_OUT: too much waits already.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or message_of(code))
        self.code = code


class Controller(Protocol):
    """The controller, as the rest of the node sees it."""

    def ask(self, request: ControllerRequest[R], access: Access | None = None) -> Awaitable[R]:
        """Decides on the newest image; answers once what was decided is committed and this broker has applied it.

        `access` is what the client may do that asks; None: this node asks for itself, and may do everything. Raises
        ControllerError.
        """
        ...


class AbsentController:
    """No controller can be reached."""

    async def ask(self, request: ControllerRequest[R], access: Access | None = None) -> R:
        """Raises ControllerError, always."""
        raise ControllerError(ErrorCode.NOT_CONTROLLER)
