"""Sets of characters as Java's regular expressions name and combine them, and how Python and RE2 write them."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import Final

Characters = tuple[tuple[int, int], ...]
"""Ranges of code points, both ends included, in order and apart from each other."""

_LAST: Final = 0x10FFFF
_ASCII_LAST: Final = 0x7F


def of_ranges(ranges: Iterable[tuple[int, int]]) -> Characters:
    """The characters of ranges in any order, which may overlap."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        assert first <= last, "a range has a first and a last character"
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def of_text(text: Iterable[str]) -> Characters:
    """The characters of a text."""
    return of_ranges((ord(each), ord(each)) for each in text)


def union(one: Characters, other: Characters) -> Characters:
    """The characters in either set."""
    return of_ranges((*one, *other))


def complement(characters: Characters) -> Characters:
    """All other characters of Unicode."""
    found = []
    start = 0
    for first, last in characters:
        if first > start:
            found.append((start, first - 1))
        start = last + 1
    if start <= _LAST:
        found.append((start, _LAST))
    return tuple(found)


def intersection(one: Characters, other: Characters) -> Characters:
    """The characters in both sets."""
    return complement(union(complement(one), complement(other)))


def with_other_case(characters: Characters) -> Characters:
    """The set together with its ASCII letters in the other case, as the flag `i` reads it."""
    return union(characters, of_text(each.swapcase() for each in string.ascii_letters if _holds(characters, ord(each))))


def written(characters: Characters) -> str:
    """The set as a class of Python's and RE2's; an empty one matches nothing."""
    others = complement(characters)
    if not characters or 0 < len(others) < len(characters):
        return f"[^{_spans(others)}]"
    return f"[{_spans(characters)}]"


def _holds(characters: Characters, code: int) -> bool:
    return any(first <= code <= last for first, last in characters)


def _spans(characters: Characters) -> str:
    return "".join(_in_class(a) if a == b else f"{_in_class(a)}-{_in_class(b)}" for a, b in characters)


def _in_class(code: int) -> str:
    character = chr(code)
    if code <= _ASCII_LAST:
        return character if character.isalnum() else f"\\x{code:02x}"
    return character


def _members(*parts: str) -> Characters:
    return of_text("".join(parts))


ALL: Final = complement(())
LINE_ENDS: Final = _members("\n\r\x85\u2028\u2029")
_ASCII: Final = ((0, _ASCII_LAST),)
LETTERS: Final = _members(string.ascii_letters)
_SPACE: Final = _members(" \t\n\x0b\f\r")
_HORIZONTAL: Final = union(_members(" \t\xa0\u1680\u180e\u202f\u205f\u3000"), ((0x2000, 0x200A),))
_VERTICAL: Final = _members("\n\x0b\f\r\x85\u2028\u2029")

ESCAPED: Final = {
    "d": _members(string.digits),
    "w": _members(string.ascii_letters, string.digits, "_"),
    "s": _SPACE,
    "h": _HORIZONTAL,
    "v": _VERTICAL,
}
"""Classes by the letter of their escape; the capital letter is the rest."""

POSIX: Final = {
    "Lower": _members(string.ascii_lowercase),
    "Upper": _members(string.ascii_uppercase),
    "ASCII": _ASCII,
    "Alpha": LETTERS,
    "Digit": _members(string.digits),
    "Alnum": _members(string.ascii_letters, string.digits),
    "Punct": _members(string.punctuation),
    "Graph": ((0x21, 0x7E),),
    "Print": ((0x20, 0x7E),),
    "Blank": _members(" \t"),
    "Cntrl": ((0, 0x1F), (0x7F, 0x7F)),
    "XDigit": _members(string.hexdigits),
    "Space": _SPACE,
}
"""Classes of ASCII characters by the names that Java has for them in `\\p{...}`."""

ASCII_PART: Final = {
    "IsAlphabetic": LETTERS,
    "IsLetter": LETTERS,
    "IsDigit": POSIX["Digit"],
    "IsLowercase": POSIX["Lower"],
    "IsUppercase": POSIX["Upper"],
    "IsHex_Digit": POSIX["XDigit"],
    "IsWhite_Space": _SPACE,
    "IsControl": POSIX["Cntrl"],
    "IsLatin": LETTERS,
    "IsAssigned": _ASCII,
    "InBasicLatin": _ASCII,
    "InBASIC_LATIN": _ASCII,
    "javaLowerCase": POSIX["Lower"],
    "javaUpperCase": POSIX["Upper"],
    "javaAlphabetic": LETTERS,
    "javaLetter": LETTERS,
    "javaDigit": POSIX["Digit"],
    "javaLetterOrDigit": POSIX["Alnum"],
    "all": _ASCII,
    "L1": _ASCII,
    "LC": LETTERS,
    "LD": POSIX["Alnum"],
}
"""The ASCII characters of classes that hold others too, general categories aside."""

_MINOR: Final = {"L": "ultmo", "M": "nec", "N": "dlo", "P": "dsecoif", "S": "mcko", "Z": "slp", "C": "cfosn"}
_CATEGORIES: Final = frozenset(major + minor for major, minors in _MINOR.items() for minor in ("", *minors))
_CASED: Final = frozenset(
    {"Lower", "Upper", "IsLowercase", "IsUppercase", "javaLowerCase", "javaUpperCase", "Lu", "Ll", "Lt"}
)
"""With the flag `i` these are all letters."""


def property_named(name: str, *, of_ascii: bool, ignores_case: bool) -> Characters | None:
    """The characters of `\\p{name}`, where `name` may be `key=value`; None for one that is not known. With `of_ascii`
    also the ASCII part of classes of Unicode, for texts that hold no other character."""
    key, equals, value = name.partition("=")
    if equals:
        prefixes = {"sc": "Is", "script": "Is", "blk": "In", "block": "In", "gc": "", "general_category": ""}
        if key.lower() not in prefixes:
            return None
        name = prefixes[key.lower()] + value
    category = name.removeprefix("Is")
    is_category = of_ascii and category in _CATEGORIES
    found = POSIX.get(name)
    if found is None and of_ascii:
        found = _ascii_category(category) if is_category else ASCII_PART.get(name)
    if found is not None and ignores_case and (category if is_category else name) in _CASED:
        return LETTERS
    return found


@cache
def _ascii_category(category: str) -> Characters:
    return of_text(each for each in map(chr, range(_ASCII_LAST + 1)) if unicodedata.category(each).startswith(category))
