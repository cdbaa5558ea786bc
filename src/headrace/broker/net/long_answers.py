"""Decodes and encodes large requests and answers on a worker, one at a time, within the budgets.

A frame of a megabyte may hold a million elements, which take seconds to decode, answer and encode. So that the event
loop serves others meanwhile, a worker decodes a request whose elements exceed FEW_ELEMENT_BYTES, its handler answers in
pieces (see `requests/pieces.py`), and a worker encodes the answer. One request is processed at a time, in order of
arrival: many of them use the turns, and the memory, of one. Their objects are freed on a worker too (see `remains`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.answers import CloseConnectionError
from headrace.broker.net.remains import take_apart
from headrace.broker.telemetry.request_errors import codes_of
from headrace.env.completion import Completion
from headrace.env.node import settle
from headrace.wire.message import Message
from headrace.wire.primitives import REQUEST_ELEMENT_BYTES, Part

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Coroutine, Iterator

    from headrace.broker.net.budget import Budget
    from headrace.broker.net.context import RequestContext
    from headrace.broker.net.large_frame import LargeFrame
    from headrace.broker.net.ports import Api
    from headrace.broker.net.reply import Reply
    from headrace.broker.telemetry.request_errors import RequestErrors
    from headrace.env.node import Node
    from headrace.env.owner import Owner

FEW_ELEMENT_BYTES: Final = 32 * 1024
"""Bytes of elements up to which the event loop decodes a request itself, which takes 8 ms at most."""
DECODED_PER_BYTE: Final = 32
"""Bytes of objects decoded from one byte of the smallest possible elements."""
FETCH: Final = 1


class EncodedAnswer:
    """The encoded body of a response (see `frame.PartedBody`)."""

    __slots__ = ("_parts", "_version", "codes")

    def __init__(self, parts: list[Part], version: int, codes: Container[int]) -> None:
        """`codes` are the error codes that the body contains."""
        self.codes = codes
        self._parts = parts
        self._version = version

    def encode_parts(self, version: int, head: bytearray | None = None) -> list[Part]:
        """Returns the whole body behind a head."""
        assert version == self._version, "it was made for one version"
        return [*([] if head is None else [head]), *self._parts]


class LongAnswers:
    """The large requests of one node."""

    def __init__(self, node: Node, owner: Owner, requests: Budget, responses: Budget, errors: RequestErrors) -> None:
        """`requests` and `responses` are the budgets of requests and responses in memory."""
        self._node = node
        self._owner = owner
        self._requests = requests
        self._responses = responses
        self._errors = errors
        self.turn = asyncio.Lock()
        """Lock held by the request whose turn it is; at most one request of each connection waits for it."""

    def request(
        self,
        reply: Reply,
        frame: memoryview,
        at: int,
        served: Api,
        context: RequestContext,
        held: LargeFrame | None,
    ) -> Coroutine[Any, Any, Any]:
        """Returns the coroutine of a request that is decoded on a worker first. Its body begins at `at`. `held` owns
        the frame's memory; if it is None, the frame is copied."""
        data = bytes(frame) if held is None else frame
        return self._request(reply, data, at, served, context, held)

    async def _request(
        self,
        reply: Reply,
        data: memoryview | bytes,
        at: int,
        served: Api,
        context: RequestContext,
        held: LargeFrame | None,
    ) -> Any:
        size = DECODED_PER_BYTE * min(len(data), REQUEST_ELEMENT_BYTES)
        try:
            await self._take(size, context)
            reply.held += size
            with self.freed_later(context, reply, size):
                request = await self.decoded(partial(served.decode, data, reply.version, at))
                context.keep(request)
                still_open(context)
                served.count.value += 1
                result = served.handle(request, context)
                if type(result) is CoroutineType:
                    result = await result
                if isinstance(result, Completion):
                    result = await self.value_of(result, reply)
                return await self.encoded(context, result)
        finally:
            self._requests.settle(context.client)
            if held is not None:
                held.release()

    @contextmanager
    def freed_later(self, context: RequestContext, reply: Reply | None = None, size: int = 0) -> Iterator[None]:
        """Frees, after the block, what the context kept in it, a few objects at a time; `size` bytes that the reply
        holds are returned then. A nested block has no effect."""
        if context.remains is not None:
            yield
            return
        remains: list[Any] = []
        context.remains = remains
        try:
            yield
        finally:
            context.remains = None
            if reply is None or context.client.closed:
                size = 0  # with the connection all that its replies held was given back
            else:
                reply.held -= size
            if context.kept_bytes:
                self._requests.settle(context.client)
                size += context.kept_bytes
                context.kept_bytes = 0
            if remains:
                # A task begins a turn later, when the code that made the objects has returned.
                self._owner.spawn(self._free(remains, size))
            else:
                self._requests.give(size)

    async def _free(self, remains: list[Any], size: int) -> None:
        try:
            await self._node.workers.run(partial(take_apart, remains))
        finally:
            self._requests.give(size)

    async def decoded(self, decode: Callable[[], Any]) -> Any:
        """Decodes a large request on a worker. Raises DecodeError."""
        async with self.turn:
            return await self._node.workers.run(decode)

    async def hold(self, context: RequestContext, byte_count: int) -> None:
        """Takes memory from the budget for requests for another node's decoded answer of `byte_count` encoded bytes. It
        is returned when the context's kept objects are freed. Called inside `freed_later`. Raises CloseConnectionError
        if the client has gone."""
        assert context.remains is not None, "what is held is given back when what is kept is freed"
        size = DECODED_PER_BYTE * min(byte_count, REQUEST_ELEMENT_BYTES)
        await self._take(size, context)
        context.kept_bytes += size

    async def _take(self, size: int, context: RequestContext) -> None:
        """Waits for the memory of decoded objects. One client at a time may exceed the limit. Raises
        CloseConnectionError, and takes nothing, if the client has gone."""
        budget = self._requests
        while not budget.take(size) and not budget.overdraw(size, context.client):
            woken = self._node.future()
            budget.wait(partial(settle, woken))
            await woken
        if context.client.closed:
            budget.give(size)
        still_open(context)

    async def value_of(self, pending: Completion[Any], reply: Reply | None = None) -> Any:
        """Returns the value of a pending answer once it is complete; None if the reply's connection has ended."""
        if pending.done:
            return pending.take()
        resolved = self._node.future()
        pending.deliver_to(partial(settle, resolved))
        if reply is not None and (abandon := pending.abandon) is not None:
            reply.abandon = partial(_abandon, abandon, resolved)
        return await resolved

    async def encoded(self, context: RequestContext, response: Any) -> Any:
        """Returns the encoded body of a response; a result of another type is returned unchanged."""
        if not isinstance(response, Message):
            return response
        async with self.turn:
            return await self.encoded_in_turn(context, response)

    async def encoded_in_turn(self, context: RequestContext, response: Any) -> EncodedAnswer:
        """Encodes a response for a caller that has the turn, once the budget for responses allows it."""
        key, version = context.api_key, context.api_version
        context.keep(response)
        await self.room()
        if context.meter is not None:
            context.meter.answered(response)  # sets the throttle time before the response is encoded
        parts, codes = await self._node.workers.run(partial(_encode, version, response))
        if key > FETCH:  # Produce and Fetch have counted what they refused
            for code, times in codes.items():
                self._errors.count(key, code, times)
        return EncodedAnswer(parts, version, codes)

    async def room(self) -> None:
        """Waits until the budget for responses is not exhausted."""
        while self._responses.exhausted:
            woken = self._node.future()
            self._responses.wait(partial(settle, woken))
            await woken


def still_open(context: RequestContext) -> None:
    """Raises CloseConnectionError if the request's connection has ended."""
    if context.client.is_gone:
        raise CloseConnectionError("")


def _abandon(abandon: Callable[[], None], resolved: asyncio.Future[Any]) -> None:
    abandon()
    settle(resolved, None)


def _encode(version: int, response: Any) -> tuple[list[Part], Counter[int]]:
    """Encodes a response on a worker; returns the body, and how often it contains each error code."""
    if hasattr(response, "encode_parts"):
        return response.encode_parts(version), Counter(codes_of(response))
    body = bytearray()  # not copied into bytes: that takes many megabytes in one go, in which the loop waits too
    response.encode_onto(body, version)
    return [body], Counter(codes_of(response))
