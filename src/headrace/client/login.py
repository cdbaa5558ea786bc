"""A client's login, without a socket: the requests of it one after the other, as a generator that is sent the answers.

Both kinds of connection move it. Source: KIP-43, KIP-152 (SaslAuthenticate), KIP-368 (sessions that end).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from random import Random
from typing import Any, Final, TypeVar

from headrace.client.channel import Request
from headrace.client.errors import BrokerError, ClientError
from headrace.security.credentials import AnyCredentials
from headrace.security.login import Errand, LoginFailedError
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headrace.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

HANDSHAKE_VERSION: Final = 1
AUTHENTICATE_VERSION: Final = 1
"""Every broker that a client of ours meets has these; from version 1 on the answer has the session's lifetime."""
EARLIEST_SHARE: Final = 0.85
LATEST_SHARE: Final = 0.95
"""A client reauthenticates between these shares of the session's life, as Kafka's clients do, so that not all come at
once.
"""

LoginRequest = tuple[Request, Any, int]
"""A request, the class of its response, and its version."""
Login = Generator[LoginRequest | Errand[Any] | int, Any, None]
"""A login as a generator: each request is sent its answer, and each errand its outcome; the last value is the session's
lifetime in ms, 0: without end. All errands that a login needs first come before its first request: a broker gives a
login some seconds, so its driver connects only then.
"""
Begun = tuple[Login, LoginRequest | int]
"""A login, and what it asks first."""
T = TypeVar("T")


class NotLoggedInError(ClientError):
    """The broker does not let this client in, or does not prove that it is the one that it should be.

    `mechanism` is what the login went by; empty where the broker does not serve it.
    """

    def __init__(self, why: str, mechanism: str = "") -> None:
        self.mechanism = mechanism
        super().__init__(why)


def log_in(credentials: AnyCredentials, host: str, peer: str, secret: Callable[[int], bytes]) -> Login:
    """A login at a host, which `peer` names with its port. `secret` draws bytes that nobody can guess.

    Raises NotLoggedInError.
    """
    mechanism = credentials.mechanism
    try:
        login = yield from _done(credentials.begin(secret, host))
        yield from _shake_hands(mechanism, peer)
        token = yield from _done(login.first())
    except LoginFailedError as error:
        raise NotLoggedInError(f"no login at {peer}: {error}", mechanism) from None
    while True:
        answer: SaslAuthenticateResponse = yield (
            SaslAuthenticateRequest(token),
            SaslAuthenticateResponse,
            AUTHENTICATE_VERSION,
        )
        if answer.error_code:
            why = answer.error_message or "it does not say why"
            raise NotLoggedInError(f"{peer} refuses the login: {why}", mechanism)
        try:
            token = yield from _done(login.respond(bytes(answer.auth_bytes)))
        except LoginFailedError as error:
            raise NotLoggedInError(f"the login at {peer} failed: {error}", mechanism) from None
        if login.is_done:
            yield answer.session_lifetime_ms
            return


def _shake_hands(mechanism: str, peer: str) -> Login:
    handshake: SaslHandshakeResponse = yield SaslHandshakeRequest(mechanism), SaslHandshakeResponse, HANDSHAKE_VERSION
    if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        served = ", ".join(handshake.mechanisms) or "none"
        raise NotLoggedInError(f"{peer} does not log clients in by {mechanism}; it serves {served}")
    if handshake.error_code:
        raise NotLoggedInError(str(BrokerError(handshake.error_code, f"the login at {peer}")), mechanism)


def _done(step: T | Errand[T]) -> Generator[Errand[T], Any, T]:
    """A step, by way of its errand where it has one. Raises LoginFailedError."""
    if not isinstance(step, Errand):
        return step
    found: T | LoginFailedError = yield step
    if isinstance(found, LoginFailedError):
        raise found
    return found


def outcome_of(errand: Errand[T]) -> T | LoginFailedError:
    """What came of an errand, done here."""
    try:
        return errand.work()
    except LoginFailedError as error:
        return error


def renewal_s(lifetime_ms: int, random: Random) -> float | None:
    """Returns the seconds until the reauthentication; None if the session has no end."""
    if lifetime_ms <= 0:
        return None
    return lifetime_ms / 1000 * random.uniform(EARLIEST_SHARE, LATEST_SHARE)
