# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""The loops over the records of a body that is not compressed (any more). Compiled where a C compiler was there, with
the C types of `_walk.pxd`; else this same file runs as it stands.

A body is records one after the other, each led by its length as a zigzag varint. Every bound is checked by hand here,
as the compiled code has no checks of its own. Source: Kafka's message format v2 (KIP-98).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

Buffer = bytes | bytearray | memoryview

COMPILED = not __file__.endswith(".py")
"""Whether the native build of this file runs."""

MALFORMED = _MALFORMED = -2
"""In place of a timestamp: records that cannot be read, or are not as many as announced."""

NULL_KEY = _NULL_KEY = 1
BAD_TIMESTAMP = _BAD_TIMESTAMP = 2
BAD_OFFSET = _BAD_OFFSET = 4
"""What `examine` looks for, as bits of `wanted`, and finds. Each has two names: a number of C is no attribute."""

_SMALLEST = 6
"""Length of the smallest record: attributes, two deltas, two lengths and a header count of one byte each."""

_PLACE_BYTES = 27
"""The beginning of a batch, as far as its base offset, its length and the delta of its last offset."""

_BATCH_BYTES = 61
"""The header of a batch: the least that one has."""

_LONG_MAX = 0x7FFFFFFFFFFFFFFF


def _number(body: Buffer, at: int, end: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits, and where it ends: -1 where there is none (or where `at` says so)."""
    if at < 0 or at >= end:
        return 0, -1
    byte = body[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value = 0
    shift = 0
    while at < end:
        byte = body[at]
        at += 1
        if shift == 63 and byte > 1:
            return 0, -1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    return 0, -1


def _skip(at: int, size: int, end: int) -> int:
    """Behind a field of `size` bytes, -1 for null; -1 where it does not lie before `end`."""
    if at < 0 or size < -1 or size > end - at:
        return -1
    return at if size < 0 else at + size


def _headers(body: Buffer, at: int, end: int) -> int:
    """Behind the headers of a record that ends at `end`; -1 where they do not."""
    count, at = _number(body, at, end)
    if at < 0 or count < 0 or count > end - at:
        return -1
    while count > 0:
        size, at = _number(body, at, end)
        at = _skip(at, size, end)
        if size < 0 or at < 0:
            return -1
        size, at = _number(body, at, end)
        at = _skip(at, size, end)
        count -= 1
    return at if at == end else -1


def _record(body: Buffer, at: int, end: int) -> tuple[int, int, int, int]:
    """(timestamp delta, offset delta, length of the key, where the record ends); -1 for the end where it is none."""
    length, at = _number(body, at, end)
    if at < 0 or length < _SMALLEST or length > end - at:
        return 0, 0, 0, -1
    stop = at + length
    timestamp, at = _number(body, at + 1, stop)
    offset, at = _number(body, at, stop)
    key_size, at = _number(body, at, stop)
    value_size, at = _number(body, _skip(at, key_size, stop), stop)
    at = _skip(at, value_size, stop)
    if at < 0:
        return 0, 0, 0, -1
    if at == stop - 1 and body[at] == 0:  # no headers
        return timestamp, offset, key_size, stop
    return timestamp, offset, key_size, _headers(body, at, stop)


def largest_timestamp(body: Buffer, at: int, end: int, count: int, base_timestamp: int) -> int:
    """The largest timestamp (-1 where there is none) of the `count` records that fill body[at:end]; else MALFORMED.

    MALFORMED too where a timestamp does not fit 64 bits.
    """
    if at < 0 or end > len(body) or at >= end:
        return -1 if 0 <= at == end <= len(body) and not count else _MALFORMED
    if COMPILED:
        return _largest_compiled(body, at, end, count, base_timestamp)  # type: ignore[name-defined,no-any-return]  # noqa: F821
    return _largest(body, at, end, count, base_timestamp)


def _largest(body: Buffer, at: int, end: int, count: int, base_timestamp: int) -> int:
    largest = -1
    while at < end:
        delta, _, _, at = _record(body, at, end)
        if at < 0 or _overflows(base_timestamp, delta):
            return _MALFORMED
        largest = max(largest, base_timestamp + delta)
        count -= 1
    return largest if not count else _MALFORMED


def _overflows(base: int, delta: int) -> bool:
    """Whether the sum of two numbers of 64 bits has more."""
    return base > _LONG_MAX - delta if delta > 0 else base < -_LONG_MAX - 1 - delta


def examine(
    body: Buffer,
    at: int,
    end: int,
    count: int,
    base_timestamp: int,
    earliest: int,
    latest: int,
    wanted: int,
    found: array[int],
) -> int:
    """`largest_timestamp`, and what is wrong with single records, without the interpreter's lock where compiled.

    `found`, an array of "q", gets how many errors there are, and of as many as it has room for: index of the record,
    then what is wrong with it. A timestamp is where it lies outside of earliest..latest or does not fit 64 bits, and is
    not -1; an offset where the deltas do not count up from 0.
    """
    if at < 0 or end > len(body) or at >= end:
        return -1 if 0 <= at == end <= len(body) and not count else _MALFORMED
    if COMPILED:
        return _examine_compiled(body, at, end, count, base_timestamp, earliest, latest, wanted, found)  # type: ignore[name-defined,no-any-return]  # noqa: F821
    return _examine(body, at, end, count, base_timestamp, earliest, latest, wanted, found)


def _examine(
    body: Buffer,
    at: int,
    end: int,
    count: int,
    base_timestamp: int,
    earliest: int,
    latest: int,
    wanted: int,
    found: array[int],
) -> int:
    largest = -1
    index = 0
    errors = 0
    room = len(found) - 1
    while at < end:
        delta, offset, key_size, at = _record(body, at, end)
        if at < 0:
            return _MALFORMED
        problem = 0
        if offset != index:
            problem = wanted & _BAD_OFFSET
        if key_size < 0 and not problem:
            problem = wanted & _NULL_KEY
        if _overflows(base_timestamp, delta):
            problem = problem or wanted & _BAD_TIMESTAMP
        else:
            timestamp = base_timestamp + delta
            largest = max(largest, timestamp)
            if not problem and timestamp != -1 and (timestamp < earliest or timestamp > latest):
                problem = wanted & _BAD_TIMESTAMP
        if problem:
            if 2 * errors + 2 <= room:
                found[2 * errors + 1] = index
                found[2 * errors + 2] = problem
            errors += 1
        index += 1
    found[0] = errors
    return largest if index == count else _MALFORMED


def find(
    body: Buffer,
    at: int,
    end: int,
    base_offset: int,
    base_timestamp: int,
    from_timestamp: int,
    from_offset: int,
    found: array[int],
) -> bool:
    """Whether one of the records in body[at:end] is at or after a time and an offset, without the interpreter's lock
    where compiled. `found`, an array of "q", gets the offset and the timestamp of the first. What follows a record that
    cannot be read is not looked at."""
    if at < 0 or end > len(body) or at >= end:
        return False
    if COMPILED:
        return _find_compiled(body, at, end, base_offset, base_timestamp, from_timestamp, from_offset, found)  # type: ignore[name-defined,no-any-return]  # noqa: F821
    return _find(body, at, end, base_offset, base_timestamp, from_timestamp, from_offset, found)


def _find(
    body: Buffer,
    at: int,
    end: int,
    base_offset: int,
    base_timestamp: int,
    from_timestamp: int,
    from_offset: int,
    found: array[int],
) -> bool:
    while at < end:
        timestamp, offset, _, at = _record(body, at, end)
        if at < 0:
            return False
        if _overflows(base_timestamp, timestamp) or _overflows(base_offset, offset):
            continue
        timestamp += base_timestamp
        offset += base_offset
        if timestamp >= from_timestamp and offset >= from_offset:
            found[0] = offset
            found[1] = timestamp
            return True
    return False


def batches(data: Buffer, size: int, below: int, found: array[int]) -> int:
    """How many of the first `size` bytes of `data`, which begins with a batch, are of batches that begin below `below`.

    The last of them may be cut. `found`, an array of "q", gets where the last whole one of them ends, the offset behind
    it (-1 where none is whole), and the size of the first. MALFORMED where a length is not one of a batch.
    """
    if size < _PLACE_BYTES or size > len(data):
        return _MALFORMED
    if COMPILED:
        return _batches_compiled(data, size, below, found)  # type: ignore[name-defined,no-any-return]  # noqa: F821
    return _batches(data, size, below, found)


def _batches(data: Buffer, size: int, below: int, found: array[int]) -> int:
    at = 0
    next_offset = -1
    found[2] = 0
    while at + _PLACE_BYTES <= size:
        base = _big(data, at, 8)
        length = _big(data, at + 8, 4) + 12
        if length < _BATCH_BYTES:
            return _MALFORMED
        if not at:
            found[2] = length
        if base >= below:
            size = at
            break
        if length > size - at:
            break
        next_offset = base + _big(data, at + 23, 4) + 1
        at += length
    if next_offset >= below:
        size = at
    found[0] = at
    found[1] = next_offset
    return size


def _big(data: Buffer, at: int, count: int) -> int:
    """A signed number of `count` bytes, the most significant first."""
    value = data[at]
    if value >= 0x80:
        value -= 0x100
    for index in range(at + 1, at + count):
        value = (value << 8) + data[index]
    return value


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits, and where it ends."""
    value = 0
    shift = 0
    while True:
        if at >= end or shift > 63:
            raise ValueError("a number is cut off")
        byte = data[at]
        at += 1
        if shift == 63 and byte > 1:
            raise ValueError("a number has more than 64 bits")
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return (value >> 1) ^ -(value & 1), at


def decode_records(
    data: bytes,
    at: int,
    end: int,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    make: Any,
) -> list[Any]:
    """The records in data[at:end] as `make`, a NamedTuple class of (offset, timestamp, key, value, headers).

    `append_time` is the timestamp of all of them where it is not None. Raises ValueError.
    """
    new = tuple.__new__
    records: list[Any] = []
    for _ in range(count):
        length, at = _varint(data, at, end)
        stop = at + length
        if length < _SMALLEST or stop > end:
            raise ValueError(f"record {len(records)} of {count} does not lie inside its batch")
        timestamp, at = _varint(data, at + 1, stop)
        offset, at = _varint(data, at, stop)
        key, at = _bytes(data, at, stop)
        value, at = _bytes(data, at, stop)
        header_count, at = _varint(data, at, stop)
        if header_count < 0 or header_count > stop - at:
            raise ValueError(f"record {len(records)} announces {header_count} headers")
        headers = []
        for _ in range(header_count):
            name, at = _bytes(data, at, stop)
            if name is None:
                raise ValueError(f"record {len(records)} has a header without a key")
            text = name.decode()
            content, at = _bytes(data, at, stop)
            headers.append((text, content))
        if at != stop:
            raise ValueError(f"record {len(records)} is {stop - at} bytes longer than its fields")
        when = base_timestamp + timestamp if append_time is None else append_time
        records.append(new(make, (base_offset + offset, when, key, value, headers)))
    if at != end:
        raise ValueError(f"{end - at} bytes follow the last record")
    return records


def _bytes(data: bytes, at: int, end: int) -> tuple[bytes | None, int]:
    """Bytes led by their length, -1 for null, and where they end."""
    size, at = _varint(data, at, end)
    if size < 0:
        if size != -1:
            raise ValueError(f"a length of {size}")
        return None, at
    if size > end - at:
        raise ValueError("a field is longer than its record")
    return data[at : at + size], at + size


def _put(out: bytearray, value: int) -> None:
    """Append a zigzag varint of at most 64 bits."""
    zigzag = (value << 1) ^ (value >> 63)
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)


def encode_records(records: Sequence[Any], base_offset: int | None, base_timestamp: int) -> bytearray:
    """Records (offset, timestamp, key, value, headers) as a body; consecutive offsets where `base_offset` is None."""
    out = bytearray()
    for index, (offset, timestamp, key, value, headers) in enumerate(records):
        one = bytearray(1)
        _put(one, timestamp - base_timestamp)
        _put(one, index if base_offset is None else offset - base_offset)
        if key is None:
            one.append(1)
        else:
            _put(one, len(key))
            one += key
        if value is None:
            one.append(1)
        else:
            _put(one, len(value))
            one += value
        _put(one, len(headers))
        for name, content in headers:
            text = name.encode()
            _put(one, len(text))
            one += text
            if content is None:
                one.append(1)
            else:
                _put(one, len(content))
                one += content
        _put(out, len(one))
        out += one
    return out
