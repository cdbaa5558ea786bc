"""A connection whose client has to log in first, and again when its session ends.

Until then its bytes take a way of their own: they wait in memory of its own (see `logins`), frames are small, and each
is looked at alone, so that what stands behind a login is handled as whoever has logged in. Then it is a connection as
any other. It comes back to this way to log in again, and when its session has ended: requests close it then.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.answers import CloseConnectionError
from headrace.broker.net.blocked import Blocked
from headrace.broker.net.connection import Connection
from headrace.broker.net.plain_header import HEADER_BYTES
from headrace.broker.net.reply import Reply
from headrace.env.completion import Completion
from headrace.env.network import WOULD_BLOCK, Stream
from headrace.env.tls import TlsFailure
from headrace.security.login import Errand, LoginFailedError, LoginStep
from headrace.security.sasl import Moment, Phase, SaslAnswer, SaslSession

if TYPE_CHECKING:
    from headrace.broker.net.listener import OpenListener
    from headrace.broker.net.logins import Logins, LoginTerms
    from headrace.broker.net.shared import Shared
    from headrace.env.node import Timer
    from headrace.wire.primitives import Buffer

SIZE_BYTES: Final = 4

_read_size = Struct(">i").unpack_from
_read_header = Struct(">hhih").unpack_from
_pack_size = Struct(">i").pack


class SaslConnection(Connection):
    """See the module. `session` says who it is and what it may ask."""

    __slots__ = ("_arrived", "_ending", "_is_refused", "_logins", "_logs_in", "_put_off", "_terms", "_timer", "session")

    def __init__(self, shared: Shared, stream: Stream, listener: OpenListener, terms: LoginTerms) -> None:
        super().__init__(shared, stream, listener)
        self.session = SaslSession(terms.mechanisms)
        self.client.login = self
        self._terms = terms
        self._logins: Logins = shared.logins
        self._arrived = bytearray()
        self._logs_in = True
        self._put_off = False
        self._ending = ""
        self._is_refused = False
        self._timer: Timer | None = None

    # --- receiving

    def start(self) -> None:
        """See Connection.start. The time to log in runs."""
        self._logins.begin(self)
        super().start()

    def _readable(self) -> None:
        if not self._logs_in:
            super()._readable()
            return
        if self._put_off:
            return
        unauthenticated = self.shared.unauthenticated
        if unauthenticated.has_turn():
            unauthenticated.serve(self._receive)
            return
        self._put_off = True
        self._watch()
        unauthenticated.ask(self._next_turn)

    def _watch(self) -> None:
        """See Connection. Who is put off is not looked at before its turn."""
        wanted = not self._blocked and not self.closed and not self._put_off
        if wanted != self._reading:
            self._reading = wanted
            self.stream.on_readable(self._readable if wanted else None)

    def _next_turn(self) -> None:
        self._put_off = False
        if not self._blocked and not self.closed:
            if self._logs_in:
                self._receive()
            else:
                super()._readable()
        self._watch()

    def _receive(self) -> None:
        self.active = True
        shared = self.shared
        try:
            received = self.stream.receive_into(shared.view)
            if received <= 0:
                if received != WOULD_BLOCK:
                    self.close("the client left amid its login" if self._arrived else "")
                return
            if self._arrive(shared.view[:received]):
                self._login_requests()
        except TlsFailure as failure:
            self.close(str(failure))
        except OSError:
            self.close("")
        except Exception as error:
            shared.host.defect_beside(self, error)

    def _arrive(self, data: memoryview | bytes) -> bool:
        have = len(self._arrived)
        if not self._logins.hold(self.stream.peer_host, have, have + len(data)):
            self.close("memory for clients that have not logged in is spent")
            return False
        self._arrived += data
        return True

    def _drop(self, size: int) -> None:
        """Forgets the first `size` bytes."""
        self._logins.hold(self.stream.peer_host, len(self._arrived), len(self._arrived) - size)
        del self._arrived[:size]

    def _resume(self) -> None:
        if not self._logs_in:
            super()._resume()
            return
        if self._blocked or self.closed:
            return
        carry, self._carry = self._carry, b""
        self.shared.requests_budget.give(len(carry))
        try:
            if self._arrive(carry):
                self._login_requests()
        except Exception as error:
            self.shared.host.defect_beside(self, error)
        self._watch()

    def _requests(self, buffer: Buffer, view: memoryview, end: int) -> int:
        """See Connection. A session that has ended serves nothing but another login."""
        expires_s = self.session.expires_s
        if expires_s is None or self.shared.monotonic() <= expires_s:
            return super()._requests(buffer, view, end)
        self._begin()
        if self._arrive(view[:end]):
            self._login_requests()
        return end

    # --- logging in

    def listed(self) -> None:
        """See SaslLogin.listed."""
        self.session.listed()

    @property
    def moment(self) -> Moment:
        """Now."""
        return Moment(self.shared.monotonic(), self.shared.now_ms())

    def _begin(self) -> None:
        self._logs_in = True
        self._logins.begin(self)

    def _login_requests(self) -> None:
        """Handles the frames that have arrived, one by one, until the client has logged in; goes on as an ordinary
        connection then."""
        shared, session = self.shared, self.session
        shared.began = shared.monotonic()
        at, arrived = 0, self._arrived
        while not self._blocked and not self.closed and self._is_outside():
            if len(arrived) - at < SIZE_BYTES:
                break
            size: int = _read_size(arrived, at)[0]
            least = 0 if session.phase is Phase.RAW else HEADER_BYTES
            if not least <= size <= self._terms.frame_bytes_max:
                self.close(f"a frame of {size} bytes from a client that has not logged in")
                break
            stop = at + SIZE_BYTES + size
            if stop > len(arrived):
                break
            frame = bytes(arrived[at + SIZE_BYTES : stop])
            at = stop
            if session.phase is Phase.RAW:
                self._raw_token(frame)
            else:
                self._login_request(memoryview(frame))
        if self.closed:
            return
        self._drop(at)
        if self._is_outside():
            self.flush()
        else:
            self._go_in()

    def _is_outside(self) -> bool:
        """Whether it is still, or again, to log in."""
        session = self.session
        is_over = session.expires_s is not None and self.shared.monotonic() > session.expires_s
        return not session.is_ready or is_over

    def _login_request(self, frame: memoryview) -> None:
        key, version, correlation_id, length = _read_header(frame)
        refused = self.session.refusal(key, self.moment)
        if refused:
            self.close(refused)
        else:
            self._request(frame, key, version, correlation_id, length, None)

    def _raw_token(self, token: bytes) -> None:
        try:
            self.authenticate(token, self._raw_answer)
        except CloseConnectionError as reason:
            self.close(str(reason))

    def _raw_answer(self, answer: SaslAnswer) -> None:
        if not answer.ends and not answer.is_silent:
            self._answer_now(Reply(-1, 0, 0, 0), [_pack_size(len(answer.token)) + answer.token])

    def _go_in(self) -> None:
        """It has logged in: what else has arrived takes the ordinary way."""
        rest = bytes(self._arrived)
        self._drop(len(rest))
        self._logs_in = False
        self._logins.end(self)
        if self._blocked:
            self._carry = rest
            self.shared.requests_budget.force(len(rest))
            self.flush()
        else:
            # It came with the bytes that ended the login, in one piece, so there is room for it.
            self.shared.view[: len(rest)] = rest
            self._take(len(rest))

    # --- for handlers

    def handshake(self, mechanism: str, version: int) -> SaslAnswer:
        """See SaslSession.handshake. A login is offered what is in force when it begins."""
        terms = self.listener.login_terms
        assert terms is not None
        self._terms = terms
        self.session.mechanisms = terms.mechanisms
        return self.session.handshake(mechanism, version, self.moment)

    def authenticate(self, token: bytes, response_of: Callable[[SaslAnswer], Any]) -> Any:
        """What a handler returns for a token of the client: the response that is made of the answer, or the promise of
        it, where the mechanism has an errand first or the login failed. Raises CloseConnectionError."""
        answer = self.session.authenticate(token, self.moment)
        if answer.errand is None:
            return self.settle(answer, response_of(answer))
        return self._run(answer.errand, response_of)

    def _run(self, errand: Errand[LoginStep], response_of: Callable[[SaslAnswer], Any]) -> Completion[Any]:
        """Goes on when a worker is done, behind whom no disk waits: a KDC or a name server may take its time. Meanwhile
        nothing else of this client is looked at."""
        logins, host = self._logins, self.stream.peer_host
        if not logins.begin_errand(host):
            raise CloseConnectionError("too many logins wait for a worker")
        pending: Completion[Any] = Completion(self.shared.completions)
        self.block(Blocked.LOGIN)

        def done(step: LoginStep | None, error: BaseException | None) -> None:
            if self.closed:
                self._left_behind(error)
                return
            logins.end_errand(host)
            if isinstance(error, LoginFailedError):
                answer = self.session.concluded(error, self.moment)
            elif step is not None:
                answer = self.session.concluded(step, self.moment)
            else:
                assert error is not None
                self.shared.host.defect_beside(self, error)
                return
            result = self.settle(answer, response_of(answer))
            if isinstance(result, Completion):
                result.deliver_to(pending.complete)
            elif not self.closed:
                pending.complete(result)
                self.unblock(Blocked.LOGIN)

        self.shared.errands.submit(errand.work, done)
        return pending

    def settle(self, answer: SaslAnswer, response: Any) -> Any:
        """What a handler returns after a step of a login: its response, or, where the login failed, the promise of it,
        after which the connection ends. None as `response`: nothing is said."""
        session = self.session
        if answer.ends:
            return self._fail(answer.why, response)
        if answer.refused:
            return self._refuse(answer.refused, response)
        if session.is_ready and session.identity is not None and self._logs_in:
            self.client.principal = session.identity.principal
            self.client.is_token = session.identity.is_token
            self._logins.succeeded.value += 1
        elif not session.is_ready and not self._logs_in:
            # It logs in again: what stands behind this request is looked at as before a login.
            self._begin()
            self.block(Blocked.LOGIN)
            self.shared.owner.soon(self.unblock, Blocked.LOGIN)
        return response

    def _left_behind(self, error: BaseException | None) -> None:
        """A worker is done with a login whose client has left: one that failed counts, and is told, all the same."""
        host = self.stream.peer_host
        if not isinstance(error, LoginFailedError):
            self._logins.end_errand(host)
            if error is not None:
                self.shared.host.defect_beside(self, error)
            return
        self._count_failure(self.session.concluded(error, self.moment).why)
        self._logins.end_errand_later(host, self._terms.failed_delay_ms)

    def _count_failure(self, why: str) -> None:
        self._logins.failed.value += 1
        session = self.session
        self.shared.requests.audit.login_failed(session.claimed, session.mechanism_name, self.stream.peer_host, why)

    def _refuse(self, why: str, response: Any) -> Any:
        """A token is refused, which the client hears before its login ends: it counts now, and waits now, as the client
        may leave then without a word. One that sends bare tokens hears at once."""
        self._count_failure(why)
        self._is_refused = True
        return response if response is None else self._delayed(why, response, ends=False)

    def _fail(self, why: str, response: Any) -> Any:
        if self._is_refused:  # it was counted, and has waited
            self._ending = f"a login failed: {why}"
            self.block(Blocked.LOGIN)
            return response
        self._count_failure(why)
        return self._delayed(why, response, ends=True)

    def _delayed(self, why: str, response: Any, *, ends: bool) -> Completion[Any] | None:
        """The promise of an answer to a login that failed; it `ends` the connection."""
        self._logins.begin(self)
        self.block(Blocked.LOGIN)
        pending: Completion[Any] = Completion(self.shared.completions)

        def told() -> None:
            self._timer = None
            self.shared.unauthenticated.ask(tell)

        def tell() -> None:
            if self.closed:
                return
            if ends:
                self._ending = f"a login failed: {why}"
            pending.complete(response)
            self.flush()
            if not ends:
                self.unblock(Blocked.LOGIN)

        self._timer = self._logins.delay(self._terms.failed_delay_ms, told)
        if self._timer is None:
            self.close(f"a login failed: {why}")
            return None  # nothing is waited for: who is gone holds nothing
        return pending

    # --- ending

    def flush(self) -> None:
        super().flush()
        if self._ending and not self.unanswered and not self._sending:
            self.close(self._ending)

    def close(self, why: str) -> None:
        """See Connection.close."""
        if self.closed:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._logins.undelayed()
        self._logins.end(self)
        self._drop(len(self._arrived))
        self.client.login = None  # both are freed at once then: thousands of unauthenticated clients a second may come
        super().close(why)
