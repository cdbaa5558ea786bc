"""What a client of OAUTHBEARER says first (RFC 7628), and what a server answers to a token that it does not take.

n,[a=AUTHZID],^A auth=Bearer TOKEN ^A [key=value ^A]... ^A        where ^A is the byte 1
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Final

MESSAGE_BYTES_MAX: Final = 256 << 10
EXTENSIONS_MAX: Final = 64
SEPARATOR: Final = "\x01"
GOODBYE: Final = b"\x01"
"""What a client says once it has heard why its token is refused."""

_HEADER: Final = re.compile(r"n,(?:a=((?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01")
_PAIR: Final = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]+)")
_AUTH: Final = re.compile(r"(\w+) +([-_~+/.a-zA-Z0-9]+=*)", re.ASCII)


class MessageError(ValueError):
    """A message that is not as it should be. The text is one line and holds nothing of the message."""


@dataclass(frozen=True)
class FirstMessage:
    """A client's first message. `authzid` is empty where there is none; the token is not shown."""

    token: str = field(repr=False)
    authzid: str = ""
    extensions: tuple[tuple[str, str], ...] = ()


def first_message(data: bytes) -> FirstMessage:
    """Reads a client's first message. Raises MessageError."""
    if len(data) > MESSAGE_BYTES_MAX:
        raise MessageError(f"a first message of more than {MESSAGE_BYTES_MAX} bytes")
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        raise MessageError("a first message that is not ASCII") from None
    header = _HEADER.match(text)
    if header is None:
        raise MessageError("a first message that does not begin as one, or asks for channel binding")
    if not text.endswith(SEPARATOR * 2) or len(text) < header.end() + 2:
        raise MessageError("a first message that does not end as one")
    values: dict[str, str] = {}
    for piece in text[header.end() : -2].split(SEPARATOR, EXTENSIONS_MAX + 1):
        pair = _PAIR.fullmatch(piece)
        if pair is None or pair[1] in values or len(values) > EXTENSIONS_MAX:
            raise MessageError("a first message with a value that is wrong, or there twice")
        values[pair[1]] = pair[2]
    auth = _AUTH.fullmatch(values.pop("auth", ""))
    if auth is None or auth[1].lower() != "bearer":
        raise MessageError("a first message without a bearer token")
    authzid = (header[1] or "").replace("=2C", ",").replace("=3D", "=")
    return FirstMessage(auth[2], authzid, tuple(values.items()))


def challenge(status: str, scope: str | None) -> str:
    """The JSON in which a client hears that its token is refused."""
    members = {"status": status} if scope is None else {"status": status, "scope": scope}
    return json.dumps(members, separators=(",", ":"))
