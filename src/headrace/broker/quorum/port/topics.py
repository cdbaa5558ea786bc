"""The port through which parts of a broker create topics of their own: coordinators, and what the broker publishes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from headrace.controller.topics import CreateTopics
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest

if TYPE_CHECKING:
    from headrace.broker.quorum.port.controller import Controller


class Topics(Protocol):
    """Where topics are created."""

    async def create(self, topics: Sequence[CreatableTopic]) -> dict[str, ErrorCode]:
        """Creates topics for the node itself, and returns the error of each; a topic that exists already is no error.

        Raises ControllerError.
        """
        ...


class ControllerTopics:
    """Topics that the active controller creates."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def create(self, topics: Sequence[CreatableTopic]) -> dict[str, ErrorCode]:
        """See Topics."""
        response = await self._controller.ask(CreateTopics(CreateTopicsRequest(topics=list(topics))))
        codes = {result.name: ErrorCode(result.error_code) for result in response.topics}
        exists = ErrorCode.TOPIC_ALREADY_EXISTS
        return {name: ErrorCode.NONE if code is exists else code for name, code in codes.items()}
