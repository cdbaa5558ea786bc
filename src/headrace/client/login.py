"""A client's login, without a socket: the requests of it one after the other, as a generator that is sent the answers.

Both kinds of connection move it. Source: KIP-43, KIP-152 (SaslAuthenticate), KIP-368 (sessions that end).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
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
"""Every broker that a client of ours meets has these; from version 1 on it is told how long the session lives."""
EARLIEST_SHARE: Final = 0.85
LATEST_SHARE: Final = 0.95
"""A session is begun anew between these shares of its life, as Kafka's clients do, so that not all come at once."""

Asked = tuple[Request, Any, int]
"""A request, the class of its response, and its version."""
Login = Generator[Asked | Errand[Any], Any, int]
"""Each request is sent its answer, and each errand what its work returned."""
T = TypeVar("T")


class NotLoggedInError(ClientError):
    """The broker does not let this client in, or does not prove that it is the one that it should be."""


def made_ready(credentials: AnyCredentials, peer: str) -> AnyCredentials:
    """Credentials that wait for nobody. To be called where one may wait. Raises NotLoggedInError."""
    try:
        return credentials.ready()
    except LoginFailedError as error:
        raise NotLoggedInError(f"no login at {peer}: {error}") from None


def log_in(credentials: AnyCredentials, host: str, peer: str, secret: Callable[[int], bytes]) -> Login:
    """The requests of a login at a host, which `peer` names with its port. Returns how long the session lives in ms, 0:
    without end.

    `secret` draws bytes that nobody can guess. Raises NotLoggedInError.
    """
    mechanism = credentials.mechanism
    said: SaslHandshakeResponse = yield SaslHandshakeRequest(mechanism), SaslHandshakeResponse, HANDSHAKE_VERSION
    if said.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        served = ", ".join(said.mechanisms) or "none"
        raise NotLoggedInError(f"{peer} does not log clients in by {mechanism}; it serves {served}")
    if said.error_code:
        raise NotLoggedInError(str(BrokerError(said.error_code, f"the login at {peer}")))
    try:
        login = yield from _done(credentials, partial(credentials.begin, secret, host))
        token = yield from _done(credentials, login.first)
    except LoginFailedError as error:
        raise NotLoggedInError(f"no login at {peer}: {error}") from None
    while True:
        answer: SaslAuthenticateResponse = yield (
            SaslAuthenticateRequest(token),
            SaslAuthenticateResponse,
            AUTHENTICATE_VERSION,
        )
        if answer.error_code:
            raise NotLoggedInError(f"{peer} refuses the login: {answer.error_message or 'it does not say why'}")
        try:
            token = yield from _done(credentials, partial(login.respond, bytes(answer.auth_bytes)))
        except LoginFailedError as error:
            raise NotLoggedInError(f"the login at {peer} failed: {error}") from None
        if login.is_done:
            return answer.session_lifetime_ms


def _done(credentials: AnyCredentials, work: Callable[[], T]) -> Generator[Errand[Any], Any, T]:
    """What `work` returns: at once, or by way of an errand where it may wait. Raises what it raises."""
    if not credentials.may_wait:
        return work()
    found: T | LoginFailedError = yield Errand(partial(_caught, work))
    if isinstance(found, LoginFailedError):
        raise found
    return found


def _caught(work: Callable[[], T]) -> T | LoginFailedError:
    try:
        return work()
    except LoginFailedError as error:
        return error


def renewal_s(lifetime_ms: int, random: Random) -> float | None:
    """In how many seconds a session is to be begun anew; None where it has no end."""
    if lifetime_ms <= 0:
        return None
    return lifetime_ms / 1000 * random.uniform(EARLIEST_SHARE, LATEST_SHARE)
