"""One conversation with one broker, as bytes in and bytes out: no socket, no clock.

`send` queues a request and returns its `Call`; the shell moves `outgoing` to the socket and what arrives into
`receive_buffer()`, then says `received(n)`, which completes calls. Kafka answers in the order of the requests, so the
oldest outstanding call is always the one that a frame answers; a correlation id that differs means the two sides are
out of step, and the channel fails for good.

A frame's size is checked before anything is allocated for it (garbage such as an HTTP answer announces gigabytes).
"""

from __future__ import annotations

from collections import deque
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from headrace.client.errors import ClientError, ConnectionLostError, ProtocolMismatchError
from headrace.wire.apis import APIS, ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.frame import SIZE_BYTES, RequestHeader, decode_response_header, encode_request_header
from headrace.wire.primitives import DecodeError

READ_AHEAD_SIZE = 64 << 10
"""Bytes received at a time while no large frame is under way."""

FRAME_SIZE_MAX = 1 << 29
"""The largest response accepted. Fetches are bounded far below; "HTTP" read as a size is above."""

FRAMES_KEPT = 2
"""Buffers of large frames that a channel keeps: one is being received while the caller reads the other."""
FRAME_KEPT_SIZE_MAX = 32 << 20
"""Larger frames get memory of their own, which goes with them, and which the system fills with zeros as it is used:
to fill so much at once takes 20 ms and more."""
_FRAME_ROUNDING = 256 << 10

_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


class Request(Protocol):
    """A generated request message."""

    API_KEY: ClassVar[int]

    def encode_onto(self, out: bytearray, version: int) -> None: ...


class Response(Protocol):
    """A generated response message."""

    API_KEY: ClassVar[int]

    @classmethod
    def decode(cls, data: Any, version: int, at: int = 0) -> Any: ...


R = TypeVar("R", bound=Response)


class Call(Generic[R]):
    """One request under way. Exactly one of `response` and `error` is set once `done`."""

    __slots__ = ("correlation_id", "done", "error", "response", "response_class", "version")

    def __init__(self, response_class: type[R], version: int, correlation_id: int) -> None:
        self.response_class = response_class
        self.version = version
        self.correlation_id = correlation_id
        self.done = False
        self.response: R | None = None
        self.error: ClientError | None = None

    def result(self) -> R:
        """The response; raises the call's error. Only once `done`."""
        assert self.done
        if self.error is not None:
            raise self.error
        assert self.response is not None
        return self.response


class FrameBuffers:
    """Memory for large frames, used again once nobody has a view of it: a new bytearray is filled with zeros first."""

    def __init__(self) -> None:
        self._kept: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Room for a frame. What is in it is what the last frame left."""
        for kept in self._kept:
            if len(kept) >= size and _released(kept):
                return memoryview(kept)[:size]
        rounded = -size // _FRAME_ROUNDING * -_FRAME_ROUNDING
        if rounded > FRAME_KEPT_SIZE_MAX:
            return memoryview(mmap(-1, rounded, flags=MAP_PRIVATE | MAP_ANONYMOUS))[:size]
        fresh = bytearray(rounded)
        outgrown = next((i for i, kept in enumerate(self._kept) if len(kept) < size and _released(kept)), None)
        if outgrown is not None:
            del self._kept[outgrown]
        if len(self._kept) < FRAMES_KEPT:
            self._kept.append(fresh)
        return memoryview(fresh)[:size]


def _released(buffer: bytearray) -> bool:
    """Whether no view of the buffer is left: with one it cannot change its size."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True


class Channel:
    """Requests out, responses in, for one connection."""

    def __init__(self, client_id: str, *, peer: str) -> None:
        self.client_id = client_id
        self.peer = peer
        self.versions: dict[int, tuple[int, int]] = {}
        self.outgoing: deque[memoryview] = deque()
        self.failure: ClientError | None = None
        self._waiting: deque[Call[Any]] = deque()
        self._correlation_id = 0
        self._buffer = bytearray(READ_AHEAD_SIZE)
        self._filled = 0
        self._frames = FrameBuffers()
        self._frame: memoryview | None = None
        self._frame_filled = 0

    @property
    def outstanding(self) -> int:
        return len(self._waiting)

    def version_for(self, api_key: int) -> int:
        """The newest version that both sides speak. Raises `ProtocolMismatchError` where there is none."""
        ours = APIS[api_key]
        name = ApiKey(api_key).name
        if api_key not in self.versions:
            raise ProtocolMismatchError(f"{self.peer} does not serve {name}")
        low, high = self.versions[api_key]
        version = min(high, ours.max_version)
        if version < max(low, ours.min_version):
            raise ProtocolMismatchError(
                f"{self.peer} serves {name} versions {low} to {high}, "
                f"this client {ours.min_version} to {ours.max_version}"
            )
        return version

    def supports(self, api_key: int, version: int = 0) -> bool:
        """Whether the broker serves this API at this version or a newer one."""
        return api_key in self.versions and self.versions[api_key][1] >= version

    def send(
        self, request: Request, response_class: type[R], *, version: int | None = None, expect_reply: bool = True
    ) -> Call[R]:
        """Queue a request. With `expect_reply=False` (produce with acks=0) the call is done at once, without response.

        Raises the channel's failure if it has failed, and `ProtocolMismatchError` for an API the broker does not serve.
        """
        if self.failure is not None:
            raise self.failure
        key = request.API_KEY
        if version is None:
            version = self.version_for(key)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        head = encode_request_header(RequestHeader(key, version, self._correlation_id, self.client_id))
        encode_parts = getattr(request, "encode_parts", None)
        if encode_parts is None:
            request.encode_onto(head, version)
            parts = [head]
        else:
            parts = encode_parts(version, head)
        head[:SIZE_BYTES] = (sum(map(len, parts)) - SIZE_BYTES).to_bytes(SIZE_BYTES, "big")
        self.outgoing.extend(map(memoryview, parts))
        call = Call(response_class, version, self._correlation_id)
        if expect_reply:
            self._waiting.append(call)
        else:
            call.done = True
        return call

    def sent(self, size: int) -> None:
        """Drop `size` bytes that the socket took from `outgoing`."""
        while size:
            head = self.outgoing[0]
            if len(head) <= size:
                size -= len(head)
                self.outgoing.popleft()
            else:
                self.outgoing[0] = head[size:]
                size = 0

    def receive_buffer(self) -> memoryview:
        """Where the next bytes belong. Valid until `received`."""
        if self._frame is not None:
            return self._frame[self._frame_filled :]
        return memoryview(self._buffer)[self._filled :]

    def received(self, size: int) -> None:
        """`size` bytes have been put into `receive_buffer()`. Completes the calls whose answers are whole."""
        if self._frame is not None:
            self._frame_filled += size
            if self._frame_filled == len(self._frame):
                frame, self._frame = self._frame, None
                self._complete(frame)
            return
        self._filled += size
        self._split()

    def fail(self, error: ClientError) -> None:
        """End the channel: every outstanding call gets `error`, and so does every later `send`."""
        if self.failure is None:
            self.failure = error
        self.outgoing.clear()
        while self._waiting:
            call = self._waiting.popleft()
            call.error = self.failure
            call.done = True

    def _split(self) -> None:
        """Cut the frames out of the read-ahead buffer; a frame too large for it gets a buffer of its own."""
        at = 0
        while self.failure is None and self._filled - at >= 4:
            size = int.from_bytes(self._buffer[at : at + 4], "big")
            if not 4 <= size <= FRAME_SIZE_MAX:
                self.fail(ProtocolMismatchError(f"{self.peer} does not answer as a Kafka broker does"))
                return
            start, end = at + 4, at + 4 + size
            if end <= self._filled:
                self._complete(memoryview(bytes(memoryview(self._buffer)[start:end])))
                at = end
                continue
            if end - at > len(self._buffer):
                self._frame = self._frames.take(size)
                self._frame_filled = self._filled - start
                self._frame[: self._frame_filled] = memoryview(self._buffer)[start : self._filled]
                at = self._filled
            break
        if at:
            rest = self._filled - at
            self._buffer[:rest] = self._buffer[at : self._filled]
            self._filled = rest

    def _complete(self, frame: memoryview) -> None:
        if not self._waiting:
            self.fail(ProtocolMismatchError(f"{self.peer} sent an answer to no request"))
            return
        call = self._waiting.popleft()
        try:
            correlation_id, at = decode_response_header(frame, call.response_class.API_KEY, call.version)
            if correlation_id != call.correlation_id:
                raise DecodeError(f"correlation id {correlation_id}, not {call.correlation_id}")
            version = call.version
            if call.response_class.API_KEY == ApiKey.API_VERSIONS and bytes(frame[at : at + 2]) == _UNSUPPORTED_VERSION:
                # A broker that lacks the version asked for answers in version 0 (KIP-511).
                version = 0
            call.response = call.response_class.decode(frame, version, at)
        except DecodeError as error:
            self._waiting.appendleft(call)
            self.fail(ConnectionLostError(f"{self.peer} sent an answer that this client cannot read: {error}"))
            return
        call.done = True
