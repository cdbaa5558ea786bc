"""Regular expressions in time that is linear in the text: for patterns that clients send.

The syntax is that of RE2, which Apache Kafka uses for the same reason (KIP-848, KIP-1152); without references back and
without looking around, which cannot be had in that time. Not done: scripts (`\\p{Greek}`); general categories are.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

PATTERN_LENGTH_MAX: Final = 4_096
PROGRAM_MAX: Final = 2_000
"""Steps of a pattern, repetitions written out: what one character of a text may cost."""
REPEAT_MAX: Final = 1_000
DEPTH_MAX: Final = 50
"""Groups in groups."""

_CODE_MAX: Final = 0x10FFFF
_DIGITS: Final = ((0x30, 0x39),)
_SPACES: Final = ((0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20))
_WORD: Final = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_PERL: Final = {"d": _DIGITS, "s": _SPACES, "w": _WORD}
_POSIX: Final = {
    "alnum": ((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)),
    "alpha": ((0x41, 0x5A), (0x61, 0x7A)),
    "ascii": ((0x00, 0x7F),),
    "blank": ((0x09, 0x09), (0x20, 0x20)),
    "cntrl": ((0x00, 0x1F), (0x7F, 0x7F)),
    "digit": _DIGITS,
    "graph": ((0x21, 0x7E),),
    "lower": ((0x61, 0x7A),),
    "print": ((0x20, 0x7E),),
    "punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "space": ((0x09, 0x0D), (0x20, 0x20)),
    "upper": ((0x41, 0x5A),),
    "word": _WORD,
    "xdigit": ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)),
}
_CONTROL: Final = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_MINOR: Final = {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}
_CATEGORIES: Final = frozenset(major + minor for major, minors in _MINOR.items() for minor in ("", *minors))


class PatternError(ValueError):
    """No such regular expression, or one that is too large."""


@dataclass(frozen=True, slots=True)
class _Set:
    """One character of a set."""

    ranges: tuple[tuple[int, int], ...] = ()
    categories: tuple[tuple[str, bool], ...] = ()
    """(a general category, or its first letter; whether it is meant, or all others)"""
    without: tuple[_Set, ...] = ()
    """Whatever is not in one of these is in the set too."""
    negated: bool = False
    folded: bool = False
    """Whether upper and lower case are the same."""

    def holds(self, char: str) -> bool:
        if self.folded:
            return any(self._has(each) for each in {char, *_one(char.lower()), *_one(char.upper())}) != self.negated
        return self._has(char) != self.negated

    def _has(self, char: str) -> bool:
        code = ord(char)
        return (
            any(low <= code <= high for low, high in self.ranges)
            or any(unicodedata.category(char).startswith(name) == meant for name, meant in self.categories)
            or any(not each.holds(char) for each in self.without)
        )


def _one(text: str) -> tuple[str, ...]:
    return (text,) if len(text) == 1 else ()


_At: TypeAlias = Literal["text start", "text end", "line start", "line end", "boundary", "no boundary"]


@dataclass(frozen=True, slots=True)
class _Where:
    """A place between two characters."""

    at: _At


@dataclass(frozen=True, slots=True)
class _Row:
    """One after the other."""

    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Either:
    """One of these."""

    parts: tuple[_Node, ...]


@dataclass(frozen=True, slots=True)
class _Repeat:
    """The same so many times; `most` None: without limit."""

    part: _Node
    least: int
    most: int | None


_Node: TypeAlias = _Set | _Where | _Row | _Either | _Repeat


@dataclass(frozen=True, slots=True)
class _Flags:
    folded: bool = False
    lines: bool = False
    dot_all: bool = False


class _Parser:
    """Reads a pattern into a tree."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise PatternError(f"a pattern has at most {PATTERN_LENGTH_MAX} characters")
        self._text = pattern
        self._at = 0
        self._flags = _Flags()
        self._depth = 0
        self._names: set[str] = set()

    def whole(self) -> _Node:
        node = self._either()
        if self._at < len(self._text):
            raise PatternError("a ) without its (")
        return node

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _take(self, text: str) -> bool:
        if self._peek(text):
            self._at += len(text)
            return True
        return False

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise PatternError("the pattern ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _until(self, end: str) -> str:
        found = self._text.find(end, self._at)
        if found < 0:
            raise PatternError(f"a {end} is missing")
        taken = self._text[self._at : found]
        self._at = found + len(end)
        return taken

    def _either(self) -> _Node:
        flags = self._flags
        parts = [self._row()]
        while self._take("|"):
            parts.append(self._row())
        self._flags = flags  # what a group sets holds to its end
        return parts[0] if len(parts) == 1 else _Either(tuple(parts))

    def _row(self) -> _Node:
        parts: list[_Node] = []
        while self._at < len(self._text) and not self._peek("|") and not self._peek(")"):
            if self._take("\\Q"):
                found = self._text.find("\\E", self._at)
                end = len(self._text) if found < 0 else found
                quoted = [self._char(ord(each)) for each in self._text[self._at : end]]
                self._at = min(end + 2, len(self._text))
                if quoted:
                    parts += [*quoted[:-1], self._repeated(quoted[-1])]
                continue
            atom = self._atom()
            if atom is not None:
                parts.append(self._repeated(atom))
        return _Row(tuple(parts))

    def _repeated(self, atom: _Node) -> _Node:
        counts = self._counts()
        if counts is None:
            return atom
        self._take("?")  # which of two matches is preferred makes no difference to whether there is one
        if self._counts() is not None:
            raise PatternError("a repetition of a repetition")
        return _Repeat(atom, *counts)

    def _counts(self) -> tuple[int, int | None] | None:
        for sign, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return counts
        end = self._text.find("}", self._at)
        if not self._peek("{") or end < 0:
            return None
        least, comma, most = self._text[self._at + 1 : end].partition(",")
        if not _is_number(least) or not (not most or _is_number(most)):
            return None  # a { that stands for itself
        self._at = end + 1
        low = int(least)
        high = int(most) if most else None if comma else low
        if low > REPEAT_MAX or (high is not None and not low <= high <= REPEAT_MAX):
            raise PatternError("such a count of repetitions cannot be")
        return low, high

    def _atom(self) -> _Node | None:
        """The next part; None where flags alone were set."""
        char = self._next()
        match char:
            case "(":
                return self._group()
            case "[":
                return self._class()
            case ".":
                return _Set(((0, _CODE_MAX),)) if self._flags.dot_all else _Set(((10, 10),), negated=True)
            case "^":
                return _Where("line start" if self._flags.lines else "text start")
            case "$":
                return _Where("line end" if self._flags.lines else "text end")
            case "*" | "+" | "?":
                raise PatternError(f"nothing stands before {char}")
            case "\\":
                return self._escape()
            case _:
                return self._char(ord(char))

    def _char(self, code: int) -> _Set:
        return _Set(((code, code),), folded=self._flags.folded)

    def _group(self) -> _Node | None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise PatternError("too many groups in each other")
        outer = self._flags
        if self._take("?P<") or (self._peek("?<") and not self._peek("?<=") and not self._peek("?<!")):
            self._take("?<")
            name = self._until(">")
            if not name.isidentifier() or name in self._names:
                raise PatternError(f"a group cannot be called {name!r}")
            self._names.add(name)
        elif self._take("?") and self._set_flags():
            self._depth -= 1
            return None  # they hold to the end of the group around
        inside = self._either()
        if not self._take(")"):
            raise PatternError("a ) is missing")
        self._depth -= 1
        self._flags = outer
        return inside

    def _set_flags(self) -> bool:
        """Reads flags behind `(?`; whether the group ends with them."""
        meant = True
        while True:
            match self._next():
                case ":":
                    return False
                case ")":
                    return True
                case "-" if meant:
                    meant = False
                case "i":
                    self._flags = replace(self._flags, folded=meant)
                case "m":
                    self._flags = replace(self._flags, lines=meant)
                case "s":
                    self._flags = replace(self._flags, dot_all=meant)
                case "U":
                    pass
                case other:
                    raise PatternError(f"there is no group (?{other}")

    def _escape(self) -> _Node:
        places: dict[str, _At] = {"A": "text start", "z": "text end", "b": "boundary", "B": "no boundary"}
        for name, place in places.items():
            if self._take(name):
                return _Where(place)
        found = self._escaped()
        return self._char(found) if isinstance(found, int) else replace(found, folded=self._flags.folded)

    def _escaped(self) -> int | _Set:
        """A character, or a set of them, behind a backslash."""
        char = self._next()
        if char.lower() in _PERL:
            return _Set(_PERL[char.lower()], negated=char.isupper())
        if char in "pP":
            return self._category(meant=char == "p")
        if char in _CONTROL:
            return _CONTROL[char]
        if char == "x":
            digits = self._until("}") if self._take("{") else self._next() + self._next()
            return _code_of(digits, 16)
        if char in "01234567":
            digits = char
            while len(digits) < 3 and self._at < len(self._text) and self._text[self._at] in "01234567":
                digits += self._next()
            if char != "0" and len(digits) == 1:
                raise PatternError("references back are not served")
            return _code_of(digits, 8)
        if char.isascii() and (char.isalnum()):
            raise PatternError(f"there is no \\{char}")
        return ord(char)

    def _category(self, *, meant: bool) -> _Set:
        name = self._until("}") if self._take("{") else self._next()
        if name.startswith("^"):
            name, meant = name[1:], not meant
        if name not in _CATEGORIES:
            raise PatternError(f"there is no category {name!r}")
        return _Set(categories=((name, meant),))

    def _class(self) -> _Set:
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        categories: list[tuple[str, bool]] = []
        without: list[_Set] = []
        is_first = True
        while is_first or not self._take("]"):
            is_first = False
            found = self._member()
            if isinstance(found, int):
                ranges.append((found, self._range_end(found)))
            elif found.negated:
                without.append(replace(found, negated=False))
            else:
                ranges += found.ranges
                categories += found.categories
        return _Set(tuple(ranges), tuple(categories), tuple(without), negated, self._flags.folded)

    def _range_end(self, low: int) -> int:
        if not self._peek("-") or self._text.startswith("-]", self._at):
            return low
        self._at += 1
        high = self._member()
        if not isinstance(high, int) or high < low:
            raise PatternError("such a range cannot be")
        return high

    def _member(self) -> int | _Set:
        if self._take("[:"):
            name = self._until(":]")
            if name.removeprefix("^") not in _POSIX:
                raise PatternError(f"there is no class {name!r}")
            return _Set(_POSIX[name.removeprefix("^")], negated=name.startswith("^"))
        char = self._next()
        return self._escaped() if char == "\\" else ord(char)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 6


def _code_of(digits: str, base: int) -> int:
    try:
        code = int(digits, base)
    except ValueError:
        raise PatternError(f"{digits!r} is no code of a character") from None
    if not (digits.isalnum() and 0 <= code <= _CODE_MAX):
        raise PatternError(f"{digits!r} is no code of a character")
    return code


@dataclass(frozen=True, slots=True)
class _Split:
    """On to several steps at once."""

    to: tuple[int, ...]


_MATCH: Final = _Split(())
_Step: TypeAlias = _Set | _Where | _Split


class Pattern:
    """A regular expression that is ready to match. Raises PatternError."""

    def __init__(self, pattern: str) -> None:
        self._steps: list[_Step] = []
        self._write(_Parser(pattern).whole())
        self._steps.append(_MATCH)
        self._last = len(self._steps) - 1

    def _put(self, step: _Step) -> int:
        if len(self._steps) >= PROGRAM_MAX:
            raise PatternError("the pattern is too large")
        self._steps.append(step)
        return len(self._steps) - 1

    def _write(self, node: _Node) -> None:
        match node:
            case _Row(parts):
                for part in parts:
                    self._write(part)
            case _Either(parts):
                fork = self._put(_MATCH)
                starts, ends = [], []
                for part in parts:
                    starts.append(len(self._steps))
                    self._write(part)
                    ends.append(self._put(_MATCH))
                self._steps[fork] = _Split(tuple(starts))
                for end in ends:
                    self._steps[end] = _Split((len(self._steps),))
            case _Repeat(part, least, most):
                self._write_repeat(part, least, most)
            case _:
                self._put(node)

    def _write_repeat(self, part: _Node, least: int, most: int | None) -> None:
        for _ in range(least):
            self._put(_Split((len(self._steps) + 1,)))  # so that repeating nothing is not free either
            self._write(part)
        if most is None:
            fork = self._put(_MATCH)
            self._write(part)
            self._put(_Split((fork,)))
            self._steps[fork] = _Split((fork + 1, len(self._steps)))
            return
        forks = []
        for _ in range(most - least):
            forks.append(self._put(_MATCH))
            self._write(part)
        for fork in forks:
            self._steps[fork] = _Split((fork + 1, len(self._steps)))

    def matches(self, text: str) -> bool:
        """Whether all of `text` is what the pattern says."""
        reached = self._closure([0], text, 0)
        for at, char in enumerate(text):
            if not reached:
                return False
            reached = self._closure(self._taken(reached, char), text, at + 1)
        return self._last in reached

    def _taken(self, reached: Iterable[int], char: str) -> Iterator[int]:
        for step in reached:
            what = self._steps[step]
            if isinstance(what, _Set) and what.holds(char):
                yield step + 1

    def _closure(self, steps: Iterable[int], text: str, at: int) -> set[int]:
        """Every step that is reached from these without a character more."""
        reached: set[int] = set()
        left = list(steps)
        while left:
            step = left.pop()
            if step in reached:
                continue
            reached.add(step)
            what = self._steps[step]
            if isinstance(what, _Split):
                left.extend(what.to)
            elif isinstance(what, _Where) and _is_there(what.at, text, at):
                left.append(step + 1)
        return reached


def _is_there(place: _At, text: str, at: int) -> bool:
    match place:
        case "text start":
            return at == 0
        case "text end":
            return at == len(text)
        case "line start":
            return at == 0 or text[at - 1] == "\n"
        case "line end":
            return at == len(text) or text[at] == "\n"
    before = at > 0 and _is_word(text[at - 1])
    after = at < len(text) and _is_word(text[at])
    return (before != after) == (place == "boundary")


def _is_word(char: str) -> bool:
    return char.isascii() and (char.isalnum() or char == "_")


def matching(pattern: str, texts: list[str]) -> list[str]:
    """Those of some texts that a pattern matches as a whole. Raises PatternError."""
    compiled = Pattern(pattern)
    return [each for each in texts if compiled.matches(each)]
