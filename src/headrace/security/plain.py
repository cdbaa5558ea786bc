"""PLAIN: a client sends its name and password, and the server compares.

The server's JAAS line lists users as `user_<name>="<password>"`. Source: RFC 4616, KIP-43.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from headrace.security.login import OTHER_AUTHZID, Identity, LoginFailedError, LoginRefused, LoginStep, Proved

PLAIN: Final = "PLAIN"
USER_PREFIX: Final = "user_"
WRONG: Final = "Authentication failed: Invalid username or password"
_TOKENS: Final = 3


class PlainUsers:
    """The names and passwords of a JAAS line, kept as digests of one length."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._digests = {
            name.removeprefix(USER_PREFIX): _digest(password)
            for name, password in options.items()
            if name.startswith(USER_PREFIX)
        }

    def __repr__(self) -> str:
        return f"PlainUsers({len(self._digests)})"

    def is_password_of(self, name: str, password: str) -> bool:
        """Whether that is the user's password: the same work for a user that is not there, and for any length."""
        expected = self._digests.get(name)
        is_equal = hmac.compare_digest(_digest(password), expected if expected is not None else _NOBODYS)
        return is_equal and expected is not None


def _digest(password: str) -> bytes:
    return hashlib.sha256(password.encode()).digest()


_NOBODYS: Final = _digest("")


class PlainServer:
    """A server's side of one login."""

    def __init__(self, users: PlainUsers) -> None:
        self._users = users
        self.claimed = ""

    def respond(self, token: bytes) -> LoginStep:
        """See login.ServerLogin."""
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise LoginFailedError("a PLAIN message is not UTF-8") from None
        if len(parts) != _TOKENS:
            raise LoginRefused(f"Invalid SASL/PLAIN response: expected {_TOKENS} tokens, got {len(parts)}")
        authzid, name, password = parts
        if not name:
            raise LoginRefused("Authentication failed: username not specified")
        self.claimed = f"User:{name}"
        if not password:
            raise LoginRefused("Authentication failed: password not specified")
        is_good = self._users.is_password_of(name, password)
        if not is_good:
            raise LoginRefused(WRONG)
        if authzid and authzid != name:
            raise LoginRefused(OTHER_AUTHZID)
        return Proved(b"", Identity(f"User:{name}"))


class PlainClient:
    """A client's side of one login: `first` says all."""

    def __init__(self, name: str, password: str) -> None:
        self.is_done = False
        self._message = f"\0{name}\0{password}".encode()

    def first(self) -> bytes:
        """What the client says first."""
        return self._message

    def respond(self, token: bytes) -> bytes:
        """Takes the server's answer, which is empty. Raises LoginFailedError."""
        if token:
            raise LoginFailedError("a server of PLAIN has nothing to say")
        self.is_done = True
        return b""
