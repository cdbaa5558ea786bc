"""What a checked token says, why another is refused, and how the parts of a token are read (RFC 7515, RFC 7519)."""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

TOKEN_CHARACTERS_MAX: Final = 128 << 10
"""The longest token that is read: eight times what servers of the web take in a header."""
EXPIRES_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999; a token that lasts longer ends then."""
INVALID_TOKEN: Final = "invalid_token"
INSUFFICIENT_SCOPE: Final = "insufficient_scope"

_BLANK: Final = "".join(map(chr, range(0x21)))
"""What Java's `trim` cuts off."""
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*")

Json = dict[str, Any]


@dataclass(frozen=True)
class Accepted:
    """A good token: the principal's name without its type, when the token ends and began (ms since 1970), its scope."""

    principal_name: str
    expires_ms: int
    started_ms: int | None
    scope: frozenset[str]


@dataclass(frozen=True)
class Refused:
    """A token that is not taken. `why` is for the broker's log; a client hears `status` and `scope` alone.

    `unknown_key` is the key id of a token that none of the keys known has signed: a reason to fetch them again.
    """

    why: str
    status: str = INVALID_TOKEN
    scope: str | None = None
    unknown_key: str | None = None


class TokenError(ValueError):
    """A token that cannot be taken; becomes Refused. The text is one line and holds no part of the token."""


def parts(token: str) -> list[str]:
    """The three parts of a token in compact form. Raises TokenError."""
    if len(token) > TOKEN_CHARACTERS_MAX:
        raise TokenError(f"a token of more than {TOKEN_CHARACTERS_MAX} characters")
    found = token.split(".", 3)
    if len(found) != 3:
        raise TokenError("a token that has not three parts")
    return found


def decoded(part: str) -> bytes:
    """Base64 for addresses, without padding. Raises TokenError."""
    if _BASE64URL.fullmatch(part) is None:
        raise TokenError("a part of the token is not base64url")
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        raise TokenError("a part of the token is not base64url") from None


def json_object(data: bytes) -> Json:
    """A JSON object whose members have names of their own. Raises TokenError."""
    try:
        read = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except TokenError:
        raise
    except (ValueError, RecursionError):
        raise TokenError("what should be a JSON object is none") from None
    if not isinstance(read, dict):
        raise TokenError("what should be a JSON object is none")
    return read


def _unique(pairs: Iterable[tuple[str, Any]]) -> Json:
    found: Json = {}
    for name, value in pairs:
        if name in found:
            raise TokenError("a JSON object has a member twice")
        found[name] = value
    return found


def _no_constant(name: str) -> Any:
    raise TokenError(f"{name} is no number in JSON")


def number(claims: Json, name: str) -> int | float | None:
    """A claim that is a finite number, or None where it is missing. Raises TokenError."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(_as_float(value)):
        raise TokenError(f"the claim {name} is no number")
    return value


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def trimmed(value: Any, name: str) -> str:
    """A claim that is a text with something in it, without the blanks around it. Raises TokenError."""
    if value is None:
        raise TokenError(f"the claim {name} is missing")
    if not isinstance(value, str):
        raise TokenError(f"the claim {name} is no text")
    text = value.strip(_BLANK)
    if not text:
        raise TokenError(f"the claim {name} is empty")
    return text


def is_blank(text: str) -> bool:
    """Whether a text holds nothing, to Java."""
    return not text.strip(_BLANK)


def ms_of(seconds: float) -> int:
    """Seconds of a claim as milliseconds, within what a session's end may be."""
    if seconds * 1000 >= EXPIRES_MS_MAX:
        return EXPIRES_MS_MAX
    return max(math.floor(seconds * 1000 + 0.5), 0)
