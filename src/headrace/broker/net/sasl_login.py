"""The SASL login of one connection, and each later login on it (KIP-368): takes bytes, returns frames and answers.

During a login the client's bytes are kept in memory of its own (see `logins`), and frames are small. The connection
handles one frame at a time, so that requests behind a login are handled under its principal. The handlers of
SaslHandshake and SaslAuthenticate get their answers here; a later answer is a completion (the delay after a failure) or
a coroutine (a worker checks the token). Source: KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.net.answers import CloseConnectionError
from headrace.broker.net.plain_header import HEADER_BYTES
from headrace.env.completion import Completion
from headrace.security.login import Errand, LoginFailedError, LoginStep
from headrace.security.sasl import Moment, Phase, SaslAnswer, SaslSession

if TYPE_CHECKING:
    from headrace.broker.net.client_session import ClientSession
    from headrace.broker.net.listener import OpenListener
    from headrace.broker.net.logins import Candidate
    from headrace.broker.net.shared import Shared
    from headrace.env.network import Stream
    from headrace.env.owner import Timer
    from headrace.wire.primitives import Part

SIZE_BYTES: Final = 4

_read_size = Struct(">i").unpack_from
_pack_size = Struct(">i").pack


class SaslLogin:
    """The login state of one connection; implements `LoginPort`. `ending` is why the connection ends once its answers
    are sent."""

    __slots__ = (
        "_arrived",
        "_candidate",
        "_client",
        "_is_refused",
        "_listener",
        "_logins",
        "_session",
        "_shared",
        "_terms",
        "_timer",
        "ending",
        "is_under_way",
    )

    def __init__(self, shared: Shared, client: ClientSession, listener: OpenListener, candidate: Candidate) -> None:
        """`candidate` is closed if the login takes too long."""
        assert listener.login_terms is not None, "clients of this listener log in"
        self.is_under_way = True
        self.ending = ""
        self._shared = shared
        self._logins = shared.logins
        self._client = client
        self._listener = listener
        self._candidate = candidate
        self._terms = listener.login_terms
        self._session = SaslSession(self._terms.mechanisms)
        self._arrived = bytearray()
        self._is_refused = False
        self._timer: Timer | None = None

    # --- bytes

    @property
    def has_bytes(self) -> bool:
        """Whether an incomplete frame is kept."""
        return bool(self._arrived)

    @property
    def expires_s(self) -> float | None:
        """Monotonic time at which the session expires, in seconds; None if it does not."""
        return self._session.expires_s

    def begin(self) -> None:
        """Begins a login: starts its deadline, and treats what the client sends as part of the login."""
        self.is_under_way = True
        self._logins.begin(self._candidate)

    def receive(self, stream: Stream, view: memoryview) -> int:
        """Receives bytes into memory of the login; returns the result of `receive_into`. Raises OSError, and
        CloseConnectionError if unauthenticated clients hold too much."""
        received = stream.receive_into(view)
        if received > 0:
            self.take_in(view[:received])
        return received

    def take_in(self, data: memoryview | bytes) -> None:
        """Adds received bytes. Raises CloseConnectionError if unauthenticated clients hold too much."""
        have = len(self._arrived)
        if not self._logins.hold(self._client.peer_host, have, have + len(data)):
            raise CloseConnectionError("memory for clients that have not logged in is spent")
        self._arrived += data

    @property
    def is_outside(self) -> bool:
        """Whether the client has to log in, for the first time or again."""
        return not self._session.is_ready or self._has_expired

    @property
    def _has_expired(self) -> bool:
        return self._session.expires_s is not None and self._shared.monotonic() > self._session.expires_s

    @property
    def takes_raw_tokens(self) -> bool:
        """Whether tokens come without a request header, after SaslHandshake version 0."""
        return self._session.phase is Phase.RAW

    def next_frame(self) -> memoryview | None:
        """Returns the next frame without its size, or None if it is incomplete. Raises CloseConnectionError if it is
        too large, or of an API that is not allowed now."""
        arrived = self._arrived
        if len(arrived) < SIZE_BYTES:
            return None
        size: int = _read_size(arrived)[0]
        is_raw = self.takes_raw_tokens
        if not (0 if is_raw else HEADER_BYTES) <= size <= self._terms.frame_bytes_max:
            raise CloseConnectionError(f"a frame of {size} bytes from a client that has not logged in")
        stop = SIZE_BYTES + size
        if stop > len(arrived):
            return None
        frame = memoryview(bytes(memoryview(arrived)[SIZE_BYTES:stop]))
        self._drop(stop)
        if not is_raw and (
            refused := self._session.refusal(int.from_bytes(frame[:2], "big", signed=True), self._moment)
        ):
            raise CloseConnectionError(refused)
        return frame

    def finish(self) -> bytes:
        """Ends a successful login; returns the bytes received behind it."""
        rest = bytes(self._arrived)
        self._drop(len(rest))
        self.is_under_way = False
        self._logins.end(self._candidate)
        return rest

    def close(self) -> None:
        """Frees the kept bytes of a closed connection."""
        self._drop(len(self._arrived))

    def _drop(self, size: int) -> None:
        """Frees the first `size` bytes."""
        self._logins.hold(self._client.peer_host, len(self._arrived), len(self._arrived) - size)
        del self._arrived[:size]

    # --- answers

    def listed(self) -> None:
        """Notes that ApiVersions was answered."""
        self._session.listed()

    def handshake(self, mechanism: str, version: int) -> SaslAnswer:
        """Returns the answer to SaslHandshake. Takes the listener's current mechanisms, which may have changed since
        the connection was opened."""
        terms = self._listener.login_terms
        assert terms is not None
        self._terms = terms
        self._session.mechanisms = terms.mechanisms
        return self._session.handshake(mechanism, version, self._moment)

    def raw_token(self, token: memoryview) -> Any:
        """Answers a raw token; returns a frame, a completion or coroutine of one, or None for no answer."""
        return self.authenticate(bytes(token), _raw_answer)

    def authenticate(self, token: bytes, response_of: Callable[[SaslAnswer], Any]) -> Any:
        """Returns the result for a token: the response made by `response_of`, now or later. Raises
        CloseConnectionError."""
        answer = self._session.authenticate(token, self._moment)
        if answer.errand is None:
            return self.settle(answer, response_of(answer))
        if not self._logins.begin_errand(self._client.peer_host):
            raise CloseConnectionError("too many logins wait for a worker")
        return self._checked(answer.errand, response_of)

    async def _checked(self, errand: Errand[LoginStep], response_of: Callable[[SaslAnswer], Any]) -> Any:
        """Checks a token on a worker of its own kind, which does not do disk work, as a KDC or name server may be slow.
        Meanwhile the client's other requests wait."""
        host = self._client.peer_host
        step: LoginStep | LoginFailedError
        try:
            step = await self._shared.errands.run(errand.work)
        except LoginFailedError as error:
            step = error
        except BaseException:
            self._logins.end_errand(host)
            raise
        if self._client.closed and isinstance(step, LoginFailedError):
            # The failure counts all the same; the address gets its place back after the delay that the client would
            # have had.
            self._count_failure(self._session.concluded(step, self._moment).why)
            self._logins.end_errand_later(host, self._terms.failed_delay_ms)
            raise CloseConnectionError("")
        self._logins.end_errand(host)
        if self._client.closed:
            raise CloseConnectionError("")
        answer = self._session.concluded(step, self._moment)
        return self.settle(answer, response_of(answer))

    def settle(self, answer: SaslAnswer, response: Any) -> Any:
        """Returns the handler's result after a step of the login (see `LoginPort.settle`). `response` is None if the
        client gets no answer."""
        session = self._session
        if answer.ends:
            return self._fail(answer.why, response)
        if answer.refused:
            return self._refuse(answer.refused, response)
        if session.is_ready and session.identity is not None and self.is_under_way:
            self._client.principal = session.identity.principal
            self._client.is_token = session.identity.is_token
            self._logins.succeeded.value += 1
        elif not session.is_ready and not self.is_under_way:
            self.begin()
        return response

    # --- failures

    def _refuse(self, why: str, response: Any) -> Any:
        """Refuses a token in a step after which the client has to reply before its login ends: counts and delays the
        failure now, as the client may leave without replying. A client that sends raw tokens is answered at once."""
        self._count_failure(why)
        self._is_refused = True
        return response if response is None else self._delayed(why, response)

    def _fail(self, why: str, response: Any) -> Any:
        if self._is_refused:  # it was counted, and has waited
            self.ending = f"a login failed: {why}"
            return response
        self._count_failure(why)
        completion = self._delayed(why, response)
        self.ending = f"a login failed: {why}"
        return completion

    def _count_failure(self, why: str) -> None:
        self._logins.failed.value += 1
        session = self._session
        audit = self._shared.requests.audit
        audit.login_failed(session.claimed, session.mechanism_name, self._client.peer_host, why)

    def _delayed(self, why: str, response: Any) -> Completion[Any]:
        """Returns the answer to a failed login, delayed. Raises CloseConnectionError if too many wait."""
        self.begin()
        completion: Completion[Any] = Completion(self._shared.completions, self._call_off)

        def waited() -> None:
            self._timer = None
            self._shared.unauthenticated.ask(answer)

        def answer() -> None:
            if not self._client.closed:
                completion.complete(response)

        self._timer = self._logins.delay(self._terms.failed_delay_ms, waited)
        if self._timer is None:
            raise CloseConnectionError(f"a login failed: {why}")
        return completion

    def _call_off(self) -> None:
        """Cancels the timer of a delayed answer whose client has left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._logins.undelayed()

    @property
    def _moment(self) -> Moment:
        return Moment(self._shared.monotonic(), self._shared.now_ms())


def _raw_answer(answer: SaslAnswer) -> list[Part] | None:
    return None if answer.ends or answer.is_silent else [_pack_size(len(answer.token)) + answer.token]
