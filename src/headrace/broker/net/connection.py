"""One client connection: receives frames, calls their handlers in order, and sends the replies in that order.

Bytes are received into one buffer that all connections share, and every whole frame in it is handled at once; their
replies are sent together. The parts return values, and this class decides: `Input` keeps bytes that cannot be handled
yet, `SaslLogin` runs a login, `RequestReader` calls handlers, `Replies` keeps the order.

Reading stops while too many requests of a connection are unanswered, its client does not take its replies, memory is
spent, or a handler that cannot answer at once is at work (`Blocked` names the reasons).
"""

from __future__ import annotations

from functools import partial
from struct import Struct
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.answers import CloseConnectionError
from headrace.broker.net.blocked import Blocked
from headrace.broker.net.client_session import ClientSession
from headrace.broker.net.input import NO_MEMORY, Input, size_refusal
from headrace.broker.net.output import BrokenFrameError
from headrace.broker.net.plain_header import HEADER_BYTES
from headrace.broker.net.replies import Replies
from headrace.broker.net.reply import Reply
from headrace.broker.net.request_reader import RAW, RequestReader
from headrace.broker.net.sasl_login import SaslLogin
from headrace.env.completion import Completion
from headrace.env.network import WOULD_BLOCK, Stream
from headrace.env.tls import TlsFailure
from headrace.security.authorizer import AuthorizerNotReadyError
from headrace.wire.frame import encode_response, encode_response_parts
from headrace.wire.primitives import Buffer, DecodeError, Part

if TYPE_CHECKING:
    from headrace.broker.net.client_quotas import ClientLimits, Meter
    from headrace.broker.net.large_frame import LargeFrame
    from headrace.broker.net.listener import OpenListener
    from headrace.broker.net.shared import Shared

FIRST_BYTES: Final = 4 + HEADER_BYTES
PRODUCE: Final = 0
FETCH: Final = 1
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
PACED: Final = (PRODUCE, SASL_HANDSHAKE)
"""APIs after whose requests a connection may stop reading."""
NOT_READY: Final = "it asked before the ACLs are known"

_read_first = Struct(">ihhih").unpack_from
_read_size = Struct(">i").unpack_from
_read_header = Struct(">hhih").unpack_from


class Connection:
    """The connection of one accepted stream; `start` begins reading."""

    __slots__ = (
        "__weakref__",
        "_blocked",
        "_input",
        "_login",
        "_reader",
        "_reading",
        "_replies",
        "_shape",
        "active",
        "client",
        "closed",
        "flush_scheduled",
        "idle_since",
        "listener",
        "shared",
        "stream",
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
        """Time of the last sweep that found the connection active."""
        self.closed = False
        self.flush_scheduled = False
        self._blocked = 0
        """Reasons for not reading (`Blocked`); 0 while it reads."""
        self._reading = False
        self._input = Input(shared, stream, self.client)
        self._replies = Replies(shared, stream, self)
        self._reader = RequestReader(shared, self.client, listener.served, self._input)
        self._shape: Any = None
        """Shape of the last Produce request, for comparison with the next one."""
        self._login: SaslLogin | None = None
        if listener.login_terms is not None:
            self._login = self.client.login = SaslLogin(shared, self.client, listener, self)

    # --- receiving

    def start(self) -> None:
        """Begins to read; a client that must log in gets its deadline now."""
        if self._login is not None:
            self._login.begin()
        self._watch()

    def _watch(self) -> None:
        wanted = not self._blocked and not self.closed
        if wanted != self._reading:
            self._reading = wanted
            self.stream.on_readable(self._readable if wanted else None)

    def _readable(self) -> None:
        self.active = True
        try:
            if self._login is not None and self._login.is_under_way:
                self._take_turn()
                return
            if self._input.frame is not None:
                self._receive_frame(self._input.frame)
                return
            end = self._input.receive()
            if end > 0:
                self._take(end)
            elif end != WOULD_BLOCK:
                self.close("the client left half-way through a request" if self._input.is_partial else "")
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Closes the connection after an error while reading from it."""
        if isinstance(error, OSError | CloseConnectionError):
            self.close(str(error) if isinstance(error, TlsFailure | CloseConnectionError) else "")
        else:
            self.shared.host.defect_beside(self, error)

    def _take_turn(self) -> None:
        """Receives from a client that is logging in when its turn among them comes; until then its stream is not
        watched."""
        turns = self.shared.unauthenticated
        if turns.has_turn():
            turns.serve(self._receive_login)
        else:
            self.block(Blocked.TURN)
            turns.ask(self._receive_login)

    def _receive_login(self) -> None:
        login, self._blocked = self._login, self._blocked & ~Blocked.TURN
        if login is None or self._blocked:  # it has closed, or stopped reading
            return
        self.active = True
        try:
            received = login.receive(self.stream, self.shared.view)
            if received > 0:
                self._login_requests(login)
            elif received != WOULD_BLOCK:
                self.close("the client left in the middle of its login" if login.has_bytes else "")
        except Exception as error:
            self._failed(error)
        self._watch()

    def _login_requests(self, login: SaslLogin) -> None:
        """Handles the frames of a login one by one; continues as an ordinary connection once the client has logged
        in."""
        self.shared.began = self.shared.monotonic()
        while login.is_outside and not (self._blocked or self.closed or login.ending):
            is_raw = login.takes_raw_tokens
            frame = login.next_frame()
            if frame is None:
                break
            if is_raw:
                self._answer(Reply(SASL_AUTHENTICATE, RAW, 0, 0), login.raw_token(frame))
            else:
                key, version, correlation_id, length = _read_header(frame)
                self._request(frame, key, version, correlation_id, length, None)
            if self._replies.unanswered:
                self.block(Blocked.LOGIN)
        if self.closed:
            return
        if login.is_outside:
            self.flush()
            return
        rest = login.finish()
        if self._blocked:
            self._input.keep(rest)
            self.flush()
        else:
            # It arrived in one piece with the bytes that ended the login, so it fits.
            self.shared.view[: len(rest)] = rest
            self._take(len(rest))

    def _receive_frame(self, frame: LargeFrame) -> None:
        """Continues with a frame that is too large for the shared buffer."""
        received = self._input.receive_frame(frame)
        if received == NO_MEMORY:
            self._wait_for_memory()
        elif not received:
            self.close("the client left half-way through a request")
        elif frame.have == frame.need:
            try:
                self._requests(frame.view, frame.view, frame.need)
            finally:
                self._input.drop_frame()
            self.flush()
            shared = self.shared
            if shared.quotas is not None:
                shared.quotas.finished()
            now = shared.served_at = shared.monotonic()
            if shared.times is not None:
                shared.times.handled(now - shared.began)

    def _wait_for_memory(self) -> None:
        """Stops reading until others have returned bytes to the budget for requests."""
        self.block(Blocked.MEMORY)
        self.shared.requests_budget.wait(lambda: self.unblock(Blocked.MEMORY))

    def block(self, why: int) -> None:
        """Stops reading until every reason in `why` is withdrawn."""
        self._blocked |= why
        self._watch()

    def unblock(self, why: int) -> None:
        """Withdraws a reason, and resumes reading if no other is left; harmless if it was not set."""
        if self._blocked & why:
            self._blocked &= ~why
            if not self._blocked:
                # In the next turn: the caller may be in the middle of the shared buffer.
                self.shared.owner.soon(self._resume)

    def _resume(self) -> None:
        """Handles what was received before reading stopped, then reads on."""
        if self._blocked or self.closed:
            return
        try:
            carry = self._input.take_back()
            if self._login is not None and self._login.is_under_way:
                self._login.take_in(carry)
                self._login_requests(self._login)
            elif carry:
                self.shared.view[: len(carry)] = carry
                self._take(len(carry))
        except Exception as error:
            self._failed(error)
        self._watch()

    def _take(self, end: int) -> None:
        """Handles the frames in the first `end` bytes of the shared buffer, and keeps the rest."""
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
        """Keeps an incomplete frame, or frames that may not be handled yet."""
        if self._blocked:
            self._input.keep(rest)
        elif left >= 4 and (why := size_refusal(_read_size(rest)[0], self.shared.frame_bytes_max)):
            self.close(why)
        elif not self._input.keep_beginning(rest):
            self._wait_for_memory()

    # --- requests

    def _requests(self, buffer: Buffer, view: memoryview, end: int) -> int:
        """Handles every whole frame in `buffer` up to `end`; returns the position of the first unhandled byte."""
        at = 0
        shared = self.shared
        shared.began = shared.monotonic()
        if self._login is not None and self._has_to_log_in(self._login, view, end):
            return end
        run = shared.requests.short_produce
        limit = shared.frame_bytes_max
        produces = self.listener.produces
        quotas, limits, client = shared.quotas, None, self.client
        while end - at >= FIRST_BYTES and not self._blocked and not self.closed:
            size, key, version, correlation_id, length = _read_first(buffer, at)
            if not HEADER_BYTES <= size <= limit:
                self._finish_run()
                self.close(size_refusal(size, limit))
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
            else:
                taken = False
            if not taken:
                if run.entries:
                    self._finish_run()
                if self.closed:
                    return at
                self._request(view[at + 4 : stop], key, version, correlation_id, length, limits)
                if key in PACED:
                    self._pace(key)
            at = stop
        if run.entries:
            self._finish_run()
        return at

    def _finish_run(self) -> None:
        """Appends the Produce requests that arrived together, and answers them in order."""
        try:
            self.shared.requests.short_produce.finish(self)
        except Exception as error:
            self.shared.host.defect(self, 0, -1, error)
            return
        self._keep_pace()

    def _keep_pace(self) -> None:
        """Stops reading from a producer that outpaces the disk, until the disk has caught up."""
        pace = self.shared.pace
        if pace.behind and not self._blocked & Blocked.DISK:
            self.block(Blocked.DISK)
            pace.when_caught_up(lambda: self.unblock(Blocked.DISK))

    def _pace(self, key: int) -> None:
        """Decides whether to go on reading after a Produce or login request."""
        if self.closed:
            return
        if key == PRODUCE:
            self._keep_pace()
        elif self._login is not None and self._login.is_under_way:
            # The client logs in again: requests behind this one are handled as before a login.
            self.block(Blocked.LOGIN)
            if not self._replies.unanswered:
                self.shared.owner.soon(self.unblock, Blocked.LOGIN)

    def _has_to_log_in(self, login: SaslLogin, view: memoryview, end: int) -> bool:
        """Returns whether the session has expired: then the bytes up to `end` may only contain another login."""
        if login.expires_s is None or self.shared.began <= login.expires_s:
            return False
        login.begin()
        login.take_in(view[:end])
        self._login_requests(login)
        return True

    def _request(
        self, frame: memoryview, key: int, version: int, correlation_id: int, length: int, limits: ClientLimits | None
    ) -> None:
        """Calls the handler of one request, given the first fields of its header, and takes its answer."""
        shared = self.shared
        meter = None if limits is None or shared.quotas is None else shared.quotas.meter(limits, key, len(frame))
        reply = Reply(key, version, correlation_id, len(frame), meter)
        try:
            result = self._reader.result_of(reply, frame, length)
        except Exception as error:
            result = self._refused(reply, error)
            if result is None:
                return
        self._answer(reply, result)
        if meter is not None:
            meter.handled()

    def _refused(self, reply: Reply, error: Exception) -> Any:
        """Returns the answer to a request that cannot be decoded or whose handler failed; None if the connection
        ends."""
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
        """Takes the result of a handler: a response, a completion or a coroutine."""
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
        """Reserves the place of a pending answer."""
        self._expect(reply)
        self._leave_to(reply, pending)

    def _leave_to(self, reply: Reply, pending: Completion[Any]) -> None:
        reply.abandon = pending.abandon
        reply.hurry = pending.hurry
        pending.deliver_to(partial(self._resolved, reply))

    def _throttle(self, meter: Meter, response: Any) -> None:
        """Stops reading from a client that has exceeded a quota; its answer is sent at once."""
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
        self._replies.expect(reply)
        if self._replies.is_full:
            self.block(Blocked.UNANSWERED)

    def _resolved(self, reply: Reply, value: Any) -> None:
        """Takes the value of a pending answer, and queues every reply that no earlier one blocks."""
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
        replies = self._replies
        emitted = replies.emit_ready()
        if not replies.is_full:
            self.unblock(Blocked.UNANSWERED if replies.unanswered else Blocked.UNANSWERED | Blocked.LOGIN)
        if emitted and not self.flush_scheduled:
            self.flush_scheduled = True
            self.shared.completions.after(self.flush)

    def _encode(self, reply: Reply, response: Any) -> list[Part] | None:
        """Returns the frame of a response; if it cannot be encoded, closes the connection and returns None."""
        if reply.version == RAW:
            parts: list[Part] = response
            return parts
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
        replies = self._replies
        if not replies.unanswered:
            replies.emit(parts)
            return
        replies.keep(reply, parts)
        if replies.is_full:
            self.block(Blocked.UNANSWERED)

    def answer(self, key: int, version: int, correlation_id: int, size: int, result: Any) -> None:
        """Takes, in order, the answer to a request whose frame was `size` bytes, or its completion."""
        self._answer(Reply(key, version, correlation_id, size), result)

    def answer_bytes(self, key: int, version: int, correlation_id: int, frame: bytes | bytearray) -> None:
        """Queues, in order, an encoded frame, or several concatenated frames."""
        if not self._replies.unanswered and not self._replies.sending.queued:
            self._replies.out.append(frame)
        else:
            self._answer_now(Reply(key, version, correlation_id, 0), [frame])

    def send_at_once(self, buffers: list[Buffer]) -> int:
        """Sends as much of an answer as the peer takes, unless an earlier answer is queued; returns the bytes sent. The
        caller queues the rest. Closes the connection if the stream is gone."""
        replies = self._replies
        if replies.unanswered or replies.out or replies.sending.queued:
            return 0
        self.shared.bulk += 1
        try:
            return max(self.stream.send(buffers), 0)
        except OSError:
            self.close("")
            return 0

    def answer_records(self, parts: list[Part], sent: int) -> None:
        """Queues, in order, the frame of an answer that contains file ranges; its first `sent` bytes have been sent."""
        self.shared.bulk += 1
        self._answer_now(Reply(FETCH, 0, 0, 0), parts)
        if sent:
            self._replies.sending.skip(sent)

    def flush(self) -> None:
        """Sends as much as the peer takes now."""
        self.flush_scheduled = False
        if self.closed:
            return
        replies = self._replies
        try:
            replies.flush()
        except (OSError, BrokenFrameError) as error:
            self.close(str(error) if isinstance(error, BrokenFrameError) else "")
            return
        login = self._login
        if login is not None and login.ending and not replies.unanswered and not replies.sending.queued:
            self.close(login.ending)

    # --- ending

    @property
    def is_waited_for(self) -> bool:
        """Whether the client waits for an answer."""
        return bool(self._replies.unanswered)

    @property
    def holds_partial_frame(self) -> bool:
        """Whether an incomplete frame is kept."""
        return self._input.is_partial

    def stalled_s(self, now: float) -> float:
        """Returns for how many seconds the client has not taken all of its answers."""
        return self._replies.sending.stalled_s(now)

    def has_left(self) -> bool:
        """Returns whether the client has hung up while a request of it is at work. A producer may send acks=0 and
        leave: its requests still count."""
        if not self._blocked & Blocked.AT_WORK or (self._input.carry and self.listener.produces):
            return False
        return self.stream.has_hung_up(0 if self.listener.produces else None)

    def close(self, why: str) -> None:
        """Closes at once, after sending as much of the ready answers as the peer takes.

        Logs `why` unless it is empty.
        """
        if self.closed:
            return
        self.closed = self.client.closed = True
        self._replies.close(send_last=bool(why))
        if self._login is not None:
            self._login.close()
            self._login = self.client.login = None  # both are freed at once: thousands a second may come and not log in
        self._input.close()
        self.shared.host.connection_closed(self, why)
        self.stream.close()
        if self.client.on_closed is not None:
            self.client.on_closed()
