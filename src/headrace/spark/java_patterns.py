"""Regular expressions of Java's, which `subscribePattern` has in every program, as ones of Python's.

What Python writes in another way is translated, what it cannot do is refused, and nothing is taken for something else.
Names of topics are ASCII (letters, digits, `.`, `_`, `-`), so that a class of characters is the ASCII characters in it.
Source: java.util.regex.Pattern.
"""

from __future__ import annotations

import re
import string
import unicodedata
from typing import Final

_ALL: Final = frozenset(map(chr, range(128)))
_LOWER: Final = frozenset(string.ascii_lowercase)
_UPPER: Final = frozenset(string.ascii_uppercase)
_LETTERS: Final = _LOWER | _UPPER
_DIGITS: Final = frozenset(string.digits)
_PUNCTUATION: Final = frozenset(string.punctuation)
_CONTROL: Final = frozenset(map(chr, [*range(32), 127]))
_SPACE: Final = frozenset(" \t\n\x0b\f\r")

_ESCAPED_CLASSES: Final = {
    "d": _DIGITS, "w": _LETTERS | _DIGITS | {"_"}, "s": _SPACE, "h": frozenset(" \t"), "v": frozenset("\n\x0b\f\r"),
}  # fmt: skip
"""Of `\\d` and so on; the large letter is the rest."""
_ESCAPED_CHARACTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_ANCHORS: Final = {"A": r"\A", "Z": r"\Z", "z": r"\Z", "b": r"\b", "B": r"\B"}

_PROPERTIES: Final = {
    "Lower": _LOWER, "Upper": _UPPER, "ASCII": _ALL, "Alpha": _LETTERS, "Digit": _DIGITS, "Alnum": _LETTERS | _DIGITS,
    "Punct": _PUNCTUATION, "Graph": _LETTERS | _DIGITS | _PUNCTUATION,
    "Print": _LETTERS | _DIGITS | _PUNCTUATION | {" "}, "Blank": frozenset(" \t"), "Cntrl": _CONTROL,
    "XDigit": frozenset(string.hexdigits), "Space": _SPACE, "IsAlphabetic": _LETTERS, "IsLetter": _LETTERS,
    "IsDigit": _DIGITS, "IsLowercase": _LOWER, "IsUppercase": _UPPER, "IsHex_Digit": frozenset(string.hexdigits),
    "IsWhite_Space": _SPACE, "IsControl": _CONTROL, "IsLatin": _LETTERS, "IsAssigned": _ALL, "InBasicLatin": _ALL,
    "InBASIC_LATIN": _ALL, "javaLowerCase": _LOWER, "javaUpperCase": _UPPER, "javaAlphabetic": _LETTERS,
    "javaLetter": _LETTERS, "javaDigit": _DIGITS, "javaLetterOrDigit": _LETTERS | _DIGITS, "all": _ALL, "L1": _ALL,
    "LC": _LETTERS, "LD": _LETTERS | _DIGITS,
}  # fmt: skip
"""Classes by the names that Java has for them, general categories aside."""
_MINOR: Final = {"L": "ultmo", "M": "nec", "N": "dlo", "P": "dsecoif", "S": "mcko", "Z": "slp", "C": "cfosn"}
_CATEGORIES: Final = frozenset(major + minor for major, minors in _MINOR.items() for minor in ("", *minors))
_CASED: Final = frozenset({"Lower", "Upper", "IsLowercase", "IsUppercase", "javaLowerCase", "javaUpperCase"})
"""With the flag `i` these are all letters, and so are the categories Lu, Ll and Lt."""

_FLAGS: Final = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_KEPT_FLAGS: Final = "ims"
_EMPTY_FLAGS: Final = "duU"
"""They say which line ends and which letters beyond ASCII there are; a topic's name has none."""

Characters = frozenset[str]


def to_python(pattern: str) -> str:
    """The expression for Python's `re`. Raises ValueError, with a reason, for what cannot be taken over."""
    translated = _Translation(pattern).run()
    try:
        re.compile(translated)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return translated


class _Translation:
    """One pass over a pattern."""

    def __init__(self, pattern: str) -> None:
        self.text = pattern
        self.at = 0
        self.ignores_case = False
        """From the start on, for the whole."""
        self.ignores_case_in_part = False

    def run(self) -> str:
        """All of it, translated."""
        found = [self._leading_flags()]
        while self.at < len(self.text):
            found.append(self._next())
        return "".join(found)

    # -- what stands outside of classes

    def _next(self) -> str:
        letter = self._take()
        if letter == "\\":
            return self._escape()
        if letter == "[":
            return _written(self._class())
        if letter == "(" and self.text[self.at : self.at + 1] == "?":
            return self._group()
        return letter

    def _take(self) -> str:
        if self.at >= len(self.text):
            raise ValueError("it ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def _leading_flags(self) -> str:
        kept = ""
        while (found := _FLAGS.match(self.text, self.at)) and found[3] == ")" and found[2] is None:
            self._check_flags(found[1])
            kept += "".join(flag for flag in found[1] if flag in _KEPT_FLAGS)
            self.at = found.end()
        self.ignores_case = "i" in kept
        return f"(?{kept})" if kept else ""

    def _check_flags(self, flags: str) -> None:
        for flag in flags:
            if flag not in _KEPT_FLAGS + _EMPTY_FLAGS:
                raise ValueError(f"the flag {flag!r} is not supported")

    def _group(self) -> str:
        rest = self.text[self.at :]
        if rest.startswith("?<") and rest[2:3] not in ("=", "!"):
            self.at += 2
            return "(?P<"
        found = _FLAGS.match(self.text, self.at - 1)
        if found is None:
            if rest[1:2] not in ("=", "!", ">", "<", "P"):
                raise ValueError(f"the group ({rest[:2]} is not supported")
            # look-around and atomic groups are written as in Java
            self.at += 1
            return "(?"
        on, off = found[1], found[2] or ""
        self._check_flags(on + off)
        if found[3] == ")":
            raise ValueError(f"the flags {found[0]} are inside; put them at the beginning, or give them a colon")
        if self.ignores_case and "i" in on + off:
            raise ValueError("a flag 'i' for the whole and one for a part of the pattern are not supported together")
        self.ignores_case_in_part |= "i" in on + off
        self.at = found.end()
        on = "".join(flag for flag in on if flag in _KEPT_FLAGS)
        off = "".join(flag for flag in off if flag in _KEPT_FLAGS)
        return f"(?{on}{'-' + off if off else ''}:"

    def _escape(self) -> str:
        letter = self._take()
        if letter == "Q":
            return re.escape(self._quoted())
        if letter in _ANCHORS:
            if letter == "b" and self.text.startswith("{", self.at):
                raise ValueError(r"\b{...} is not supported")
            return _ANCHORS[letter]
        if letter == "R":
            return r"(?:\r\n|[\n\x0b\f\r])"
        if letter == "k":
            found = re.compile("<([a-zA-Z][a-zA-Z0-9]*)>").match(self.text, self.at)
            if found is None:
                raise ValueError(r"\k needs the name of a group, as in \k<name>")
            self.at = found.end()
            return f"(?P={found[1]})"
        if letter in "123456789":
            if self.text[self.at : self.at + 1].isdigit():
                raise ValueError(r"a reference to a group of more than one digit is not supported")
            return f"(?:\\{letter})"
        characters = self._characters(letter)
        return re.escape(characters) if isinstance(characters, str) else _written(characters)

    def _quoted(self) -> str:
        """What stands between \\Q and \\E, which may be left out at the end."""
        end = self.text.find("\\E", self.at)
        end = len(self.text) if end < 0 else end
        quoted = self.text[self.at : end]
        self.at = end + 2
        return quoted

    # -- escapes that mean the same in a class and outside

    def _characters(self, letter: str) -> str | Characters:
        """What an escape stands for: one character, or any of several."""
        if letter.lower() in _ESCAPED_CLASSES:
            inside = _ESCAPED_CLASSES[letter.lower()]
            return inside if letter.islower() else _ALL - inside
        if letter in "pP":
            inside = self._property()
            if letter == "P":
                self._refuse_ignored_case("\\P")
                return _ALL - inside
            return inside
        if letter in _ESCAPED_CHARACTERS:
            return _ESCAPED_CHARACTERS[letter]
        if letter in "xu":
            wanted = r"\{([0-9a-fA-F]{1,6})\}|([0-9a-fA-F]{2})" if letter == "x" else "([0-9a-fA-F]{4})"
            return self._code(letter, wanted, 16)
        if letter == "0":
            return self._code(letter, "([0-3]?[0-7]{1,2})", 8)
        if letter == "c":
            return chr(ord(self._take()) ^ 64)
        if letter.isalnum():
            raise ValueError(f"\\{letter} is not supported")
        return letter

    def _code(self, letter: str, wanted: str, base: int) -> str:
        found = re.compile(wanted).match(self.text, self.at)
        if found is None:
            raise ValueError(f"\\{letter} is followed by no number")
        self.at = found.end()
        code = int(next(filter(None, found.groups())), base)
        if code > 0x10FFFF:
            raise ValueError(f"\\{letter} is followed by a number that is no character's")
        return chr(code)

    def _property(self) -> Characters:
        """The characters of what follows \\p: {Name}, {key=Name} or a single letter."""
        name = self._take()
        if name == "{":
            end = self.text.find("}", self.at)
            if end < 0:
                raise ValueError(r"\p{ is not closed")
            name, self.at = self.text[self.at : end], end + 1
        key, equals, value = name.partition("=")
        if equals:
            prefixes = {"sc": "Is", "script": "Is", "blk": "In", "block": "In", "gc": "", "general_category": ""}
            if key.lower() not in prefixes:
                raise ValueError(f"\\p{{{name}}} is not known")
            name = prefixes[key.lower()] + value
        category = name.removeprefix("Is") if name.removeprefix("Is") in _CATEGORIES else None
        if self.ignores_case and (name in _CASED or category in ("Lu", "Ll", "Lt")):
            return _LETTERS
        if self.ignores_case_in_part and (name in _CASED or category in ("Lu", "Ll", "Lt")):
            raise ValueError(f"\\p{{{name}}} beside a flag 'i' for a part of the pattern is not supported")
        if category is not None:
            return frozenset(each for each in _ALL if unicodedata.category(each).startswith(category))
        if name not in _PROPERTIES:
            raise ValueError(f"\\p{{{name}}} is not known")
        return _PROPERTIES[name]

    # -- classes

    def _class(self) -> Characters:
        """What stands behind a [, up to its ]: items side by side, other classes among them, and && between."""
        negated = self.text.startswith("^", self.at)
        if negated:
            self._take()
            self._refuse_ignored_case("[^")
        found = self._items()
        while self.text.startswith("&&", self.at):
            self._refuse_ignored_case("&&")
            self.at += 2
            found &= self._items()
        self._take()
        return _ALL - found if negated else found

    def _items(self) -> Characters:
        found: Characters = frozenset()
        start = self.at
        while True:
            if self.at >= len(self.text):
                raise ValueError("a [ is not closed")
            if self.text.startswith("&&", self.at) or self.text[self.at] == "]":
                break
            found |= self._item()
        if self.at == start:
            raise ValueError("a class of characters, or a side of && in it, is empty; write a ] in it as \\]")
        return found

    def _item(self) -> Characters:
        letter = self._take()
        if letter == "[":
            return self._class()
        one: str | Characters = letter
        if letter == "\\":
            letter = self._take()
            if letter == "Q":
                return self._cased(frozenset(self._quoted()))
            if letter in _ANCHORS or letter in "Rk" or letter in "123456789":
                raise ValueError(f"\\{letter} in a class of characters is not supported")
            one = self._characters(letter)
        if not isinstance(one, str):
            return one
        following = self.text[self.at : self.at + 2]
        if following[:1] != "-" or following[1:2] in ("]", "[", "") or self.text.startswith("-&&", self.at):
            return self._cased(frozenset(one))
        self._take()
        last: str | Characters = self._take()
        if last == "\\":
            last = self._characters(self._take())
        if not isinstance(last, str) or last < one:
            raise ValueError(f"a range in a class of characters that begins with {one!r} has no end")
        return self._cased(frozenset(each for each in _ALL if one <= each <= last))

    def _cased(self, characters: Characters) -> Characters:
        if not self.ignores_case:
            return characters
        return characters | {each.swapcase() for each in characters & _LETTERS}

    def _refuse_ignored_case(self, what: str) -> None:
        if self.ignores_case_in_part:
            raise ValueError(f"{what} beside a flag 'i' for a part of the pattern is not supported")


def _written(characters: Characters) -> str:
    """A class of Python's; one of none matches nothing, as in Java."""
    inside = sorted(map(ord, characters & _ALL))
    if not inside:
        return "(?!)"
    ranges: list[list[int]] = []
    for code in inside:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    spans = (f"\\x{first:02x}-\\x{last:02x}" for first, last in ranges)
    return f"[{''.join(spans)}]"
