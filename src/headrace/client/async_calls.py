"""A node's connection as conversations see it: calls that are done when their futures are."""

from __future__ import annotations

from asyncio import Future
from typing import TYPE_CHECKING, Any, Generic, cast

from headrace.client.channel import Channel, R, Request
from headrace.client.errors import ClientError

if TYPE_CHECKING:
    from headrace.client.async_connection import AsyncConnection


class AsyncCall(Generic[R]):
    """A request under way; see `conversation.PendingCall`."""

    def __init__(self, future: Future[R]) -> None:
        self.future = future

    @property
    def done(self) -> bool:
        """Whether the response, or an error, is here."""
        return self.future.done()

    @property
    def error(self) -> ClientError | None:
        """What came instead of a response."""
        return cast("ClientError | None", self.future.exception()) if self.future.done() else None

    def result(self) -> R:
        """Returns the response. Raises `error`. To be called once `done`."""
        return self.future.result()


class ConversingConnection:
    """A connection to one broker; see `conversation.BrokerConnection`."""

    def __init__(self, connection: AsyncConnection, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._connection = connection

    @property
    def channel(self) -> Channel:
        """Its requests and responses; it knows the versions that the broker serves."""
        return self._connection.channel

    @property
    def peer(self) -> str:
        """The address, for people."""
        return self._connection.channel.peer

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._connection.closed

    def send(
        self, request: Request, response_class: type[R], *, version: int | None = None, expect_reply: bool = True
    ) -> AsyncCall[Any]:
        """Queues a request. Raises `ConnectionLostError` and `ProtocolMismatchError`.

        No timer bounds the call: a conversation has deadlines of its own.
        """
        call = AsyncCall(
            self._connection.ask(request, response_class, timeout_s=None, version=version, expect_reply=expect_reply)
        )
        if call.error is not None:
            raise call.error
        return call

    def close(self) -> None:
        """Ends the connection: calls under way fail with `ConnectionLostError`. Idempotent."""
        self._connection.close()
