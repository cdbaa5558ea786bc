"""Regular expressions of subscriptions, matched against whole names in time that grows with the name alone.

The syntax is RE2's as far as topic names can tell the difference: no look-around and no references, which RE2 does not
have either. A pattern becomes a small machine whose states are sets of places in it; each set is worked out once. What
is not understood is refused, never guessed.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

PROGRAM_MAX: Final = 5_000
"""Places in a pattern, after its counted repeats are written out."""
REPEAT_MAX: Final = 1_000
"""RE2's own bound on a counted repeat."""
DEPTH_MAX: Final = 100
"""Groups within groups."""
STATES_MAX: Final = 1_000
"""Sets of places that a pattern remembers; beyond it they are worked out anew."""


class PatternError(ValueError):
    """The pattern cannot be understood; the text says why."""


class Chars(NamedTuple):
    """One character out of some ranges, or out of none of them."""

    ranges: tuple[tuple[str, str], ...]
    is_negated: bool = False

    def holds(self, char: str) -> bool:
        """Whether the character is one of them."""
        return any(low <= char <= high for low, high in self.ranges) is not self.is_negated


class Fork(NamedTuple):
    """Goes on at one of two places, counted from here."""

    one: int
    other: int


class Edge(NamedTuple):
    """The start or the end of the name."""

    is_end: bool


Program: TypeAlias = list[Chars | Fork | Edge]
"""Goes on with the next place, unless a fork says otherwise; the place behind the last one is the end."""

_ANY: Final = Chars((("\n", "\n"),), True)
_DIGIT: Final = (("0", "9"),)
_WORD: Final = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
_SPACE: Final = (("\t", "\n"), ("\f", "\r"), (" ", " "))
_CLASSES: Final = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_NEXT: Final = 1


class Pattern:
    """A pattern that was understood. Raises PatternError."""

    __slots__ = ("_program", "_steps")

    def __init__(self, text: str) -> None:
        self._program = _Parser(text).program()
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        """Whether the pattern means this name, as a whole."""
        places = self._closure({0}, at_start=True, at_end=not name)
        for at, char in enumerate(name):
            is_last = at == len(name) - 1
            if is_last:
                places = self._closure(self._step(places, char), at_start=False, at_end=True)
            else:
                places = self._remembered(places, char)
            if not places:
                return False
        return len(self._program) in places

    def _remembered(self, places: frozenset[int], char: str) -> frozenset[int]:
        key = (places, char)
        found = self._steps.get(key)
        if found is None:
            if len(self._steps) >= STATES_MAX:
                self._steps.clear()
            found = self._steps[key] = self._closure(self._step(places, char), at_start=False, at_end=False)
        return found

    def _step(self, places: frozenset[int], char: str) -> set[int]:
        program = self._program
        after = set()
        for place in places:
            if place < len(program):
                what = program[place]
                if isinstance(what, Chars) and what.holds(char):
                    after.add(place + 1)
        return after

    def _closure(self, places: set[int], at_start: bool, at_end: bool) -> frozenset[int]:
        """These places, and those that can be reached from them without a character."""
        program, seen, todo = self._program, set(places), list(places)
        while todo:
            place = todo.pop()
            if place == len(program):
                continue
            what = program[place]
            onward: tuple[int, ...] = ()
            if isinstance(what, Fork):
                onward = (place + what.one, place + what.other)
            elif isinstance(what, Edge) and (at_end if what.is_end else at_start):
                onward = (place + 1,)
            for each in onward:
                if each not in seen:
                    seen.add(each)
                    todo.append(each)
        return frozenset(seen)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def program(self) -> Program:
        """All of the text. Raises PatternError."""
        found = self._either()
        if self._at < len(self._text):
            raise PatternError("a parenthesis is closed that was not opened")
        return found

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, what: str = "") -> str:
        """The next character; if one is named, only that one. Nothing where it is not there."""
        char = self._peek()
        if what and char != what:
            return ""
        self._at += len(char)
        return char

    def _either(self) -> Program:
        found = self._sequence()
        while self._take("|"):
            other = self._sequence()
            found = [Fork(_NEXT, len(found) + 2), *found, Fork(len(other) + 1, len(other) + 1), *other]
            _check_size(found)
        return found

    def _sequence(self) -> Program:
        found: Program = []
        while self._peek() not in ("", "|", ")"):
            found += self._repeated(self._one())
            _check_size(found)
        return found

    def _repeated(self, one: Program) -> Program:
        repeats = False
        while True:
            bounds = self._bounds()
            if bounds is None:
                return one
            if repeats:
                raise PatternError("a repeat is repeated")
            repeats = True
            low, high = bounds
            size = len(one)
            if size * max(low, high or 0) > PROGRAM_MAX:
                raise PatternError(f"it has more than {PROGRAM_MAX} places")
            if high is None:
                one = one * low + [Fork(_NEXT, size + 2), *one, Fork(-size - 1, _NEXT)]
            else:
                optional: Program = []
                for _ in range(high - low):
                    optional = [Fork(_NEXT, size + len(optional) + 1), *one, *optional]
                one = one * low + optional
            self._take("?")  # how greedy it is makes no difference to what is meant

    def _bounds(self) -> tuple[int, int | None] | None:
        """How often at least and at most, if a repeat stands here."""
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        if self._peek() != "{":
            return None
        said, closed, _ = self._text[self._at + 1 :].partition("}")
        low, comma, high = said.partition(",")
        digits = (low, high or low)
        if not closed or not all(each.isascii() and each.isdigit() and len(each) <= 4 for each in digits):
            return None  # a brace that stands for itself
        self._at += len(said) + 2
        bounds = int(low), (int(high or low) if high or not comma else None)
        if bounds[0] > REPEAT_MAX or (bounds[1] is not None and not bounds[0] <= bounds[1] <= REPEAT_MAX):
            raise PatternError(f"{{{said}}} is not a count of up to {REPEAT_MAX}")
        return bounds

    def _one(self) -> Program:
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return [self._class()]
        if char == ".":
            return [_ANY]
        if char in ("^", "$"):
            return [Edge(char == "$")]
        if char == "\\":
            return self._escaped()
        if char in ("*", "+", "?"):
            raise PatternError(f"{char} repeats nothing")
        return [Chars(((char, char),))]

    def _group(self) -> Program:
        if self._take("?"):
            named = self._text[self._at :].partition(">")[0]
            if named.startswith(("P<", "<")) and named.lstrip("P").lstrip("<").isidentifier():
                self._at += len(named) + 1
            elif not self._take(":"):
                raise PatternError("(? is followed by what this coordinator does not know")
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise PatternError(f"more than {DEPTH_MAX} groups stand in each other")
        found = self._either()
        self._depth -= 1
        if not self._take(")"):
            raise PatternError("a parenthesis is not closed")
        return found

    def _escaped(self) -> Program:
        char = self._take()
        if char in ("A", "z"):
            return [Edge(char == "z")]
        if char == "Q":
            quoted, _, _ = self._text[self._at :].partition("\\E")
            self._at = min(len(self._text), self._at + len(quoted) + 2)
            return [Chars(((each, each),)) for each in quoted]
        if char.lower() in _CLASSES and char:
            return [Chars(_CLASSES[char.lower()], char.isupper())]
        literal = self._literal(char)
        return [Chars(((literal, literal),))]

    def _literal(self, char: str) -> str:
        """What an escape stands for that is one character."""
        if char in _CONTROLS and char:
            return _CONTROLS[char]
        if char == "x":
            digits = self._text[self._at : self._at + 2]
            try:
                found = bytes.fromhex(digits).decode("latin-1")
            except ValueError:
                found = ""
            if len(found) != 1:
                raise PatternError("\\x is not followed by two digits")
            self._at += 2
            return found
        if not char or (char.isascii() and char.isalnum()):
            raise PatternError(f"\\{char} is not known")
        return char

    def _class(self) -> Chars:
        is_negated = bool(self._take("^"))
        ranges: list[tuple[str, str]] = []
        is_first = True
        while is_first or self._peek() != "]":
            if not self._peek():
                raise PatternError("a class is not closed")
            is_first = False
            low = self._of_class(ranges)
            if low is None:
                continue
            high = low
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._take()
                said = self._of_class(ranges)
                if said is None or said < low:
                    raise PatternError("a class has a range that is none")
                high = said
            ranges.append((low, high))
        self._take()
        return Chars(tuple(ranges), is_negated)

    def _of_class(self, ranges: list[tuple[str, str]]) -> str | None:
        """One character of a class; None where it was a class of its own, which is in `ranges` now."""
        char = self._take()
        if char == "[" and self._peek() == ":":
            raise PatternError("named classes are not known")
        if char != "\\":
            return char
        char = self._take()
        if char and char.lower() in _CLASSES:
            if char.isupper():
                raise PatternError(f"\\{char} does not go into a class")
            ranges += _CLASSES[char]
            return None
        return self._literal(char)


def _check_size(program: Program) -> None:
    if len(program) > PROGRAM_MAX:
        raise PatternError(f"it has more than {PROGRAM_MAX} places")
