"""Values as typed Arrow columns: a batch at a time, with malformed values separated from the rest.

A value's result depends on itself alone, never on its neighbours: if a decoder takes many at once and refuses them all
because one is malformed, `in_pieces` splits them until the malformed ones are isolated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

TEXT_ROWS: Final = 1 << 20
CUT_ROWS: Final = 256
"""Refused values are tried again in pieces of so many, before single values are looked for."""
HEADER_BYTES: Final = 5
"""What a schema registry's serializers write before a value: a zero, and the schema's id in four bytes."""


class MalformedError(Exception):
    """Some of the values cannot be decoded; `row` is the first of them, where that is known."""

    def __init__(self, reason: str, row: int | None = None) -> None:
        super().__init__(reason)
        self.row = row


class Decoder(Protocol):
    """How values become a column."""

    @property
    def type(self) -> pa.DataType:
        """Of the column."""

    def decode(self, values: pa.Array) -> pa.Array:
        """The column of binary values, none of them null: null in the place of each malformed one, and nowhere else."""

    def why(self, value: pa.Array) -> str:
        """Returns the error of a malformed value, given as an array of one."""

    def shown(self, values: pa.Array) -> pa.Array:
        """Malformed values as text."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A column, null where a value was null or malformed, and the text of the malformed ones, where there are any."""

    column: pa.Array
    corrupt: pa.Array | None = None


def decode_values(values: pa.Array, decoder: Decoder) -> Decoded:
    """Decode binary values, nulls among them."""
    valid = values.is_valid() if values.null_count else None
    present = values if valid is None else values.filter(valid)
    column = decoder.decode(present)
    corrupt: pa.Array | None = None
    if column.null_count:
        malformed = column.is_null()
        corrupt = spread(decoder.shown(present.filter(malformed)), malformed)
    if valid is None:
        return Decoded(column, corrupt)
    return Decoded(spread(column, valid), None if corrupt is None else spread(corrupt, valid))


def as_text(values: pa.Array) -> pa.Array:
    """Bytes as text, with U+FFFD for invalid UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode("utf-8", "replace") for value in values.to_pylist()], pa.string())


def as_hex(values: pa.Array) -> pa.Array:
    """Bytes as Spark's `hex` writes them, so that its `unhex` has them back."""
    return pa.array([value.hex().upper() for value in values.to_pylist()], pa.string())


def spread(column: pa.Array, mask: pa.Array) -> pa.Array:
    """The items of `column` at the places where `mask` is true, in order, and null elsewhere."""
    places = pc.subtract(pc.cumulative_sum(mask.cast(pa.int64())), 1)
    return column.take(pc.if_else(mask, places, pa.scalar(None, pa.int64())))


def joined(pieces: list[pa.Array], kind: pa.DataType) -> pa.Array:
    """Pieces of a column as one."""
    if len(pieces) == 1:
        return pieces[0]
    return pa.concat_arrays(pieces) if pieces else pa.nulls(0, kind)


def in_pieces(count: int, step: int, attempt: Callable[[int, int], pa.Array], kind: pa.DataType) -> pa.Array:
    """The column of `count` values, null in the place of each malformed one.

    `attempt` decodes those from one place up to another, at most `step` of them; it gives a column without a null, or
    raises `MalformedError`.
    """
    found: list[pa.Array] = []
    todo = [(start, min(start + step, count)) for start in range(0, count, step)]
    todo.reverse()
    while todo:
        start, end = todo.pop()
        try:
            found.append(attempt(start, end))
        except MalformedError as error:
            if end - start == 1:
                found.append(pa.nulls(1, kind))
                continue
            marks = _cuts(start, end, error.row)
            todo += [(low, high) for low, high in pairwise(marks) if high > low][::-1]
    return joined(found, kind)


def _cuts(start: int, end: int, malformed: int | None) -> list[int]:
    """Where a range that was refused is cut: each try costs what it reads, and some 0.05 ms."""
    if end - start > CUT_ROWS:
        return [*range(start, end, CUT_ROWS), end]
    if malformed:
        # what is before it is sound; where the first is malformed others may be, and eighths find them sooner
        return [start, start + malformed, start + malformed + 1, end]
    return [*range(start, end, -(-(end - start) // 8)), end]


class TextDecoder:
    """Values that are UTF-8."""

    type = pa.string()

    def decode(self, values: pa.Array) -> pa.Array:
        return in_pieces(len(values), TEXT_ROWS, lambda low, high: _utf8(values.slice(low, high - low)), self.type)

    def why(self, value: pa.Array) -> str:
        return "it is not UTF-8"

    def shown(self, values: pa.Array) -> pa.Array:
        return as_text(values)


def _utf8(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        raise MalformedError("it is not UTF-8") from None


class HeadedDecoder:
    """Values behind a schema registry's header, which is passed over: the id in it is not looked up.

    `more` says, of what is behind it, how many bytes still are not the value's own; None where it ends within them.
    """

    def __init__(self, inner: Decoder, more: Callable[[bytes], int | None] | None = None) -> None:
        self._inner = inner
        self._more = more

    @property
    def type(self) -> pa.DataType:
        return self._inner.type

    def decode(self, values: pa.Array) -> pa.Array:
        headed = self._headed(values)
        bodies, whole = self._bodies(values if headed is None else values.filter(headed))
        column = self._inner.decode(bodies)
        for mask in (whole, headed):
            column = column if mask is None else spread(column, mask)
        return column

    def why(self, value: pa.Array) -> str:
        if self._headed(value) is not None:
            return "it does not begin with a schema registry's header, a zero and four bytes"
        bodies, whole = self._bodies(value)
        return "it ends within its header" if whole is not None else self._inner.why(bodies)

    def shown(self, values: pa.Array) -> pa.Array:
        return self._inner.shown(values)

    def _headed(self, values: pa.Array) -> pa.Array | None:
        """Which values have a header; None where all have."""
        long_enough = pc.greater_equal(pc.binary_length(values), HEADER_BYTES)
        headed = pc.and_(pc.starts_with(values, pattern=b"\x00"), long_enough)
        return None if headed.true_count == len(values) else headed

    def _bodies(self, values: pa.Array) -> tuple[pa.Array, pa.Array | None]:
        """What is behind the headers, and which values have something there, None where all have."""
        bodies = [value[HEADER_BYTES:] for value in values.to_pylist()]
        if self._more is None:
            return pa.array(bodies, pa.binary()), None
        sizes = [self._more(body) for body in bodies]
        found = [None if size is None else body[size:] for body, size in zip(bodies, sizes, strict=True)]
        array = pa.array(found, pa.binary())
        return (array.drop_null(), array.is_valid()) if array.null_count else (array, None)
