"""A server's side of SASL on one connection: which requests it may send now, what they are answered, who it is.

A connection begins with nobody behind it. It may ask ApiVersions, once, and then SaslHandshake, which names a
mechanism; the mechanism's tokens follow, each in a SaslAuthenticate request, or, after SaslHandshake version 0, each
with its size alone in front. Everything else ends it. A session may have an end, and then the client logs in again on
the same connection, as the same principal and by the same mechanism, before that; after it, it may do nothing else.

Nothing here reads a clock: `Moment` comes in with every request. Source: KIP-12, KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from headrace.security.login import (
    Challenge,
    Errand,
    Identity,
    LoginFailedError,
    LoginInterrupted,
    LoginRefused,
    LoginStep,
    ServerLogin,
    ServerMechanism,
)
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode

REAUTH_INTERVAL_S: Final = 1.0
"""How long after the beginning of a re-authentication the next one may begin."""
RAW_VERSION: Final = 0
"""The version of SaslHandshake after which tokens come without a request around them."""
SHOWN_MAX: Final = 64
"""How many characters of an unauthenticated client's text are logged."""
FAILED_TEXT: Final = "Authentication failed during {} due to invalid credentials with SASL mechanism {}"
READY_TEXT: Final = "SaslAuthenticate request received after successful authentication"


class Moment(NamedTuple):
    """Now: a clock that never goes back (seconds), and the one that credentials end by (ms since 1970)."""

    monotonic_s: float
    wall_ms: int


class Phase(Enum):
    """How far a connection is."""

    NEW = "new"
    """Nothing was asked yet."""
    LISTED = "listed"
    """ApiVersions is answered."""
    REQUESTS = "requests"
    """A mechanism is agreed on, and its tokens come in SaslAuthenticate requests."""
    RAW = "raw"
    """A mechanism is agreed on, and its tokens come as they are."""
    READY = "ready"
    """The client has logged in."""
    ENDED = "ended"
    """The login failed: the connection ends."""


_ALLOWED: Final[Mapping[Phase, tuple[ApiKey, ...]]] = {
    Phase.NEW: (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE),
    Phase.LISTED: (ApiKey.SASL_HANDSHAKE,),
    Phase.REQUESTS: (ApiKey.SASL_AUTHENTICATE, ApiKey.SASL_HANDSHAKE),
    Phase.RAW: (),
    Phase.ENDED: (),
}


@dataclass(frozen=True, slots=True)
class SaslAnswer:
    """What a client is answered. `ends`: after that, and after a delay, its connection is closed; `why` is for the log.

    `token` is the mechanism's, `lifetime_ms` how long the session lives (0: without end), `mechanisms` what there are.
    `is_silent`: a login that ends so ends without an answer; one that is done has no token, where tokens come as they
    are. `errand`: there is no answer yet; `concluded` has it, once that is done.
    """

    error: ErrorCode = ErrorCode.NONE
    text: str | None = None
    token: bytes = b""
    lifetime_ms: int = 0
    mechanisms: tuple[str, ...] = ()
    ends: bool = False
    refused: str = ""
    """Why a login has failed that the client has to hear of before it ends."""
    why: str = ""
    is_silent: bool = False
    errand: Errand[LoginStep] | None = None


class SaslSession:
    """A server's side of SASL. One a connection."""

    __slots__ = (
        "_last_reauth_s",
        "_login",
        "_mechanism",
        "_other",
        "claimed",
        "expires_s",
        "identity",
        "mechanisms",
        "phase",
    )

    def __init__(self, mechanisms: Mapping[str, ServerMechanism]) -> None:
        """`mechanisms` are what the listener offers, by name, in the order in which clients hear of them."""
        self.mechanisms = mechanisms
        """What the next login is offered; one that is under way keeps what it began with."""
        self._mechanism: ServerMechanism | None = None
        self._login: ServerLogin | None = None
        self._other = ""
        self._last_reauth_s: float | None = None
        self.phase = Phase.NEW
        self.claimed = ""
        """The name that the client claimed, if it did not prove it."""
        self.identity: Identity | None = None
        """Who has logged in; who is at it once more is still who it was."""
        self.expires_s: float | None = None
        """When the session ends; None: never."""

    @property
    def mechanism_name(self) -> str:
        """The client's mechanism; empty before it has chosen one."""
        return "" if self._mechanism is None else self._mechanism.name

    @property
    def is_ready(self) -> bool:
        """Whether requests of every kind are served."""
        return self.phase is Phase.READY

    def refusal(self, key: int, now: Moment) -> str:
        """Why a request of that API ends the connection without an answer; empty where it is to be answered."""
        phase = self.phase
        if phase is Phase.READY:
            is_over = self.expires_s is not None and now.monotonic_s > self.expires_s
            if is_over and not (key == ApiKey.SASL_HANDSHAKE and self._may_begin_again(now)):
                return "the session has ended, and the client has not logged in again"
            return ""
        return "" if key in _ALLOWED[phase] else f"a request of the API {key} from a client that has not logged in"

    def listed(self) -> None:
        """ApiVersions was answered with what there is; another one is not."""
        if self.phase is Phase.NEW:
            self.phase = Phase.LISTED

    def handshake(self, mechanism: str, version: int, now: Moment) -> SaslAnswer:
        """SaslHandshake."""
        offered = tuple(self.mechanisms)
        if self.phase is Phase.READY:
            if not self._may_begin_again(now):
                return SaslAnswer(ErrorCode.ILLEGAL_SASL_STATE)
            self._last_reauth_s = now.monotonic_s
        elif self.phase not in (Phase.NEW, Phase.LISTED):
            return self._end(ErrorCode.ILLEGAL_SASL_STATE, "a SaslHandshake during a login")
        chosen = self.mechanisms.get(mechanism)
        if chosen is None:
            why = f"the mechanism {mechanism[:SHOWN_MAX]!r} is not among {', '.join(offered)}"
            return self._end(ErrorCode.UNSUPPORTED_SASL_MECHANISM, why, mechanisms=offered)
        if self.identity is None:
            self._mechanism = chosen
            self.phase = Phase.RAW if version == RAW_VERSION else Phase.REQUESTS
        elif version == RAW_VERSION:
            return self._end(ErrorCode.ILLEGAL_SASL_STATE, "a session goes on with SaslHandshake 1 alone")
        else:
            assert self._mechanism is not None
            if chosen.name == self._mechanism.name:
                self._other, self._mechanism = "", chosen
            else:
                self._other = mechanism
            self.phase = Phase.REQUESTS
        self._login = chosen.begin()
        return SaslAnswer(mechanisms=offered)

    def authenticate(self, token: bytes, now: Moment) -> SaslAnswer:
        """SaslAuthenticate, or a token that came as it is."""
        if self.phase is Phase.READY:
            return SaslAnswer(ErrorCode.ILLEGAL_SASL_STATE, READY_TEXT)
        login, mechanism = self._login, self._mechanism
        assert self.phase in (Phase.REQUESTS, Phase.RAW) and login is not None and mechanism is not None
        if self._other:
            text = (
                f"SASL mechanism '{self._other}' requested by client is not supported for re-authentication of "
                f"mechanism '{mechanism.name}'"
            )
            return self._end(ErrorCode.SASL_AUTHENTICATION_FAILED, text, text)
        try:
            step = login.respond(token)
        except LoginFailedError as error:
            return self.concluded(error, now)
        return SaslAnswer(errand=step) if isinstance(step, Errand) else self.concluded(step, now)

    def concluded(self, step: LoginStep | LoginFailedError, now: Moment) -> SaslAnswer:
        """What follows from a step of the login, or from its failure: at once, or when an errand is done."""
        mechanism = self._mechanism
        assert self.phase in (Phase.REQUESTS, Phase.RAW) and mechanism is not None
        if isinstance(step, LoginFailedError):
            return self._failed(step, mechanism)
        if isinstance(step, Challenge):
            return SaslAnswer(token=step.token, refused=step.refused)
        if self.identity is not None and step.identity.principal != self.identity.principal:
            text = (
                "Cannot change principals during re-authentication from "
                f"{_dotted(self.identity)}: {_dotted(step.identity)}"
            )
            return self._end(ErrorCode.SASL_AUTHENTICATION_FAILED, text, text)
        self.identity = step.identity
        self._login = None
        self.phase = Phase.READY
        lifetime_ms = self._lifetime_ms(step.identity, mechanism, now)
        self.expires_s = None if lifetime_ms is None else now.monotonic_s + lifetime_ms / 1000
        return SaslAnswer(token=step.token or b"", lifetime_ms=lifetime_ms or 0, is_silent=step.token is None)

    def _failed(self, error: LoginFailedError, mechanism: ServerMechanism) -> SaslAnswer:
        why = str(error)
        if isinstance(error, LoginRefused):
            return self._end(ErrorCode.SASL_AUTHENTICATION_FAILED, why, why)
        what = "authentication" if self.identity is None else "re-authentication"
        text = FAILED_TEXT.format(what, mechanism.name)
        is_silent = isinstance(error, LoginInterrupted)
        return self._end(ErrorCode.SASL_AUTHENTICATION_FAILED, why, text, is_silent=is_silent)

    def _lifetime_ms(self, identity: Identity, mechanism: ServerMechanism, now: Moment) -> int | None:
        """How long a session lives that begins now; None: without end."""
        ends = []
        if identity.expires_ms is not None:
            ends.append(identity.expires_ms - now.wall_ms)
        if mechanism.max_reauth_ms > 0:
            ends.append(mechanism.max_reauth_ms)
        return max(0, min(ends)) if ends else None

    def _may_begin_again(self, now: Moment) -> bool:
        last_s = self._last_reauth_s
        is_long_ago = last_s is None or now.monotonic_s - last_s >= REAUTH_INTERVAL_S
        return self.expires_s is not None and is_long_ago

    def _end(
        self,
        error: ErrorCode,
        why: str,
        text: str | None = None,
        mechanisms: tuple[str, ...] = (),
        *,
        is_silent: bool = False,
    ) -> SaslAnswer:
        self.phase = Phase.ENDED
        self.claimed = "" if self._login is None else self._login.claimed
        self._login = None
        return SaslAnswer(error, text, mechanisms=mechanisms, ends=True, why=why, is_silent=is_silent)


def _dotted(identity: Identity) -> str:
    return identity.principal.replace(":", ".", 1)
