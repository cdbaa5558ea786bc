"""Requests of many elements, and their answers: decoded and encoded on a worker, one at a time, inside the budgets.

A frame of a megabyte may hold a million elements. What it takes to decode, to answer and to encode them is seconds, and
the event loop serves others meanwhile: a worker decodes what is more than FEW_ELEMENT_BYTES, its handler answers in
pieces (see `requests/pieces.py`), and a worker encodes the answer. One at a time, in order of arrival: many of them
take the turns, and the memory, of one. What they leave behind is freed on a worker too: see `remains`.
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
"""Bytes of elements up to which the event loop decodes a request: that takes 8 ms at most."""
DECODED_PER_BYTE: Final = 32
"""Bytes of objects that are made of one byte of elements, where these are as small as they can be."""
FETCH: Final = 1


class EncodedAnswer:
    """The body of a response that is encoded already; see `frame.PartedBody`."""

    __slots__ = ("_parts", "_version", "codes")

    def __init__(self, parts: list[Part], version: int, codes: Container[int]) -> None:
        """`codes` are the error codes in it."""
        self.codes = codes
        self._parts = parts
        self._version = version

    def encode_parts(self, version: int, head: bytearray | None = None) -> list[Part]:
        """The whole body behind a head."""
        assert version == self._version, "it was made for one version"
        return [*([] if head is None else [head]), *self._parts]


class LongAnswers:
    """Of one node."""

    def __init__(self, node: Node, owner: Owner, requests: Budget, responses: Budget, errors: RequestErrors) -> None:
        """The budgets are those of requests and of responses in memory."""
        self._node = node
        self._owner = owner
        self._requests = requests
        self._responses = responses
        self._errors = errors
        self.turn = asyncio.Lock()
        """Held by the one whose turn it is; of each connection at most one request waits for it."""

    def request(
        self,
        reply: Reply,
        frame: memoryview,
        at: int,
        served: Api,
        context: RequestContext,
        held: LargeFrame | None,
    ) -> Coroutine[Any, Any, Any]:
        """What the handler of a request returns that is decoded on a worker first. Its body begins at `at`; `held` owns
        the memory that the frame lies in, None: that is for the next requests."""
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
        """Has what the context keeps while the block runs freed afterwards, a few things at a time; of `size`, which
        the reply holds, the bytes are held until then. Inside another such block nothing more happens."""
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
                # A task begins a turn later: the code that made them has returned by then.
                self._owner.spawn(self._free(remains, size))
            else:
                self._requests.give(size)

    async def _free(self, remains: list[Any], size: int) -> None:
        try:
            await self._node.workers.run(partial(take_apart, remains))
        finally:
            self._requests.give(size)

    async def decoded(self, decode: Callable[[], Any]) -> Any:
        """Returns a decoded request of many elements. Raises DecodeError."""
        async with self.turn:
            return await self._node.workers.run(decode)

    async def hold(self, context: RequestContext, byte_count: int) -> None:
        """Returns once the decoded answer of another node that was `byte_count` bytes has its memory in the budget for
        requests: until what the context keeps is freed. Inside `freed_later`. Raises CloseConnectionError if the client
        has gone."""
        assert context.remains is not None, "what is held is given back when what is kept is freed"
        size = DECODED_PER_BYTE * min(byte_count, REQUEST_ELEMENT_BYTES)
        await self._take(size, context)
        context.kept_bytes += size

    async def _take(self, size: int, context: RequestContext) -> None:
        """Returns when there is memory for what is decoded. One client at a time may go beyond the limit. Raises
        CloseConnectionError, and nothing is taken, if the client has gone."""
        budget = self._requests
        while not budget.take(size) and not budget.overdraw(size, context.client):
            woken = self._node.future()
            budget.wait(partial(settle, woken))
            await woken
        if context.client.closed:
            budget.give(size)
        still_open(context)

    async def value_of(self, pending: Completion[Any], reply: Reply | None = None) -> Any:
        """The value of a pending answer, once there is one; None where the connection of the reply is gone."""
        if pending.done:
            return pending.take()
        resolved = self._node.future()
        pending.deliver_to(partial(settle, resolved))
        if reply is not None and (abandon := pending.abandon) is not None:
            reply.abandon = partial(_abandon, abandon, resolved)
        return await resolved

    async def encoded(self, context: RequestContext, response: Any) -> Any:
        """A response as its body; what is no response that is yet to be encoded is returned as it is."""
        if not isinstance(response, Message):
            return response
        async with self.turn:
            return await self.encoded_in_turn(context, response)

    async def encoded_in_turn(self, context: RequestContext, response: Any) -> EncodedAnswer:
        """The same for a caller that has the turn, once the responses in memory leave room for it."""
        key, version = context.api_key, context.api_version
        context.keep(response)
        await self.room()
        if context.meter is not None:
            context.meter.answered(response)  # which says how long to wait, before nobody can write it there any longer
        parts, codes = await self._node.workers.run(partial(_encode, version, response))
        if key > FETCH:  # Produce and Fetch have counted what they refused
            for code, times in codes.items():
                self._errors.count(key, code, times)
        return EncodedAnswer(parts, version, codes)

    async def room(self) -> None:
        """Returns when the responses in memory leave room for one more."""
        while self._responses.exhausted:
            woken = self._node.future()
            self._responses.wait(partial(settle, woken))
            await woken


def still_open(context: RequestContext) -> None:
    """Raises CloseConnectionError if nobody waits for the answer any longer."""
    if context.client.is_gone:
        raise CloseConnectionError("")


def _abandon(abandon: Callable[[], None], resolved: asyncio.Future[Any]) -> None:
    abandon()
    settle(resolved, None)


def _encode(version: int, response: Any) -> tuple[list[Part], Counter[int]]:
    """For a worker: the body, and how often each error code is in it."""
    if hasattr(response, "encode_parts"):
        return response.encode_parts(version), Counter(codes_of(response))
    body = bytearray()  # not copied into bytes: that takes many megabytes in one go, in which the loop waits too
    response.encode_onto(body, version)
    return [body], Counter(codes_of(response))
