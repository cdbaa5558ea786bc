# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""The loop that turns record bodies into the buffers of Arrow columns. Compiled where a C compiler was there, with the
C types of `_columns.pxd`; else this same file runs uncompiled.

Every bound is checked by hand here. Source: Kafka's message format v2 (KIP-98, KIP-82), Arrow's columnar format 1.0.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ImportError:  # only the compiler needs it
    from headrace.arrow import _plain as cython

Buffer = bytes | bytearray | memoryview

COMPILED = cython.compiled
"""Whether the native build of this file runs."""

# named, since Cython takes a literal of more than 31 bits for a Python object
_MILLISECONDS_MAX = 9_223_372_036_854_775
"""What a column of microseconds can hold."""


def _copy(target: Any, to: int, source: Any, at: int, size: int) -> None:
    """Copy source[at:at + size] to target[to:], both known to be large enough; `size` is not 0."""
    if cython.compiled:
        memcpy(cython.address(target[to]), cython.address(source[at]), size)  # type: ignore  # noqa: F821, PGH003
    else:
        target[to : to + size] = source[at : at + size]


def _next(cursor: Columns, end: int) -> int:
    """The zigzag varint at the cursor; sets `bad` where it does not end before `end`."""
    at = cursor.at
    if at < end:
        byte = cursor.body[at]
        if byte < 0x80:
            cursor.at = at + 1
            return (byte >> 1) ^ -(byte & 1)
    value = 0
    shift = 0
    while True:
        if at >= end or shift > 63:
            cursor.bad = True
            return 0
        byte = cursor.body[at]
        at += 1
        if shift == 63 and byte > 1:
            cursor.bad = True
            return 0
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    cursor.at = at
    return (value >> 1) ^ -(value & 1)


class Columns:
    """Columns under construction. The views are writable and large enough: `rows` rows, all bytes of all bodies.

    `key_offsets`, `value_offsets`: int32, one more than rows. `key_bits`, `value_bits`: validity bitmaps, zeroed.
    `offsets`, `timestamps`: int64, the latter in microseconds. `types`: int32. `entries` is the count of headers
    there is room for; the views of headers are left out where they are not asked for.
    """

    def __init__(self, views: dict[str, Any]) -> None:
        self.row = 0
        self.key_end = 0
        self.value_end = 0
        self.key_nulls = 0
        self.value_nulls = 0
        self.rows = views["rows"]
        self.key_offsets = views["key_offsets"]
        self.key_data = views["key_data"]
        self.key_bits = views["key_bits"]
        self.value_offsets = views["value_offsets"]
        self.value_data = views["value_data"]
        self.value_bits = views["value_bits"]
        self.offsets = views["offsets"]
        self.timestamps = views["timestamps"]
        self.types = views["types"]
        self.key_offsets[0] = 0
        self.value_offsets[0] = 0
        self.with_headers = "header_starts" in views
        self.entries = views["entries"]
        self.entry = 0
        self.name_end = 0
        self.content_end = 0
        self.header_nulls = 0
        self.content_nulls = 0
        if self.with_headers:
            self.header_starts = views["header_starts"]
            self.header_bits = views["header_bits"]
            self.name_offsets = views["name_offsets"]
            self.name_data = views["name_data"]
            self.content_offsets = views["content_offsets"]
            self.content_data = views["content_data"]
            self.content_bits = views["content_bits"]
            self.header_starts[0] = 0
            self.name_offsets[0] = 0
            self.content_offsets[0] = 0

    def add(
        self,
        body: Buffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_time: int,
        timestamp_type: int,
        start: int,
        end: int,
    ) -> bool:
        """Append the records of a body of `count` whose offset lies in [start, end). False where it is malformed.

        Timestamps are in ms; with `timestamp_type` 1 all records get `append_time`.
        """
        self.body = body
        self.at = 0
        self.bad = False
        size = len(body)
        for _ in range(count):
            length = _next(self, size)
            if self.bad or length < 6 or length > size - self.at:
                return False
            stop = self.at + length
            self.at += 1
            timestamp = _next(self, stop)
            offset = base_offset + _next(self, stop)
            key_size = _next(self, stop)
            key_at = self.at
            if self.bad or key_size < -1 or key_size > stop - self.at:
                return False
            if key_size > 0:
                self.at += key_size
            value_size = _next(self, stop)
            value_at = self.at
            if self.bad or value_size < -1 or value_size > stop - self.at:
                return False
            if value_size > 0:
                self.at += value_size
            if offset < start or offset >= end:
                self.at = stop
                continue
            row = self.row
            if row >= self.rows:
                return False
            self.put(row, key_at, key_size, value_at, value_size)
            self.offsets[row] = offset
            timestamp = append_time if timestamp_type else base_timestamp + timestamp
            if timestamp > _MILLISECONDS_MAX:
                timestamp = _MILLISECONDS_MAX
            elif timestamp < -_MILLISECONDS_MAX:
                timestamp = -_MILLISECONDS_MAX
            self.timestamps[row] = timestamp * 1000
            self.types[row] = timestamp_type
            if self.with_headers and not self.add_headers(row, stop):
                return False
            self.row += 1
            self.at = stop
        return self.at == size

    def put(self, row: int, key_at: int, key_size: int, value_at: int, value_size: int) -> None:
        """Copy a record's key and value; a size of -1 is null."""
        if key_size >= 0:
            self.key_bits[row >> 3] |= 1 << (row & 7)
            if key_size:
                _copy(self.key_data, self.key_end, self.body, key_at, key_size)
                self.key_end += key_size
        else:
            self.key_nulls += 1
        if value_size >= 0:
            self.value_bits[row >> 3] |= 1 << (row & 7)
            if value_size:
                _copy(self.value_data, self.value_end, self.body, value_at, value_size)
                self.value_end += value_size
        else:
            self.value_nulls += 1
        self.key_offsets[row + 1] = self.key_end
        self.value_offsets[row + 1] = self.value_end

    def add_headers(self, row: int, stop: int) -> bool:
        """Append the headers of the record at the cursor; a record without any has null, as in Spark's connector."""
        count = _next(self, stop)
        if self.bad or count < 0 or count > self.entries - self.entry:
            return False
        if count:
            self.header_bits[row >> 3] |= 1 << (row & 7)
        else:
            self.header_nulls += 1
        for _ in range(count):
            size = _next(self, stop)
            if self.bad or size < 0 or size > stop - self.at:
                return False
            entry = self.entry
            if size:
                _copy(self.name_data, self.name_end, self.body, self.at, size)
            self.at += size
            self.name_end += size
            size = _next(self, stop)
            if self.bad or size < -1 or size > stop - self.at:
                return False
            if size >= 0:
                self.content_bits[entry >> 3] |= 1 << (entry & 7)
                if size:
                    _copy(self.content_data, self.content_end, self.body, self.at, size)
                self.at += size
                self.content_end += size
            else:
                self.content_nulls += 1
            self.entry += 1
            self.name_offsets[self.entry] = self.name_end
            self.content_offsets[self.entry] = self.content_end
        self.header_starts[row + 1] = self.entry
        return True


class HeaderCount(Columns):
    """Counts headers before their columns are made."""

    def __init__(self) -> None:
        self.at = 0
        self.bad = False

    def measure(self, body: Buffer, count: int) -> int:
        """How many headers the records of a body have together; -1 where it is malformed."""
        self.body = body
        self.at = 0
        self.bad = False
        size = len(body)
        total = 0
        for _ in range(count):
            length = _next(self, size)
            if self.bad or length < 6 or length > size - self.at:
                return -1
            stop = self.at + length
            self.at += 1
            _next(self, stop)
            _next(self, stop)
            for _ in range(2):
                length = _next(self, stop)
                if self.bad or length < -1 or length > stop - self.at:
                    return -1
                if length > 0:
                    self.at += length
            headers = _next(self, stop)
            if self.bad or headers < 0 or headers > stop - self.at:
                return -1
            total += headers
            self.at = stop
        return total if self.at == size else -1
