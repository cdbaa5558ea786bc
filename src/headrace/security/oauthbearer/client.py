"""A client's side of OAUTHBEARER: it shows its token, and hears whether it is taken; and tokens of its own making that
nobody has signed, for tests and development.

Source: RFC 7628, KIP-255 (the JAAS options `unsecuredLogin...`).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.metadata.scram_credentials import Random
from headrace.security.login import Errand, LoginFailedError

from .messages import GOODBYE, MESSAGE_BYTES_MAX, SEPARATOR
from .server import OAUTHBEARER
from .unsecured import UnsecuredOptionsError

UNSECURED_PREFIX: Final = "unsecuredLogin"
UNSECURED_EXTENSION: Final = f"{UNSECURED_PREFIX}Extension_"
EXTENSION: Final = "extension_"
"""What extensions begin with in a JAAS line beside a token from elsewhere."""
LIFETIME_S: Final = 3600
_RESERVED_CLAIMS: Final = ("iat", "exp")
_TOKEN: Final = re.compile(r"[-_~+/.a-zA-Z0-9]+=*")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_DIGITS: Final = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True, slots=True)
class BearerCredentials:
    """Where a client's token comes from, asked at each login, and what it says beside it."""

    token: Callable[[], str] = field(repr=False)
    """Raises LoginFailedError, one line without the token."""
    extensions: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    mechanism: str = OAUTHBEARER
    waits: bool = False
    """`token` asks a server."""

    def begin(self, _random: Random, _host: str = "", /) -> OAuthBearerClient | Errand[OAuthBearerClient]:
        """A login begins. Raises LoginFailedError where no token is to be had."""
        return Errand(self._begun) if self.waits else self._begun()

    def _begun(self) -> OAuthBearerClient:
        return OAuthBearerClient(self.token(), self.extensions)


class OAuthBearerClient:
    """A client's side of a login: `first` says all, and a refusal is answered with a goodbye. Several connections may
    share it: no step depends on one before."""

    def __init__(self, token: str, extensions: tuple[tuple[str, str], ...] = ()) -> None:
        """Raises LoginFailedError for what cannot be a token."""
        if _TOKEN.fullmatch(token) is None or len(token) > MESSAGE_BYTES_MAX:
            raise LoginFailedError("what should be a token is none: it holds other characters, or too many")
        pairs = "".join(f"{name}={value}{SEPARATOR}" for name, value in extensions)
        self.is_done = False
        self._message = f"n,,{SEPARATOR}auth=Bearer {token}{SEPARATOR}{pairs}{SEPARATOR}".encode()

    def first(self) -> bytes:
        """What the client says first."""
        return self._message

    def respond(self, token: bytes) -> bytes:
        """Takes the server's answer: empty where it takes the token; else it fails the login once it hears this."""
        self.is_done = not token
        return GOODBYE if token else b""


def extensions_of(options: Mapping[str, str], prefix: str) -> tuple[tuple[str, str], ...]:
    """The extensions of a JAAS line. Raises UnsecuredOptionsError for what the message has no room for."""
    found = {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}
    for name, value in found.items():
        if _EXTENSION_NAME.fullmatch(name) is None or name == "auth" or _EXTENSION_VALUE.fullmatch(value) is None:
            raise UnsecuredOptionsError(f"{prefix}{name}: names are letters and not auth, values printable ASCII")
    return tuple(found.items())


def unsecured_token(options: Mapping[str, str], now_ms: int) -> str:
    """A token with the claims of a JAAS line, which nobody signs. `now_ms` is in ms since 1970.

    Raises UnsecuredOptionsError, one line.
    """
    lifetime = options.get(f"{UNSECURED_PREFIX}LifetimeSeconds", str(LIFETIME_S)).strip()
    if _DIGITS.fullmatch(lifetime) is None:
        raise UnsecuredOptionsError(f"{UNSECURED_PREFIX}LifetimeSeconds must be a number of seconds")
    claims: dict[str, Any] = {"iat": now_ms / 1000, "exp": now_ms / 1000 + int(lifetime)}
    for name, value in options.items():
        for kind, read in _CLAIMS.items():
            claim = name.removeprefix(f"{UNSECURED_PREFIX}{kind}Claim_")
            if claim == name or not claim:
                continue
            if claim in _RESERVED_CLAIMS:
                raise UnsecuredOptionsError(f"the claim {claim} cannot be given: it follows from the time")
            try:
                claims[claim] = read(value)
            except ValueError:
                raise UnsecuredOptionsError(f"{name} must be a number") from None
    principal = options.get(f"{UNSECURED_PREFIX}PrincipalClaimName", "").strip() or "sub"
    if not isinstance(claims.get(principal), str) or not claims[principal].strip():
        raise UnsecuredOptionsError(f'nobody is named: give {UNSECURED_PREFIX}StringClaim_{principal}="..."')
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def _part(value: dict[str, Any]) -> str:
    data = json.dumps(value, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _list(text: str) -> list[str]:
    """Reads a list whose first character is its separator."""
    return text[1:].split(text[0]) if len(text) > 1 else []


_CLAIMS: Final[Mapping[str, Callable[[str], Any]]] = {"String": str, "Number": float, "List": _list}
