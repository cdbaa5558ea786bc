"""The interface of every SASL mechanism: tokens go in, a step of the login comes out.

A mechanism of a server is a `ServerMechanism`; each login of a client gets a `ServerLogin` of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)

ANONYMOUS: Final = "User:ANONYMOUS"
"""Who has not logged in."""
OTHER_AUTHZID: Final = "Authentication failed: Client requested an authorization id that is different from username"


class Identity(NamedTuple):
    """Who has logged in: a principal (`User:ann`), when its credential ends (ms since 1970; None: never), and
    whether a delegation token was the credential."""

    principal: str
    expires_ms: int | None = None
    is_token: bool = False


@dataclass(frozen=True, slots=True)
class Challenge:
    """The login goes on: the client has to answer this."""

    token: bytes
    refused: str = ""
    """Why the login has failed already, where all that is left for the client is to hear so."""


@dataclass(frozen=True, slots=True)
class Proved:
    """The login is done; the client hears this last. None: the mechanism has nothing left to say, not even nothing."""

    token: bytes | None
    identity: Identity


LoginStep = Challenge | Proved


@dataclass(frozen=True, slots=True)
class Errand(Generic[T_co]):
    """Work that a login of either side needs before it goes on, and that may take a while: reading a file, or asking
    another server. The driver of the login runs `work` on a worker, or directly if nothing else waits, and asks nothing
    else of the login meanwhile. Equal errands are one: logins may share the outcome.
    """

    work: Callable[[], T_co]
    """Raises LoginFailedError."""


class LoginFailedError(Exception):
    """A login that failed. The text is for the log of the one who checks: the other side must not see it."""


class LoginRefused(LoginFailedError):
    """A login that failed, with a text that the client sees. It says nothing of who exists."""


class LoginInterrupted(LoginFailedError):
    """A login that failed for once, and may do better at the next attempt: the client hears nothing, as if the
    connection had broken."""


class ServerLogin(Protocol):
    """A server's side of one login."""

    claimed: str
    """The principal that the client claims, with `User:`; empty before its first message, and if only a proof names it.
    """

    def respond(self, token: bytes) -> LoginStep | Errand[LoginStep]:
        """The step that follows a client's token. Raises LoginFailedError; nothing may be asked of it then."""
        ...


class ServerMechanism(Protocol):
    """One mechanism as a listener offers it."""

    @property
    def name(self) -> str:
        """As clients ask for it: `SCRAM-SHA-256`."""
        ...

    @property
    def max_reauth_ms(self) -> int:
        """`connections.max.reauth.ms` of this mechanism on this listener; 0: sessions end with credentials alone."""
        ...

    def begin(self) -> ServerLogin:
        """A login begins."""
        ...
