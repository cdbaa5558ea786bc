"""How `headrace produce --template` reads records: by a template in the letters of `consume --template`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

import click

from headrace.cli.options import INT32_MAX, INT64_MAX, parse_separator

Headers = list[tuple[str, bytes | None]]

OPTION: Final = "--template"
LETTERS: Final = b"tpokKsSRTh"
LENGTH_OF: Final = {b"K": b"k", b"S": b"s", b"R": b"s"}
"""The letters of lengths, and what each is the length of."""
NUMBERS: Final = {b"p": (0, INT32_MAX), b"o": (0, INT64_MAX), b"T": (-1, INT64_MAX)} | dict.fromkeys(
    (b"K", b"S"), (-1, INT32_MAX)
)
"""The least and the largest value of each number; -1 is the length of a null, or no timestamp."""
BINARY_LENGTH_SIZE: Final = 4
"""Bytes of the binary length that the letter R reads."""


@dataclass(slots=True)
class Parsed:
    """One record as the input gave it."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = field(default_factory=list)
    partition: int | None = None
    timestamp_ms: int | None = None


def parse_header(part: bytes) -> tuple[str, bytes | None]:
    """Returns the header that `NAME=VALUE` gives; one without a value is null. Raises ValueError."""
    name, equals, value = part.partition(b"=")
    try:
        return name.decode(), value if equals else None
    except UnicodeDecodeError:
        raise ValueError(f"the header's name {name!r} is not UTF-8") from None


class InputTemplate:
    """The letters of a template, each with the text that follows it, and the text before the first."""

    def __init__(self, template: str, null: str | None) -> None:
        """Raises BadParameter for a template by which no record can be read."""
        self.null = None if null is None else null.encode()
        head, *rest = re.split(rb"%(.?)", parse_separator(template, OPTION), flags=re.DOTALL)
        texts, letters = [head], []
        for letter, after in zip(rest[::2], rest[1::2], strict=True):
            if letter == b"%":
                texts[-1] += b"%" + after
                continue
            letters.append(letter)
            texts.append(after)
        self.head = texts[0]
        self.pieces = list(zip(letters, texts[1:], strict=True))
        _check(self.pieces)

    def parse(self, data: bytes, at: int, *, final: bool) -> tuple[Parsed, int] | None:
        """Returns the record that begins at `at`, and where it ends; None if more input is needed, unless `final`.

        At the end of the input, the text after the last letter may be missing. Raises ValueError for a malformed
        record.
        """
        found: dict[bytes, bytes | None] = {}
        lengths: dict[bytes, int] = {}
        end = _skip(data, at, self.head, "the record begins with", final)
        for number, (letter, after) in enumerate(self.pieces, 1):
            if end is None:
                return None
            taken = _take(data, end, letter, after, lengths, (final, final and number == len(self.pieces)))
            if taken is None:
                return None
            found[letter], end = taken
            if letter in LENGTH_OF:
                lengths[LENGTH_OF[letter]] = _number(letter, found[letter] or b"")
        return None if end is None else (self._record(found, lengths), end)

    def _record(self, found: dict[bytes, bytes | None], lengths: dict[bytes, int]) -> Parsed:
        for letter in b"k", b"s":
            if letter not in lengths and found.get(letter) == self.null:
                found[letter] = None
        numbers = {letter: _number(letter, data or b"") for letter, data in found.items() if letter in b"poT"}
        return Parsed(
            found[b"s"],
            found.get(b"k"),
            [parse_header(part) for part in (found.get(b"h") or b"").split(b",") if part],
            numbers.get(b"p"),
            numbers.get(b"T"),
        )


def _check(pieces: list[tuple[bytes, bytes]]) -> None:
    seen: set[bytes] = set()
    measured: set[bytes] = set()
    for letter, after in pieces:
        text = f"%{letter.decode(errors='replace')}"
        if not letter or letter not in LETTERS:
            raise _bad(f"{text} is not a letter of templates")
        of = LENGTH_OF.get(letter)
        if letter in seen or of in measured:
            raise _bad(f"{text} is there a second time")
        if of in seen:
            raise _bad(f"{text} must come before %{of.decode() if of else ''}")
        if not after and letter != b"R" and letter not in measured:
            raise _bad(f"{text} needs a text after it that ends it, such as \\n, or its length before it")
        seen.add(letter)
        if of is not None:
            measured.add(of)
    if b"s" not in seen:
        raise _bad("%s is missing: a record has a value")


def _bad(why: str) -> click.BadParameter:
    return click.BadParameter(why, param_hint=OPTION)


def _skip(data: bytes, at: int, text: bytes, where: str, final: bool) -> int | None:
    """Returns where a text ends that has to be at `at`; None if there may be more of it to come."""
    there = data[at : at + len(text)]
    if there == text:
        return at + len(text)
    if not final and text.startswith(there):
        return None
    raise ValueError(f"{where} {_shown(there)}, not {_shown(text)}")


def _take(
    data: bytes, at: int, letter: bytes, after: bytes, lengths: dict[bytes, int], ends: tuple[bool, bool]
) -> tuple[bytes | None, int] | None:
    """Returns what a letter reads, and where the text after it ends; None if more input is needed.

    `ends` are whether the input ends with `data`, and whether the text after the letter may be missing for that.
    """
    final, is_last = ends
    size = BINARY_LENGTH_SIZE if letter == b"R" else lengths.get(letter)
    name = f"%{letter.decode()}"
    if size is None:
        stop = data.find(after, at)
        if stop >= 0:
            return data[at:stop], stop + len(after)
        if is_last:
            return data[at:], len(data)
        if final:
            raise ValueError(f"no {_shown(after)} after {name}")
        return None
    stop = at + max(size, 0)
    if stop > len(data):
        if final:
            raise ValueError(f"the input ends within {name}")
        return None
    end = stop if is_last and stop == len(data) else _skip(data, stop, after, f"{name} is followed by", final)
    return None if end is None else (data[at:stop] if size >= 0 else None, end)


def _shown(data: bytes) -> str:
    return repr(data.decode(errors="backslashreplace"))


def _number(letter: bytes, data: bytes) -> int:
    if letter == b"R":
        return max(-1, int.from_bytes(data, "big", signed=True))
    least, most = NUMBERS[letter]
    if re.fullmatch(rb"-?[0-9]{1,19}", data) is None or not least <= int(data) <= most:
        raise ValueError(f"%{letter.decode()} must be a whole number from {least} to {most}, not {_shown(data[:40])}")
    return int(data)
