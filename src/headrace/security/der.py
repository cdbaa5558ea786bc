"""A reader of DER (ITU-T X.690), as far as certificates and key stores need it: elements by position, nothing copied.

Only definite lengths and tags of one byte are read; all else is a DerError. Positions are checked against the end of
what holds an element, so no length that is claimed is believed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

INTEGER: Final = 0x02
OCTET_STRING: Final = 0x04
OBJECT_IDENTIFIER: Final = 0x06
SEQUENCE: Final = 0x30
SET: Final = 0x31

ARC_BITS_MAX: Final = 256
"""One number of an object identifier: UUIDs, which are the largest in use, have 128."""
LENGTH_BYTES_MAX: Final = 4


class DerError(ValueError):
    """Bytes that are not DER, or not the DER that was expected."""


class Element(NamedTuple):
    """Where an element lies: its tag, and the positions of its first byte, its content, and what comes after it."""

    tag: int
    start: int
    body: int
    end: int


def element(data: bytes, at: int = 0, end: int | None = None) -> Element:
    """The element at `at`, which must lie before `end`. Raises DerError."""
    limit = len(data) if end is None else end
    if at + 2 > limit:
        raise DerError("an element ends early")
    tag, length, body = data[at], data[at + 1], at + 2
    if tag & 0x1F == 0x1F:
        raise DerError("a tag of several bytes")
    if length >= 0x80:
        size = length & 0x7F
        if not 1 <= size <= LENGTH_BYTES_MAX or body + size > limit:
            raise DerError("a length that is not definite")
        length = int.from_bytes(data[body : body + size], "big")
        body += size
    if length > limit - body:
        raise DerError("an element is longer than what holds it")
    return Element(tag, at, body, body + length)


def whole(data: bytes, tag: int) -> Element:
    """The one element that `data` consists of. Raises DerError where it has another tag or something follows it."""
    found = element(data)
    if found.tag != tag or found.end != len(data):
        raise DerError("not the one element that was expected")
    return found


def children(data: bytes, parent: Element) -> list[Element]:
    """The elements in a constructed one. Raises DerError."""
    found = []
    at = parent.body
    while at < parent.end:
        each = element(data, at, parent.end)
        found.append(each)
        at = each.end
    return found


def content(data: bytes, of: Element) -> bytes:
    """The content of an element."""
    return data[of.body : of.end]


def raw(data: bytes, of: Element) -> bytes:
    """An element with its tag and length."""
    return data[of.start : of.end]


def object_identifier(data: bytes, of: Element) -> str:
    """An object identifier with dots. Raises DerError."""
    body = content(data, of)
    if of.tag != OBJECT_IDENTIFIER or not body or body[-1] & 0x80:
        raise DerError("not an object identifier")
    arcs: list[int] = []
    arc = 0
    for byte in body:
        arc = arc << 7 | byte & 0x7F
        if arc.bit_length() > ARC_BITS_MAX:
            raise DerError("an object identifier of a number too large")
        if not byte & 0x80:
            arcs.append(arc)
            arc = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(str(each) for each in (first, arcs[0] - 40 * first, *arcs[1:]))
