"""Regular expressions as Java reads them, for settings whose values are written for Java: translated to Python's.

The two differ in more than spelling: to Java `.` stops at five characters where Python stops at one, `$` looks past
another set of line ends, and `\\v` is a class. What Python has no equal of is refused by name (intersections and unions
of classes, Unicode properties, flags within a pattern), never read in another sense.

Strangers choose the texts that are matched, and a pattern with six stars takes the sixth power of a text's length to
fail, on the one thread that serves everybody. So google-re2 matches, whose time is linear; only what it has not
(looking around, back references, possessive and atomic groups, `(?i)`, whose sense of case is another) is left to
Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import re2

PATTERN_CHARACTERS_MAX: Final = 4_096

_LINE_ENDS: Final = "\n\r\x85\u2028\u2029"
_ANY: Final = f"[^{_LINE_ENDS}]"
_AT_END: Final = "(?:(?=(?:\r\n|[\r\x85\u2028\u2029])?\\Z)|(?<!\r)(?=\n\\Z))"
_HORIZONTAL: Final = " \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000"
_SPACE: Final = " \\t-\\r"
_VERTICAL: Final = "\n\x0b\x0c\r\x85\u2028\u2029"
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_CLASSES: Final = {"h": _HORIZONTAL, "v": _VERTICAL, "s": _SPACE, **{each: "\\" + each for each in "dDwW"}}
_OUTSIDE: Final = {"S": f"[^{_SPACE}]", "H": f"[^{_HORIZONTAL}]", "V": f"[^{_VERTICAL}]"}
_PROPERTIES: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": "\\x00-\\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": "!-/:-@\\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": " \\t",
    "Cntrl": "\\x00-\\x1f\\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": _SPACE,
}
_HEX: Final = re.compile(r"x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})")
_OCTAL: Final = re.compile(r"0([0-3][0-7]{2}|[0-7]{1,2})")
_PROPERTY: Final = re.compile(r"([pP])\{(\w+)\}")
_REPEAT: Final = re.compile(r"\{\d{1,6}(?:,\d{0,6})?\}")
_LEADING_FLAGS: Final = re.compile(r"\(\?([is]{1,2})\)")
_GROUP: Final = re.compile(r"\((?:\?(?:(?P<plain>:|=|!|<=|<!|>)|<(?P<name>[a-zA-Z][a-zA-Z0-9]*)>|(?P<flags>[is]+):))?")
_NAMED_REFERENCE: Final = re.compile(r"k<([a-zA-Z][a-zA-Z0-9]*)>")


_NOT_LINEAR: Final = re.compile(f"[\\ud800-\\udfff]|[{_LINE_ENDS}]\\Z")
"""Texts that RE2 cannot read, or whose end `$` sees otherwise: it looks past a last line end in Java."""


class JavaRegexError(ValueError):
    """A pattern that Java would refuse, or one that has no equal in Python. The text is one line."""


@dataclass(frozen=True)
class JavaPattern:
    """A pattern: `exact` in Python, and `linear` in RE2 where there is an equal one."""

    exact: re.Pattern[str]
    linear: re2._Regexp | None

    def is_whole(self, text: str) -> bool:
        """Whether it matches the whole text (Java's `matches`)."""
        return self._engine(text).fullmatch(text) is not None

    def replaced(self, text: str, replacement: Callable[[Any], str], *, once: bool = False) -> str:
        """The text with every match, or the first, replaced by what `replacement` makes of it (`replaceAll`)."""
        engine = self._engine(text)
        out: list[str] = []
        copied = at = 0
        while at <= len(text) and (match := engine.search(text, at)) is not None:
            out += (text[copied : match.start()], replacement(match))
            copied = match.end()
            at = copied if copied > match.start() else copied + 1
            if once:
                break
        out.append(text[copied:])
        return "".join(out)

    def _engine(self, text: str) -> Any:
        return self.exact if self.linear is None or _NOT_LINEAR.search(text) else self.linear


def ends_a_line(text: str) -> bool:
    """Whether a text ends with what Java takes for the end of a line: only Python matches those."""
    return text[-1:] in tuple(_LINE_ENDS)


def compiled(pattern: str) -> JavaPattern:
    """A pattern of Java's `Pattern.compile` without flags. Its groups keep their numbers and names. Raises
    JavaRegexError."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        raise JavaRegexError(f"a pattern of more than {PATTERN_CHARACTERS_MAX} characters")
    translation = _Translation(pattern)
    try:
        exact = re.compile(translation.whole(), re.ASCII | translation.flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise JavaRegexError(f"the pattern {pattern!r} is wrong: {error}") from None
    return JavaPattern(exact, _linear(_Translation(pattern, for_re2=True).whole()) if translation.is_linear else None)


def _linear(pattern: str) -> re2._Regexp | None:
    """A pattern in RE2; None where RE2 has no such."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError):
        return None


class _Translation:
    """A walk over a pattern, and what it is in Python, or in RE2 for texts that end no line."""

    def __init__(self, pattern: str, *, for_re2: bool = False) -> None:
        self.pattern = pattern
        self.is_linear = True
        very_end, self.end = ("\\z", "\\z") if for_re2 else ("\\Z", _AT_END)
        self.boundaries = {"b": "\\b", "B": "\\B", "A": "\\A", "z": very_end, "Z": self.end}
        self.at = 0
        self.flags = re.RegexFlag(0)
        self.groups = 0
        self.any = [_ANY]  # what `.` is, by how deep the groups around are

    def whole(self) -> str:
        leading = _LEADING_FLAGS.match(self.pattern)
        if leading is not None:
            self.at = leading.end()
            self._open(leading[1])
            if "i" in leading[1]:
                self.is_linear = False
                self.flags = re.IGNORECASE
        out = []
        while self.at < len(self.pattern):
            out.append(self._next())
        return "".join(out)

    def _refuse(self, what: str) -> JavaRegexError:
        return JavaRegexError(f"the pattern {self.pattern!r} is wrong, or too much like Java's: {what}")

    def _take(self) -> str:
        if self.at >= len(self.pattern):
            raise self._refuse("it ends early")
        self.at += 1
        return self.pattern[self.at - 1]

    def _open(self, flags: str) -> None:
        self.any.append("(?s:.)" if "s" in flags else self.any[-1])

    def _next(self) -> str:
        character = self._take()
        if character == ".":
            return self.any[-1]
        if character == "$":
            return self.end
        if character == "[":
            return self._class()
        if character == "(":
            return self._group()
        if character == ")":
            if len(self.any) > 1:
                self.any.pop()
            return ")"
        if character == "{":
            return self._repeat()
        if character == "\\":
            return self._escape()
        return character if character in "*+?|^" else re.escape(character)

    def _repeat(self) -> str:
        found = _REPEAT.match(self.pattern, self.at - 1)
        if found is None:
            raise self._refuse("{ repeats nothing")
        self.at = found.end()
        return found[0]

    def _group(self) -> str:
        found = _GROUP.match(self.pattern, self.at - 1)
        assert found is not None
        self.at = found.end()
        self._open(found["flags"] or "")
        if found["plain"]:
            self.is_linear &= found["plain"] == ":"
            return found[0]
        if found["flags"]:
            self.is_linear &= "i" not in found["flags"]
            return "(?i:" if "i" in found["flags"] else "(?:"
        if self.pattern.startswith("?", self.at):
            raise self._refuse("this kind of group, or flags within a pattern, cannot be translated")
        self.groups += 1
        return f"(?P<{found['name']}>" if found["name"] else "("

    def _escape(self) -> str:
        following = self.pattern[self.at : self.at + 1]
        if following == "Q":
            self.at += 1
            end = self.pattern.find("\\E", self.at)
            quoted = self.pattern[self.at : end if end >= 0 else None]
            self.at = end + 2 if end >= 0 else len(self.pattern)
            return re.escape(quoted)
        if following.isdecimal() and following in "123456789":
            return self._reference()
        if following in self.boundaries or following in _OUTSIDE:
            self.at += 1
            return self.boundaries.get(following) or _OUTSIDE[following]
        named = _NAMED_REFERENCE.match(self.pattern, self.at)
        if named is not None:
            self.at = named.end()
            self.is_linear = False
            return f"(?P={named[1]})"
        opposite = _PROPERTY.match(self.pattern, self.at)
        if opposite is not None and opposite[1] == "P" and opposite[2] in _PROPERTIES:
            self.at = opposite.end()
            return f"[^{_PROPERTIES[opposite[2]]}]"
        kind = self._kind()
        return f"[{kind}]" if kind is not None else re.escape(self._literal())

    def _reference(self) -> str:
        """A group by its number: as many digits as there are groups for."""
        self.is_linear = False
        number = int(self._take())
        while (digit := self.pattern[self.at : self.at + 1]).isdecimal() and digit.isascii():
            if number * 10 + int(digit) > self.groups:
                break
            number = number * 10 + int(self._take())
        if number > self.groups:
            raise self._refuse(f"there is no group {number} before \\{number}")
        return f"(?:\\{number})"

    def _kind(self) -> str | None:
        """The content of a class that an escape stands for, inside brackets or not."""
        kind = _CLASSES.get(self.pattern[self.at : self.at + 1])
        if kind is not None:
            self.at += 1
            return kind
        found = _PROPERTY.match(self.pattern, self.at)
        if found is None or found[1] == "P" or found[2] not in _PROPERTIES:
            return None
        self.at = found.end()
        return _PROPERTIES[found[2]]

    def _literal(self) -> str:
        """The one character that an escape stands for."""
        hexadecimal = _HEX.match(self.pattern, self.at)
        if hexadecimal is not None:
            self.at = hexadecimal.end()
            code = int(hexadecimal[1] or hexadecimal[2] or hexadecimal[3], 16)
            if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                raise self._refuse(f"there is no character {code:x}")
            return chr(code)
        octal = _OCTAL.match(self.pattern, self.at)
        if octal is not None:
            self.at = octal.end()
            return chr(int(octal[1], 8))
        character = self._take()
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character.isascii() and character.isalnum():
            raise self._refuse(f"\\{character} cannot be translated")
        return character

    def _class(self) -> str:
        negated = self.pattern.startswith("^", self.at)
        self.at += negated
        items: list[str] = []
        while (character := self._take()) != "]" or not items:
            if character in "[]" or (character == "&" and self.pattern.startswith("&", self.at)):
                raise self._refuse(f"{character} within a class must be escaped")
            if character == "\\":
                kind = self._kind()
                if kind is not None:
                    items.append(kind)
                    continue
                character = self._literal()
            items.append(self._range(character))
        return f"[{'^' if negated else ''}{''.join(items)}]"

    def _range(self, first: str) -> str:
        following = self.pattern[self.at : self.at + 2]
        if len(following) < 2 or following[0] != "-" or following[1] == "]":
            return _in_class(first)
        self.at += 1
        last = self._take()
        if last == "[":
            raise self._refuse("[ within a class must be escaped")
        if last == "\\":
            last = self._literal()
        return f"{_in_class(first)}-{_in_class(last)}"


def _in_class(character: str) -> str:
    return "\\" + character if character in "\\[]^-&~|" else character
