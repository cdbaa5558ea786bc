"""Regular expressions as Java reads them, for settings and options whose values are written for Java: translated to
Python's. Source: java.util.regex.Pattern.

The two differ in more than spelling: to Java `.` stops at five characters where Python stops at one, `$` looks past
another set of line ends, `\\v` is a class, and classes have unions and intersections. A pattern without an equal in
Python is refused by name, never read in another sense.

Clients choose the texts that a broker matches, and a pattern with six stars takes the sixth power of a text's length to
fail, on the one thread that serves all of them. So google-re2 matches, whose time is linear; only what it does not have
(looking around, back references, possessive and atomic groups, `(?i)`, whose sense of case is another) is left to
Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .java_characters import (
    ESCAPED,
    LINE_ENDS,
    Characters,
    complement,
    intersection,
    of_ranges,
    of_text,
    property_named,
    union,
    with_other_case,
    written,
)

if TYPE_CHECKING:
    import re2

PATTERN_CHARACTERS_MAX: Final = 4_096

_LINE_ENDS: Final = "\n\r\x85\u2028\u2029"
_ANY: Final = written(complement(LINE_ENDS))
_AT_END: Final = "(?:(?=(?:\r\n|[\r\x85\u2028\u2029])?\\Z)|(?<!\r)(?=\n\\Z))"
_LINE_BREAK: Final = "(?:\r\n|[\n\x0b\x0c\r\x85\u2028\u2029])"
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_HEX: Final = re.compile(r"x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})")
_OCTAL: Final = re.compile(r"0([0-3][0-7]{2}|[0-7]{1,2})")
_PROPERTY: Final = re.compile(r"[pP](?:\{([\w=]+)\}|([a-zA-Z]))")
_REPEAT: Final = re.compile(r"\{\d{1,6}(?:,\d{0,6})?\}")
_FLAGS: Final = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_GROUP: Final = re.compile(r"\((?:\?(?:(?P<plain>=|!|<=|<!|>)|<(?P<name>[a-zA-Z][a-zA-Z0-9]*)>))?")
_NAMED_REFERENCE: Final = re.compile(r"k<([a-zA-Z][a-zA-Z0-9]*)>")
_KEPT_FLAGS: Final = "is"
_EMPTY_FLAGS: Final = "dmuU"
"""They define lines and letters beyond ASCII: without effect on one line of ASCII."""


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
        exact = re.compile(translation.whole(), re.ASCII)
    except JavaRegexError as error:
        raise JavaRegexError(f"the pattern {pattern!r} is wrong, or too much like Java's: {error}") from None
    except (re.error, OverflowError, RecursionError) as error:
        raise JavaRegexError(f"the pattern {pattern!r} is wrong: {error}") from None
    return JavaPattern(exact, _linear(_Translation(pattern, for_re2=True).whole()) if translation.is_linear else None)


def for_ascii(pattern: str) -> str:
    """The pattern for Python's `re` and texts of one line in ASCII, such as names of topics: also classes of Unicode
    have a meaning for those. Raises JavaRegexError, whose text is the reason alone."""
    translated = _Translation(pattern, of_ascii=True).whole()
    try:
        re.compile(translated)
    except (re.error, OverflowError, RecursionError) as error:
        raise JavaRegexError(str(error)) from None
    return translated


def _linear(pattern: str) -> re2._Regexp | None:
    """A pattern in RE2; None where RE2 has no such."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError):
        return None


@dataclass(frozen=True)
class _Scope:
    """The flags in force within a group."""

    ignores_case: bool = False
    dot_is_all: bool = False

    def changed(self, on: str, off: str) -> _Scope:
        return _Scope(
            (self.ignores_case or "i" in on) and "i" not in off, (self.dot_is_all or "s" in on) and "s" not in off
        )


class _Translation:
    """A walk over a pattern, and what it is in Python, or in RE2 for texts that end no line. Its methods raise
    JavaRegexError."""

    def __init__(self, pattern: str, *, for_re2: bool = False, of_ascii: bool = False) -> None:
        self.pattern = pattern
        self.of_ascii = of_ascii
        self.is_linear = True
        very_end, self.end = ("\\z", "\\z") if for_re2 else ("\\Z", _AT_END)
        self.boundaries = {"b": "\\b", "B": "\\B", "A": "\\A", "z": very_end, "Z": self.end}
        self.at = 0
        self.groups = 0
        self.scopes = [_Scope()]  # of the groups around

    def whole(self) -> str:
        out = [self._leading_flags()]
        while self.at < len(self.pattern):
            out.append(self._next())
        return "".join(out)

    def _leading_flags(self) -> str:
        while (found := _FLAGS.match(self.pattern, self.at)) and found[3] == ")" and found[2] is None:
            self._check_flags(found[1])
            self.scopes[0] = self.scopes[0].changed(found[1], "")
            self.at = found.end()
        if not self.scopes[0].ignores_case:
            return ""
        self.is_linear = False
        return "(?i)"

    def _check_flags(self, flags: str) -> None:
        for flag in flags:
            if flag not in _KEPT_FLAGS + (_EMPTY_FLAGS if self.of_ascii else ""):
                raise JavaRegexError(f"the flag {flag!r} is not supported")

    def _take(self) -> str:
        if self.at >= len(self.pattern):
            raise JavaRegexError("it ends too early")
        self.at += 1
        return self.pattern[self.at - 1]

    def _next(self) -> str:
        character = self._take()
        if character == ".":
            return "(?s:.)" if self.scopes[-1].dot_is_all else _ANY
        if character == "$":
            return self.end
        if character == "[":
            return written(self._class())
        if character == "(":
            return self._group()
        if character == ")":
            if len(self.scopes) > 1:
                self.scopes.pop()
            return ")"
        if character == "{":
            return self._repeat()
        if character == "\\":
            return self._escape()
        return character if character in "*+?|^" else re.escape(character)

    def _repeat(self) -> str:
        found = _REPEAT.match(self.pattern, self.at - 1)
        if found is None:
            raise JavaRegexError("{ repeats nothing")
        self.at = found.end()
        return found[0]

    def _group(self) -> str:
        flags = _FLAGS.match(self.pattern, self.at - 1)
        if flags is not None:
            return self._group_with_flags(flags)
        found = _GROUP.match(self.pattern, self.at - 1)
        assert found is not None, "every ( begins a group"
        self.at = found.end()
        self.scopes.append(self.scopes[-1])
        if found["plain"]:
            self.is_linear = False
            return found[0]
        if self.pattern.startswith("?", self.at):
            raise JavaRegexError(f"the group ({self.pattern[self.at : self.at + 2]} is not supported")
        self.groups += 1
        return f"(?P<{found['name']}>" if found["name"] else "("

    def _group_with_flags(self, found: re.Match[str]) -> str:
        on, off = found[1], found[2] or ""
        self._check_flags(on + off)
        if found[3] == ")":
            raise JavaRegexError(f"the flags {found[0]} are inside; put them at the beginning, or give them a colon")
        self.at = found.end()
        self.scopes.append(self.scopes[-1].changed(on, off))
        if "i" not in on + off:
            return "(?:"
        self.is_linear = False
        return "(?i:" if self.scopes[-1].ignores_case else "(?-i:"

    # -- escapes

    def _escape(self) -> str:
        letter = self.pattern[self.at : self.at + 1]
        if letter == "Q":
            self.at += 1
            return re.escape(self._quoted())
        if letter.isascii() and letter.isdecimal() and letter != "0":
            return self._reference()
        if letter in ("b", "k") or letter in self.boundaries or letter == "R":
            return self._named_escape(letter)
        found = self._characters()
        return re.escape(found) if isinstance(found, str) else written(found)

    def _named_escape(self, letter: str) -> str:
        if letter == "k":
            named = _NAMED_REFERENCE.match(self.pattern, self.at)
            if named is None:
                raise JavaRegexError(r"\k needs the name of a group, as in \k<name>")
            self.at = named.end()
            self.is_linear = False
            return f"(?P={named[1]})"
        self.at += 1
        if letter == "R":
            self.is_linear = False  # RE2 would take a part of \r\n where Java takes both or backtracks
            return _LINE_BREAK
        if letter == "b" and self.pattern.startswith("{", self.at):
            raise JavaRegexError(r"\b{...} is not supported")
        return self.boundaries[letter]

    def _reference(self) -> str:
        """A group by its number: as many digits as there are groups for."""
        self.is_linear = False
        number = int(self._take())
        while (digit := self.pattern[self.at : self.at + 1]).isdecimal() and digit.isascii():
            if number * 10 + int(digit) > self.groups:
                break
            number = number * 10 + int(self._take())
        if number > self.groups:
            raise JavaRegexError(f"there is no group {number} before \\{number}")
        return f"(?:\\{number})"

    def _quoted(self) -> str:
        """The text between \\Q and \\E; without \\E it goes to the end."""
        end = self.pattern.find("\\E", self.at)
        quoted = self.pattern[self.at : end if end >= 0 else None]
        self.at = end + 2 if end >= 0 else len(self.pattern)
        return quoted

    def _characters(self) -> str | Characters:
        """Returns the meaning of an escape inside a class and outside: one character, or any of several."""
        letter = self.pattern[self.at : self.at + 1]
        if letter.lower() in ESCAPED and letter.isascii():
            self.at += 1
            inside = ESCAPED[letter.lower()]
            return inside if letter.islower() else complement(inside)
        if letter and letter in "pP":
            inside = self._property()
            return inside if letter == "p" else complement(inside)
        return self._literal()

    def _property(self) -> Characters:
        found = _PROPERTY.match(self.pattern, self.at)
        if found is None:
            raise JavaRegexError(r"\p is followed by no name, or by one that is not closed")
        self.at = found.end()
        name = found[1] or found[2]
        named = property_named(name, of_ascii=self.of_ascii, ignores_case=self.scopes[-1].ignores_case)
        if named is None:
            raise JavaRegexError(f"\\p{{{name}}} is not known")
        return named

    def _literal(self) -> str:
        """Returns the one character of an escape."""
        hexadecimal = _HEX.match(self.pattern, self.at)
        if hexadecimal is not None:
            self.at = hexadecimal.end()
            code = int(hexadecimal[1] or hexadecimal[2] or hexadecimal[3], 16)
            if code > 0x10FFFF or 0xD800 <= code < 0xE000:
                raise JavaRegexError(f"there is no character {code:x}")
            return chr(code)
        octal = _OCTAL.match(self.pattern, self.at)
        if octal is not None:
            self.at = octal.end()
            return chr(int(octal[1], 8))
        character = self._take()
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "c":
            return chr(ord(self._take()) ^ 64)
        if character in ("x", "u", "0"):
            raise JavaRegexError(f"\\{character} is followed by no number")
        if character.isascii() and character.isalnum():
            raise JavaRegexError(f"\\{character} is not supported")
        return character

    # -- classes

    def _class(self) -> Characters:
        """The characters of a class, after its [ and up to its ]: items, classes among them, && between."""
        is_negated = self.pattern.startswith("^", self.at)
        self.at += is_negated
        found = self._items()
        while self.pattern.startswith("&&", self.at):
            self.at += 2
            found = intersection(found, self._items())
        self._take()
        return complement(found) if is_negated else found

    def _items(self) -> Characters:
        found: Characters = ()
        start = self.at
        while not self.pattern.startswith(("&&", "]"), self.at):
            if self.at >= len(self.pattern):
                raise JavaRegexError("a [ is not closed")
            found = union(found, self._item())
        if self.at == start:
            raise JavaRegexError("a class of characters, or a side of && in it, is empty; write a ] in it as \\]")
        return found

    def _item(self) -> Characters:
        first = self._take()
        if first == "[":
            return self._class()
        if first == "\\":
            if self.pattern.startswith("Q", self.at):
                self.at += 1
                return self._cased(of_text(self._quoted()))
            escaped = self._escaped_in_class()
            if not isinstance(escaped, str):
                return escaped
            first = escaped
        following = self.pattern[self.at : self.at + 2]
        if following[:1] != "-" or following[1:] in ("]", "[", "") or self.pattern.startswith("-&&", self.at):
            return self._cased(of_text(first))
        self.at += 1
        last: str | Characters = self._take()
        if last == "\\":
            last = self._escaped_in_class()
        if not isinstance(last, str) or last < first:
            raise JavaRegexError(f"a range in a class of characters that begins with {first!r} has no end")
        return self._cased(of_ranges([(ord(first), ord(last))]))

    def _escaped_in_class(self) -> str | Characters:
        letter = self.pattern[self.at : self.at + 1]
        if letter and (letter in self.boundaries or letter in "Rk123456789"):
            raise JavaRegexError(f"\\{letter} in a class of characters is not supported")
        return self._characters()

    def _cased(self, characters: Characters) -> Characters:
        return with_other_case(characters) if self.scopes[-1].ignores_case else characters
