"""One client connection: frames in, handlers called in order of arrival, replies out in the same order.

Bytes are received into one buffer that all connections share, and every whole frame in it is handled at once; their
replies leave in one send. Only the beginning of a frame that has not arrived whole is kept by its connection, in memory
that grows with what arrives, never with what the frame announces, and that is drawn from one budget.

Reading stops while a connection has too many requests unanswered, does not take its replies, waits for memory, or while
a handler that cannot answer at once is at work (`Blocked` names the reasons).
"""

from __future__ import annotations

from collections import deque
from functools import partial
from struct import Struct
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.answers import CloseConnectionError
from headrace.broker.net.blocked import Blocked
from headrace.broker.net.client_session import ClientSession
from headrace.broker.net.context import context_of
from headrace.broker.net.large_frame import LargeFrame
from headrace.broker.net.long_answers import FEW_ELEMENT_BYTES
from headrace.broker.net.output import BrokenFrameError
from headrace.broker.net.plain_header import HEADER_BYTES, plain_body
from headrace.broker.net.reply import Reply
from headrace.broker.net.sending import OUTPUT_BYTES, Sending
from headrace.env.completion import Completion
from headrace.env.network import WOULD_BLOCK, Stream
from headrace.env.tls import TlsFailure
from headrace.security.authorizer import AuthorizerNotReadyError
from headrace.wire.file_slice import FileSlice
from headrace.wire.frame import decode_request_header, encode_response, encode_response_parts
from headrace.wire.primitives import Buffer, DecodeError, Part

if TYPE_CHECKING:
    from headrace.broker.net.client_quotas import ClientLimits, Meter
    from headrace.broker.net.listener import OpenListener
    from headrace.broker.net.shared import Shared

FIRST_BYTES: Final = 4 + HEADER_BYTES
SCARCE_RECEIVE_BYTES: Final = 4096
"""What is received at once while the budget for requests is spent: enough for a small request."""
FETCH: Final = 1
NOT_READY: Final = "it asked before the ACLs are known"

_read_first = Struct(">ihhih").unpack_from
_read_size = Struct(">i").unpack_from


class Connection:
    """See the module. Made by the server for every accepted stream; `start` begins reading."""

    __slots__ = (
        "__weakref__",
        "_blocked",
        "_carry",
        "_client_id",
        "_client_id_raw",
        "_frame",
        "_kept",
        "_out",
        "_reading",
        "_sending",
        "_shape",
        "active",
        "client",
        "closed",
        "flush_scheduled",
        "idle_since",
        "listener",
        "shared",
        "stream",
        "unanswered",
    )

    def __init__(self, shared: Shared, stream: Stream, listener: OpenListener) -> None:
        self.shared = shared
        self.stream = stream
        self.listener = listener
        self.client = ClientSession(
            listener.name,
            listener.endpoint.protocol,
            listener.served,
            peer_host=stream.peer_host,
            peer_port=stream.peer_port,
        )
        self.active = True
        self.idle_since = 0.0
        self.closed = False
        self.flush_scheduled = False
        self.unanswered: deque[Reply] = deque()
        self._blocked = 0
        self._reading = False
        self._carry = b""
        self._client_id: str | None = None
        self._client_id_raw: Buffer | None = None
        self._frame: LargeFrame | None = None
        self._out: list[bytes | bytearray] = []
        self._sending = Sending(self, stream, shared)
        self._kept = 0
        self._shape: Any = None

    # --- receiving

    def start(self) -> None:
        """Begins to read."""
        self._watch()

    def _watch(self) -> None:
        wanted = not self._blocked and not self.closed
        if wanted != self._reading:
            self._reading = wanted
            self.stream.on_readable(self._readable if wanted else None)

    def _readable(self) -> None:
        self.active = True
        shared = self.shared
        try:
            if self._frame is not None:
                self._receive_frame(self._frame)
                return
            carry = self._carry
            have = len(carry)
            view = shared.view
            if have:
                view[:have] = carry
                room = view[have:]
            else:
                room = view
            if shared.requests_budget.exhausted:
                room = room[:SCARCE_RECEIVE_BYTES]
            received = self.stream.receive_into(room)
            if received <= 0:
                if received != WOULD_BLOCK:
                    self.close("" if not have else "the client left half-way through a request")
                return
            if have:
                self._carry = b""
                shared.requests_budget.give(have)
            self._take(have + received)
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Closes the connection for an error that reading from it raised."""
        if isinstance(error, OSError | CloseConnectionError):
            self.close(str(error) if isinstance(error, TlsFailure | CloseConnectionError) else "")
        else:
            self.shared.host.defect_beside(self, error)

    def _receive_frame(self, frame: LargeFrame) -> None:
        """Goes on with a frame that is too large for the shared buffer."""
        if frame.is_full and not frame.grow():
            self.block(Blocked.MEMORY)
            self.shared.requests_budget.wait(lambda: self.unblock(Blocked.MEMORY))
            return
        received = self.stream.receive_into(frame.free)
        if received <= 0:
            if received != WOULD_BLOCK:
                self.close("the client left half-way through a request")
            return
        frame.have += received
        if frame.have == frame.need:
            try:
                self._requests(frame.view, frame.view, frame.need)
            finally:
                self._drop_frame()
            self.flush()
            shared = self.shared
            if shared.quotas is not None:
                shared.quotas.finished()
            now = shared.served_at = shared.monotonic()
            if shared.times is not None:
                shared.times.handled(now - shared.began)

    def _drop_frame(self) -> None:
        frame, self._frame = self._frame, None
        if frame is not None:
            frame.release()

    def _hold(self, size: int) -> None:
        """Accounts for `size` bytes that have arrived; where the budget is spent, reading stops until there is more."""
        budget = self.shared.requests_budget
        if budget.take(size) or budget.overdraw(size, self.client):
            return
        budget.force(size)
        self.block(Blocked.MEMORY)
        budget.wait(lambda: self.unblock(Blocked.MEMORY))

    def block(self, why: int) -> None:
        """Stops reading, until each reason for that is gone."""
        self._blocked |= why
        self._watch()

    def unblock(self, why: int) -> None:
        """One reason is gone; harmless where it was none."""
        if self._blocked & why:
            self._blocked &= ~why
            if not self._blocked:
                # Not now: whoever calls may be in the middle of the shared buffer.
                self.shared.owner.soon(self._resume)

    def _resume(self) -> None:
        """Handles what was received before reading stopped, then reads on."""
        if self._blocked or self.closed:
            return
        carry = self._carry
        if carry:
            have = len(carry)
            self.shared.view[:have] = carry
            self._carry = b""
            self.shared.requests_budget.give(have)
            try:
                self._take(have)
            except Exception as error:
                self._failed(error)
        self._watch()

    def _take(self, end: int) -> None:
        """Handles the frames in the first `end` bytes of the shared buffer, and keeps what is left over."""
        shared = self.shared
        view = shared.view
        bulk = shared.bulk
        at = self._requests(shared.buffer, view, end)
        is_bulk = shared.bulk != bulk
        if not is_bulk:
            shared.talked_at = shared.began
        left = end - at
        if left and not self.closed:
            self._keep(view[at:end], left)
        elif shared.requests_budget.overdrawn_by is self.client:
            shared.requests_budget.settle(self.client)
        shared.send_queue.add(self, shared.began, at_once=is_bulk)
        if shared.quotas is not None:
            shared.quotas.finished()
        now = shared.served_at = shared.monotonic()  # once for all
        if not is_bulk and not self.closed:
            shared.send_queue.last, shared.send_queue.ended = self, now
        if shared.times is not None:
            shared.times.handled(now - shared.began)
        if shared.busy_poll is not None:
            shared.busy_poll(now)

    def _keep(self, rest: memoryview, left: int) -> None:
        """Keeps the beginning of a frame, or frames that may not be handled yet."""
        if left >= 4 and not self._blocked:
            size: int = _read_size(rest)[0]
            if not HEADER_BYTES <= size <= self.shared.frame_bytes_max:
                self._refuse_size(size)
                return
            if size + 4 > len(self.shared.buffer):
                self._frame = LargeFrame(self.shared.frame_memory, self.client, rest, size + 4)
                self._hold(self._frame.room)
                return
        self._carry = bytes(rest)
        if self._blocked:
            self.shared.requests_budget.force(left)
        else:
            self._hold(left)

    # --- requests

    def _requests(self, buffer: Buffer, view: memoryview, end: int) -> int:
        """Handles every whole frame in `buffer` up to `end`; returns where the first byte is that was not handled."""
        at = 0
        shared = self.shared
        shared.began = shared.monotonic()
        run = shared.requests.short_produce
        limit = shared.frame_bytes_max
        produces = self.listener.produces
        quotas, limits, client = shared.quotas, None, self.client
        while end - at >= FIRST_BYTES and not self._blocked:
            size, key, version, correlation_id, length = _read_first(buffer, at)
            if not HEADER_BYTES <= size <= limit:
                self._finish_run()
                self._refuse_size(size)
                return at
            stop = at + 4 + size
            if stop > end:
                break
            if quotas is not None and (limits := quotas.limits_of(client.principal, key, view, at, length)) is not None:
                taken = False
            elif key == 0 and produces:
                shape = self._shape
                if shape is not None and run.add_alike(shape, view, at, stop, version, correlation_id):
                    at = stop
                    continue
                taken = run.add(self, view[at + 4 : stop], version, correlation_id, length)
                self._shape = run.shape if taken else None
            elif key == FETCH and client.short_fetch is not None and version == client.short_fetch.version:
                if run.entries:
                    self._finish_run()
                taken = not self.closed and client.short_fetch.answer(self, view, at, stop, correlation_id)
                if self.closed:
                    return at
            else:
                taken = False
            if not taken:
                if run.entries:
                    self._finish_run()
                    if self.closed:
                        return at
                self._request(view[at + 4 : stop], key, version, correlation_id, length, limits)
                if self.closed:
                    return at
                if key == 0:
                    self._keep_pace()
            at = stop
        if run.entries:
            self._finish_run()
        return at

    def _finish_run(self) -> None:
        """Appends the Produce requests that came together, and answers them in order."""
        try:
            self.shared.requests.short_produce.finish(self)
        except Exception as error:
            self.shared.host.defect(self, 0, -1, error)
            return
        self._keep_pace()

    def _keep_pace(self) -> None:
        """A producer that is faster than the disk is not read from until the disk has caught up."""
        pace = self.shared.pace
        if pace.behind and not self._blocked & Blocked.DISK:
            self.block(Blocked.DISK)
            pace.when_caught_up(lambda: self.unblock(Blocked.DISK))

    def _refuse_size(self, size: int) -> None:
        self.close(f"a frame of {size} bytes; {HEADER_BYTES} to {self.shared.frame_bytes_max} bytes are allowed")

    def _request(
        self, frame: memoryview, key: int, version: int, correlation_id: int, length: int, limits: ClientLimits | None
    ) -> None:
        """Decodes one request, the first fields of whose header are known, and calls its handler."""
        shared = self.shared
        meter = None if limits is None or shared.quotas is None else shared.quotas.meter(limits, key, len(frame))
        reply = Reply(key, version, correlation_id, len(frame), meter)
        try:
            served = self.listener.served.get(key)
            if served is None:
                raise CloseConnectionError(f"a request of the unserved API {key}")
            at = plain_body(frame, served, version, length, self._client_id_raw)
            if not at:
                self._client_id_raw = bytes(frame[HEADER_BYTES : HEADER_BYTES + length]) if length >= 0 else None
                header, at = decode_request_header(frame)
                self._client_id = header.client_id
                if not served.min_version <= version <= served.max_version:
                    parts = shared.requests.unsupported_version(self.listener.served, frame, at, header)
                    self._answer_now(Reply(key, version, correlation_id, 0), parts)
                    return
            authorizer = shared.requests.authorizer
            context = context_of(authorizer, self.client, self._client_id, key, version, correlation_id, meter)
            try:
                request = served.decode(frame, version, at, FEW_ELEMENT_BYTES)
            except DecodeError:
                if len(frame) <= FEW_ELEMENT_BYTES:
                    raise
                held, self._frame = self._frame, None
                result = shared.long_answers.request(reply, frame, at, served, context, held)
            else:
                served.count.value += 1
                result = served.handle(request, context)
        except Exception as error:
            result = self._refused(reply, error)
            if result is None:
                return
        self._answer(reply, result)
        if meter is not None:
            meter.handled()

    def _refused(self, reply: Reply, error: Exception) -> Any:
        """What is answered where a request is unreadable, or its handler raised an error; None: the connection ends."""
        if isinstance(error, AuthorizerNotReadyError):
            result = self.shared.requests.not_ready(reply.key, reply.version)
            if result is None:
                self.close(NOT_READY)
            return result
        if isinstance(error, DecodeError):
            self.close(f"an unreadable request: {error}")
        elif isinstance(error, CloseConnectionError):
            self.shared.host.end(self, error)
        else:
            self.shared.host.defect(self, reply.key, reply.version, error)
        return None

    def _answer(self, reply: Reply, result: Any) -> None:
        """Takes what a handler returned."""
        if isinstance(result, Completion):
            if result.done:
                result = result.take()
            else:
                self.wait_for(reply, result)
                return
        elif type(result) is CoroutineType:
            self.block(Blocked.HANDLER)
            self._expect(reply)
            self.shared.host.start_task(self._finish_task(reply, result), result)
            return
        if reply.meter is not None:
            self._throttle(reply.meter, result)
        if result is not None:
            parts = self._encode(reply, result)
            if parts is not None:
                self._answer_now(reply, parts)
        times = self.shared.times
        if times is not None:
            times.answered(reply.key, self.shared.began)

    def wait_for(self, reply: Reply, pending: Completion[Any]) -> None:
        """Keeps the place of an answer that comes later."""
        self._expect(reply)
        self._leave_to(reply, pending)

    def _leave_to(self, reply: Reply, pending: Completion[Any]) -> None:
        reply.abandon = pending.abandon
        reply.hurry = pending.hurry
        pending.deliver_to(partial(self._resolved, reply))

    def _throttle(self, meter: Meter, response: Any) -> None:
        """The answer leaves at once; what the client asks for behind it waits."""
        throttle_ms = meter.answered(response)
        if throttle_ms > 0 and not self.closed:
            self.shared.mutes.mute(self, throttle_ms, meter.limits)

    async def _finish_task(self, reply: Reply, coroutine: Any) -> None:
        try:
            result = await (coroutine if reply.meter is None else reply.meter.timed(coroutine))
            if isinstance(result, Completion):
                self.unblock(Blocked.HANDLER)
                self._leave_to(reply, result)
                return
        except Exception as error:
            result = self._refused(reply, error)
            if result is None:
                return
        self.unblock(Blocked.HANDLER)
        self._resolved(reply, result)

    def _expect(self, reply: Reply) -> None:
        if self.unanswered and (hurry := self.unanswered[0].hurry) is not None:
            hurry()
        self.unanswered.append(reply)
        reply.began = self.shared.began
        self.shared.requests_budget.force(reply.held)
        if len(self.unanswered) >= self.shared.unanswered_max or self._kept > OUTPUT_BYTES:
            self.block(Blocked.UNANSWERED)

    def _resolved(self, reply: Reply, value: Any) -> None:
        """An answer that was waited for has come: it leaves once all before it have."""
        if self.closed:
            return
        if reply.meter is not None:
            self._throttle(reply.meter, value)
        reply.parts = [] if value is None else self._encode(reply, value)
        if self.shared.times is not None:
            self.shared.times.answered(reply.key, reply.began)
        if reply.parts is not None:
            self._emit_answered()

    def _emit_answered(self) -> None:
        unanswered = self.unanswered
        emitted = False
        while unanswered and unanswered[0].parts is not None:
            reply = unanswered.popleft()
            assert reply.parts is not None
            self.shared.requests_budget.give(reply.held)
            self._kept -= reply.kept
            self._emit(reply.parts)
            emitted = True
        if len(unanswered) < self.shared.unanswered_max and self._kept <= OUTPUT_BYTES:
            self.unblock(Blocked.UNANSWERED)
        if emitted and not self.flush_scheduled:
            self.flush_scheduled = True
            self.shared.completions.after(self.flush)

    def _encode(self, reply: Reply, response: Any) -> list[Part] | None:
        """The frame of a response; None, and the connection is closed, where its version cannot say it."""
        try:
            if reply.key > FETCH:  # Produce and Fetch have counted what they refused
                self.shared.request_errors.look_at(reply.key, response)
            if hasattr(response, "encode_parts"):
                return encode_response_parts(reply.key, reply.version, reply.correlation_id, response)
            return [encode_response(reply.key, reply.version, reply.correlation_id, response)]
        except Exception as error:
            self.shared.host.defect(self, reply.key, reply.version, error)
            return None

    def _answer_now(self, reply: Reply, parts: list[Part]) -> None:
        if self.unanswered:
            reply.parts = parts
            reply.held = reply.kept = sum(len(part) for part in parts if type(part) is not FileSlice)
            self._kept += reply.kept
            self._expect(reply)
        else:
            self._emit(parts)

    def answer(self, key: int, version: int, correlation_id: int, size: int, result: Any) -> None:
        """Takes the answer to a request whose frame was `size` bytes, or the promise of one, in its turn."""
        self._answer(Reply(key, version, correlation_id, size), result)

    def answer_bytes(self, key: int, version: int, correlation_id: int, frame: bytes | bytearray) -> None:
        """Queues a frame that is encoded already, in its turn; or several, one behind the other."""
        if not self.unanswered and not self._sending:
            self._out.append(frame)
        else:
            self._answer_now(Reply(key, version, correlation_id, 0), [frame])

    def send_at_once(self, buffers: list[Buffer]) -> int:
        """Sends an answer as far as the other side takes it, unless something has to leave before it: how many bytes
        have left. The rest is the caller's to queue. A stream that is gone ends the connection."""
        if self.unanswered or self._out or self._sending:
            return 0
        self.shared.bulk += 1
        try:
            return max(self.stream.send(buffers), 0)
        except OSError:
            self.close("")
            return 0

    def answer_records(self, parts: list[Part], sent: int) -> None:
        """Queues the frame of an answer around ranges of files, in its turn; its first `sent` bytes have left."""
        self.shared.bulk += 1
        self._answer_now(Reply(FETCH, 0, 0, 0), parts)
        if sent:
            self._sending.skip(sent)

    # --- sending

    def _emit(self, parts: list[Part]) -> None:
        if self._out:
            self._sending.add(list(self._out))
            self._out.clear()
        self._sending.add(parts)
        if self._sending.is_over_bound:
            # Small requests for large answers: the next ones wait until these have left.
            self.block(Blocked.OUTPUT)

    def flush(self) -> None:
        """Sends what can be sent now."""
        self.flush_scheduled = False
        if self.closed:
            return
        try:
            out = self._out
            if out:
                data = out[0] if len(out) == 1 else b"".join(out)
                out.clear()
                if self._sending:
                    self._sending.add_bytes(data)
                else:
                    sent = self.stream.send((data,))
                    if sent == len(data):
                        return
                    self._sending.add_bytes(memoryview(data)[sent:] if sent > 0 else data)
            self._sending.go_on()
        except (OSError, BrokenFrameError) as error:
            self.close(str(error) if isinstance(error, BrokenFrameError) else "")

    # --- ending

    @property
    def holds_partial_frame(self) -> bool:
        """Whether the beginning of a frame waits for its rest."""
        return self._frame is not None or bool(self._carry)

    def stalled_s(self, now: float) -> float:
        """How long its client has not taken all of its answers."""
        return self._sending.stalled_s(now)

    def has_left(self) -> bool:
        """Whether the client has gone while a request of it is at work. One may send acks=0 and leave: that counts."""
        if not self._blocked & Blocked.AT_WORK or (self._carry and self.listener.produces):
            return False
        return self.stream.has_hung_up(0 if self.listener.produces else None)

    def close(self, why: str) -> None:
        """Closes at once, after what is ready was sent as far as the other side takes it.

        `why` makes one line in the log, unless it is empty.
        """
        if self.closed:
            return
        self.closed = self.client.closed = True
        if why:
            self._emit([])
        self._sending.end(send_last=bool(why))
        budget = self.shared.requests_budget
        held = len(self._carry) + sum(reply.held for reply in self.unanswered)
        self._carry = b""
        unanswered, self.unanswered = self.unanswered, deque()
        for reply in unanswered:
            if reply.abandon is not None and reply.parts is None:
                reply.abandon()
        budget.give(held)
        self._drop_frame()
        budget.settle(self.client)
        self._out.clear()
        self.shared.host.connection_closed(self, why)
        self.stream.close()
        if self.client.on_closed is not None:
            self.client.on_closed()
