# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""The loops that turn Arrow columns into record bodies: partitions by key, an order by partition, records. Compiled
where a C compiler was there, with the C types of `_rows.pxd`; else this same file runs uncompiled.

The views are trusted: they come from validated Arrow arrays. Source: Kafka's message format v2, murmur2 of its clients.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:  # only the compiler needs it
    from headrace.arrow import _plain as cython

COMPILED = cython.compiled
"""Whether the native build of this file runs."""

# named, since Cython takes a literal of more than 31 bits for a Python object
_SEED = 0x9747B28C
_WORD = 0xFFFFFFFF
_LONG = 0xFFFFFFFFFFFFFFFF
_BASIS = 0xCBF29CE484222325
_PRIME = 0x100000001B3
_FIRST_FACTOR = 0xFF51AFD7ED558CCD
_SECOND_FACTOR = 0xC4CEB9FE1A85EC53


def _copy(target: Any, to: int, source: Any, at: int, size: int) -> None:
    """Copy source[at:at + size] to target[to:], both known to be large enough; `size` is not 0."""
    if cython.compiled:
        memcpy(cython.address(target[to]), cython.address(source[at]), size)  # type: ignore  # noqa: F821, PGH003
    else:
        target[to : to + size] = source[at : at + size]


def _murmur2(data: Any, at: int, size: int) -> int:
    """Murmur2 of data[at:at + size] with Kafka's seed; every product is cut to 32 bits."""
    value = (_SEED ^ size) & _WORD
    end = at + (size & ~3)
    while at < end:
        word = data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24
        word = (word * 0x5BD1E995) & _WORD
        word = ((word ^ (word >> 24)) * 0x5BD1E995) & _WORD
        value = ((value * 0x5BD1E995) & _WORD) ^ word
        at += 4
    left = size & 3
    if left:
        if left == 3:
            value ^= data[at + 2] << 16
        if left >= 2:
            value ^= data[at + 1] << 8
        value = ((value ^ data[at]) * 0x5BD1E995) & _WORD
    value = ((value ^ (value >> 13)) * 0x5BD1E995) & _WORD
    return value ^ (value >> 15)


def _fed(value: int, data: Any, at: int, size: int) -> int:
    """An FNV-1a hash of 64 bits, gone on with data[at:at + size]."""
    end = at + size
    while at < end:
        value = ((value ^ data[at]) * _PRIME) & _LONG
        at += 1
    return value


def _fed_number(value: int, number: int) -> int:
    """The same, gone on with the eight bytes of a number."""
    for _ in range(8):
        value = ((value ^ (number & 0xFF)) * _PRIME) & _LONG
        number >>= 8
    return value


def _stirred(value: int) -> int:
    """A hash whose bits all depend on each other, so that sums of hashes differ: the end of murmur3."""
    value = ((value ^ (value >> 33)) * _FIRST_FACTOR) & _LONG
    value = ((value ^ (value >> 33)) * _SECOND_FACTOR) & _LONG
    return value ^ (value >> 33)


def key_partitions(keys: Column, count: int, keyless: int, chosen: Any) -> None:
    """Into `chosen` (int32, one a row, -1 where nothing is chosen yet) the partition of each row's key.

    Rows without a key get `keyless`. `count` is the number of partitions.
    """
    for row in range(keys.rows):
        if chosen[row] >= 0:
            continue
        if keys.has(row):
            at = keys.offsets[row]
            hashed = _murmur2(keys.data, at, keys.offsets[row + 1] - at)
            chosen[row] = (hashed & 0x7FFFFFFF) % count
        else:
            chosen[row] = keyless


def order_by_partition(chosen: Any, count: int, rows: Any, starts: Any) -> None:
    """Into `rows` (int32) the row numbers by partition, and into `starts` (int32, count + 1) where each one begins."""
    total = len(chosen)
    for index in range(count + 1):
        starts[index] = 0
    for row in range(total):
        starts[chosen[row] + 1] += 1
    for index in range(count):
        starts[index + 1] += starts[index]
    for row in range(total):
        place = starts[chosen[row]]
        rows[place] = row
        starts[chosen[row]] = place + 1
    # every start has moved to the next one's place
    for index in range(count, 0, -1):
        starts[index] = starts[index - 1]
    starts[0] = 0


class Column:
    """A binary or string column: `offsets` int32, `data`, and `bits`, a validity bitmap read from `bit` on, or None."""

    def __init__(self, rows: int, offsets: Any, data: Any, bits: Any, bit: int) -> None:
        self.rows = rows
        self.offsets = offsets
        self.data = data
        self.nullable = bits is not None
        self.bits = bits if bits is not None else b"\x00"
        self.bit = bit

    def has(self, row: int) -> bool:
        """Whether the row is not null."""
        if not self.nullable:
            return True
        at = row + self.bit
        return (self.bits[at >> 3] >> (at & 7)) & 1 != 0


def _varint_size(value: int) -> int:
    """Bytes of a zigzag varint."""
    zigzag = (value << 1) ^ (value >> 63)
    size = 1
    while zigzag > 0x7F:
        zigzag >>= 7
        size += 1
    return size


class Rows:
    """The columns of one Arrow batch, and the records made of them.

    `timestamps` are int64 in microseconds, `stamped` says whether they count; else every record gets `now`, in ms.
    `header_starts` is None without headers; `header_bit` as in Column.
    """

    def __init__(self, keys: Column, values: Column, timestamps: Any, stamped: bool, now: int) -> None:
        self.keys = keys
        self.values = values
        self.stamped = stamped
        self.timestamps = timestamps
        self.now = now
        self.with_headers = False
        self.mark_count = 0
        self.marks = b""
        self.mark_size = 0
        self.at = 0
        self.done = 0
        self.base_timestamp = 0
        self.max_timestamp = 0

    def set_headers(self, starts: Any, lists: Column, names: Column, contents: Column) -> None:
        """Give the rows headers: entries starts[row] to starts[row + 1] of `names` and `contents`, unless null."""
        self.with_headers = True
        self.header_starts = starts
        self.lists = lists
        self.names = names
        self.contents = contents

    def set_marks(self, count: int, marks: Any, size: int) -> None:
        """Give every record `count` headers more, the same for all: `size` bytes, encoded as headers are."""
        self.mark_count = count
        self.marks = marks
        self.mark_size = size

    def encode(self, rows: Any, first: int, last: int, out: Any, at: int) -> int:
        """Write the records of rows[first:last] into out[at:] until one does not fit; where the writing ended.

        `done` says how many were written, `base_timestamp` and `max_timestamp` (ms) what the batch's header needs.
        """
        self.out = out
        self.at = at
        self.done = 0
        end = len(out)
        for place in range(first, last):
            row = rows[place]
            timestamp = self.timestamps[row] // 1000 if self.stamped else self.now
            if self.done == 0:
                self.base_timestamp = timestamp
                self.max_timestamp = timestamp
            size = self.size_of(row, timestamp - self.base_timestamp, self.done)
            if size + 10 > end - self.at:
                break
            self.put_varint(size)
            self.out[self.at] = 0
            self.at += 1
            self.put_varint(timestamp - self.base_timestamp)
            self.put_varint(self.done)
            self.put_field(self.keys, row)
            self.put_field(self.values, row)
            self.put_headers(row)
            if timestamp > self.max_timestamp:
                self.max_timestamp = timestamp
            self.done += 1
        # the caller may cut its buffer now
        self.out = None
        return self.at

    def size_of(self, row: int, timestamp: int, offset: int) -> int:
        """Bytes of a record after its length."""
        size = 1 + _varint_size(timestamp) + _varint_size(offset)
        size += self.field_size(self.keys, row) + self.field_size(self.values, row)
        size += self.mark_size
        if not self.with_headers or not self.lists.has(row):
            return size + _varint_size(self.mark_count)
        first = self.header_starts[row]
        last = self.header_starts[row + 1]
        size += _varint_size(last - first + self.mark_count)
        for entry in range(first, last):
            size += self.field_size(self.names, entry) + self.field_size(self.contents, entry)
        return size

    def field_size(self, column: Column, row: int) -> int:
        """Bytes of a field with its length."""
        if not column.has(row):
            return 1
        size = column.offsets[row + 1] - column.offsets[row]
        total: int = size + _varint_size(size)
        return total

    def put_varint(self, value: int) -> None:
        """Write a zigzag varint."""
        zigzag = (value << 1) ^ (value >> 63)
        at = self.at
        while zigzag > 0x7F:
            self.out[at] = (zigzag & 0x7F) | 0x80
            zigzag >>= 7
            at += 1
        self.out[at] = zigzag
        self.at = at + 1

    def put_field(self, column: Column, row: int) -> None:
        """Write a field with its length, or null."""
        if not column.has(row):
            self.out[self.at] = 1
            self.at += 1
            return
        start = column.offsets[row]
        size = column.offsets[row + 1] - start
        self.put_varint(size)
        if size:
            _copy(self.out, self.at, column.data, start, size)
            self.at += size

    def put_headers(self, row: int) -> None:
        """Write a record's headers: its own, then those that all have."""
        first = 0
        last = 0
        if self.with_headers and self.lists.has(row):
            first = self.header_starts[row]
            last = self.header_starts[row + 1]
        self.put_varint(last - first + self.mark_count)
        for entry in range(first, last):
            self.put_field(self.names, entry)
            self.put_field(self.contents, entry)
        if self.mark_size:
            _copy(self.out, self.at, self.marks, 0, self.mark_size)
            self.at += self.mark_size

    def hash_sum(self, seed: Any, chosen: Any, total: int) -> int:
        """The sum, cut to 64 bits, of a hash of each of the rows, in whatever order they are.

        `seed` is of bytes and of all rows, `chosen` int32 partitions, one a row.
        """
        start = _fed(_BASIS, seed, 0, len(seed))
        found = 0
        for row in range(total):
            value = _fed_number(start, chosen[row] + 1)
            if self.stamped:
                value = _fed_number(value, self.timestamps[row])
            value = self.fed_field(self.keys, row, value)
            value = self.fed_field(self.values, row, value)
            if self.with_headers and self.lists.has(row):
                first = self.header_starts[row]
                last = self.header_starts[row + 1]
                value = _fed_number(value, last - first)
                for entry in range(first, last):
                    value = self.fed_field(self.names, entry, value)
                    value = self.fed_field(self.contents, entry, value)
            found = (found + _stirred(value)) & _LONG
        return found

    def fed_field(self, column: Column, row: int, value: int) -> int:
        """A hash gone on with a field and its size, or with that it is null."""
        if not column.has(row):
            return _fed_number(value, _LONG)
        at = column.offsets[row]
        size = column.offsets[row + 1] - at
        return _fed(_fed_number(value, size), column.data, at, size)
