"""The controller port: what the broker asks of whoever decides on the cluster's metadata, here, elsewhere or nowhere.

Handlers and drivers hold a `Controller` and give it values (`headrace.controller.requests`). The one that decides here
is in `local_controller`, the one that asks whoever decides in `cluster_controller`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from headrace.controller.requests import ControllerRequest
from headrace.wire.errors import ErrorCode, message_of

R = TypeVar("R")


class ControllerError(Exception):
    """Nothing of what was asked took effect, as far as is known here; `code` is Kafka's, for whoever asked.

    KAFKA_STORAGE_ERROR: the metadata log cannot be written. NOT_CONTROLLER: nobody here decides, or not any more: what
    was decided and not committed may still come true under the next leader. REQUEST_TIMED_OUT: too much waits already.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or message_of(code))
        self.code = code


def free(_partitions: int) -> bool:
    """What pays where changes cost nothing."""
    return True


@dataclass(frozen=True, slots=True)
class Asker:
    """The client on whose behalf something is asked: it decides what is allowed.

    `pay` says whether so many partitions may be created or deleted, and counts them then.
    """

    principal: str
    host: str
    pay: Callable[[int], bool] = free
    api_key: int = -1
    """Of what is asked; -1: of no request."""


class Controller(Protocol):
    """Whoever decides."""

    def ask(self, request: ControllerRequest[R], asker: Asker | None = None) -> Awaitable[R]:
        """Decides on the newest image; answers once what was decided is committed and this broker has applied it.

        `asker` None: this node asks for itself, and may do everything. Raises ControllerError.
        """
        ...


class AbsentController:
    """No controller can be reached."""

    async def ask(self, request: ControllerRequest[R], asker: Asker | None = None) -> R:
        """Raises ControllerError, always."""
        raise ControllerError(ErrorCode.NOT_CONTROLLER)
