"""Whose keys are in a keytab, as MIT's and Heimdal's libraries write it. The keys themselves are passed over.

A file begins with 5 and 2. An entry is its size (4 bytes, big-endian as all numbers; a negative one is that of a hole,
0 is the end) and then: how many components the principal has (2), the realm and each component behind their sizes (2),
what kind of name it is (4), a time (4), the number of the key (1), the key's kind (2), and the key behind its size (2).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

KEYTAB_BYTES_MAX: Final = 1 << 20
"""The largest keytab that is read: a key has some 80 bytes."""
_MAGIC: Final = b"\x05\x02"
_OLD_MAGIC: Final = b"\x05\x01"
_AFTER_NAMES: Final = 4 + 4 + 1 + 2
"""The kind of name, the time, and the number and kind of the key."""
_ESCAPED: Final = {"n": "\n", "t": "\t", "b": "\b", "0": "\0"}
_CUT_SHORT: Final = "it is damaged or cut short: make it again"


class KeytabError(ValueError):
    """Bytes that are no keytab, or a principal that is none: the end of one line, which shows no key."""


class Principal(NamedTuple):
    """`kafka/host@REALM`; without `realm` it is one of the library's own realm."""

    components: tuple[str, ...]
    realm: str | None

    def is_named(self, named: Principal) -> bool:
        """Whether this one of a keytab is the one that somebody names."""
        return self.components == named.components and named.realm in (None, self.realm)

    def __str__(self) -> str:
        name = "/".join(map(_escaped, self.components))
        return name if self.realm is None else f"{name}@{_escaped(self.realm)}"


def principals(data: bytes) -> tuple[Principal, ...]:
    """Each whose keys the file has, once. Raises KeytabError."""
    if data[:2] == _OLD_MAGIC:
        raise KeytabError("it is of the old form, 5.1, which is not read here: make it again")
    if data[:2] != _MAGIC:
        raise KeytabError("it is no keytab")
    if len(data) > KEYTAB_BYTES_MAX:
        raise KeytabError(f"it is longer than {KEYTAB_BYTES_MAX} bytes: that is no keytab")
    return tuple(dict.fromkeys(_principals(data)))


def principal_of(text: str) -> Principal:
    """A principal as a JAAS line writes it: a backslash takes the meaning from a slash or an at sign. Raises
    KeytabError."""
    parts, realm_at = [""], 0
    at = iter(text)
    for character in at:
        if character == "\\":
            following = next(at, None)
            if following is None:
                raise KeytabError(f"{text} ends with a backslash")
            parts[-1] += _ESCAPED.get(following, following)
        elif character == "/" and not realm_at:
            parts.append("")
        elif character == "@":
            if realm_at:
                raise KeytabError(f"{text} names two realms")
            realm_at = len(parts)
            parts.append("")
        else:
            parts[-1] += character
    return Principal(tuple(parts[:realm_at]), parts[-1]) if realm_at else Principal(tuple(parts), None)


def _principals(data: bytes) -> Iterator[Principal]:
    at = len(_MAGIC)
    while at + 4 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        if size == 0:
            return
        at += 4
        end = at + abs(size)
        if end > len(data):
            raise KeytabError(_CUT_SHORT)
        if size > 0:
            yield _principal(data[at:end])
        at = end


def _principal(entry: bytes) -> Principal:
    count, at = _number(entry, 0)
    names = []
    for _ in range(count + 1):
        size, at = _number(entry, at)
        if at + size > len(entry):
            raise KeytabError(_CUT_SHORT)
        names.append(entry[at : at + size].decode("utf-8", "replace"))
        at += size
    size, at = _number(entry, at + _AFTER_NAMES)
    if at + size > len(entry):
        raise KeytabError(_CUT_SHORT)
    return Principal(tuple(names[1:]), names[0])


def _number(entry: bytes, at: int) -> tuple[int, int]:
    """A number of two bytes, and what comes after it."""
    if at + 2 > len(entry):
        raise KeytabError(_CUT_SHORT)
    return int.from_bytes(entry[at : at + 2], "big"), at + 2


def _escaped(text: str) -> str:
    for character in "\\/@":
        text = text.replace(character, "\\" + character)
    for letter, meant in _ESCAPED.items():
        text = text.replace(meant, "\\" + letter)
    return text
