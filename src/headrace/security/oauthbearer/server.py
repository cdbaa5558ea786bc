"""A server's side of OAUTHBEARER: one message of the client's decides, and a refusal takes one more.

A token that is not taken is answered by a challenge that says so; the client says goodbye with a single byte, and only
then the login fails, as RFC 7628 wants it. Source: RFC 7628, KIP-255.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from headrace.security.login import Challenge, Identity, LoginFailedError, LoginRefused, LoginStep, Proved, ServerLogin

from .messages import GOODBYE, MessageError, challenge, first_message
from .tokens import Accepted, Refused

OAUTHBEARER: Final = "OAUTHBEARER"
OTHER_AUTHZID: Final = (
    "Authentication failed: Client requested an authorization id that is different from the token's principal name"
)

Check = Callable[[str], Accepted | Refused]
"""Checks a token now: `SignedTokens.checked` or `UnsecuredTokens.checked` with the time and the keys of the moment.
The code that provides it handles `Refused.unknown_key`, and logs `Refused.why`."""


@dataclass(frozen=True, slots=True)
class OAuthBearerMechanism:
    """See login.ServerMechanism."""

    check: Check = field(repr=False)
    max_reauth_ms: int = 0
    name: str = OAUTHBEARER

    def begin(self) -> ServerLogin:
        """See login.ServerMechanism."""
        return OAuthBearerServer(self.check)


class OAuthBearerServer:
    """A server's side of one login. The token names the client; a client whose token is refused has no name."""

    claimed = ""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._refusal: str | None = None

    def respond(self, token: bytes) -> LoginStep:
        """See login.ServerLogin."""
        if self._refusal is not None:
            if token == GOODBYE:
                raise LoginRefused(self._refusal)
            raise LoginFailedError("a client whose token was refused did not say goodbye")
        try:
            message = first_message(token)
        except MessageError as error:
            raise LoginFailedError(str(error)) from None
        found = self._check(message.token)
        if isinstance(found, Refused):
            self._refusal = challenge(found.status, found.scope)
            return Challenge(self._refusal.encode(), found.why)
        if message.authzid and message.authzid != found.principal_name:
            raise LoginRefused(OTHER_AUTHZID)
        return Proved(b"", Identity(f"User:{found.principal_name}", found.expires_ms))
