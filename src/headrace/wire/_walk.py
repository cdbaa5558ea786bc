# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""The loops over the records of a body that is not compressed (any more). Compiled where a C compiler was there, with
the C types of `_walk.pxd`; else this same file runs uncompiled.

A body is records one after the other, each led by its length as a zigzag varint. Every bound is checked by hand here,
as the compiled code has no checks of its own. Source: Kafka's message format v2 (KIP-98).
"""

from __future__ import annotations

from array import array
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
_WORD = 0xFFFFFFFFFFFFFFFF

MAP_HEAD = _MAP_HEAD = 3
MAP_SLOT = _MAP_SLOT = 3
"""Words of a map of keys before its slots, and of a slot; see `take_keys`."""

_SIP_A = 0x736F6D6570736575
_SIP_B = 0x646F72616E646F6D
_SIP_C = 0x6C7967656E657261
_SIP_D = 0x7465646279746573


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
    timestamp, offset, _, key_size, _, stop = _fields(body, at, end)
    return timestamp, offset, key_size, stop


def _fields(body: Buffer, at: int, end: int) -> tuple[int, int, int, int, int, int]:
    """(timestamp delta, offset delta, where the key begins, its length, that of the value, where the record ends)."""
    length, at = _number(body, at, end)
    if at < 0 or length < _SMALLEST or length > end - at:
        return 0, 0, 0, 0, 0, -1
    stop = at + length
    timestamp, at = _number(body, at + 1, stop)
    offset, at = _number(body, at, stop)
    key_size, key_at = _number(body, at, stop)
    value_size, at = _number(body, _skip(key_at, key_size, stop), stop)
    at = _skip(at, value_size, stop)
    if at < 0:
        return 0, 0, 0, 0, 0, -1
    if at != stop - 1 or body[at] != 0:  # there are headers
        stop = _headers(body, at, stop)
    return timestamp, offset, key_at, key_size, value_size, stop


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


# --- compaction
#
# The map of keys is an array of "Q": a secret of two words, how many keys it holds, then three words a slot: a key's
# digest of 128 bits, and its last offset plus one (0: the slot is free). Keys that collide would lose a record, so the
# digest is SipHash-2-4 with a secret: nobody finds two that do. Source: Aumasson and Bernstein, "SipHash: a fast
# short-input PRF", and its authors' variant of 128 bits.


def _round(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    a = (a + b) & _WORD
    b = ((b << 13 | b >> 51) & _WORD) ^ a
    a = (a << 32 | a >> 32) & _WORD
    c = (c + d) & _WORD
    d = ((d << 16 | d >> 48) & _WORD) ^ c
    a = (a + d) & _WORD
    d = ((d << 21 | d >> 43) & _WORD) ^ a
    c = (c + b) & _WORD
    b = ((b << 17 | b >> 47) & _WORD) ^ c
    c = (c << 32 | c >> 32) & _WORD
    return a, b, c, d


def _digest(body: Buffer, at: int, size: int, first: int, second: int) -> tuple[int, int]:
    """The SipHash-2-4 of body[at:at + size] in two words, with the secret (first, second)."""
    a, b, c, d = first ^ _SIP_A, second ^ _SIP_B ^ 0xEE, first ^ _SIP_C, second ^ _SIP_D
    left = size
    done = False
    while not done:
        done = left < 8
        word = (size & 0xFF) << 56 if done else 0
        for index in range(left if done else 8):
            byte = body[at + index]
            word |= byte << (8 * index)
        d ^= word
        a, b, c, d = _round(a, b, c, d)
        a, b, c, d = _round(a, b, c, d)
        a ^= word
        at += 8
        left -= 8
    c ^= 0xEE
    for _ in range(4):
        a, b, c, d = _round(a, b, c, d)
    word = a ^ b ^ c ^ d
    b ^= 0xDD
    for _ in range(4):
        a, b, c, d = _round(a, b, c, d)
    return word, a ^ b ^ c ^ d


def _slot(table: Any, first: int, second: int) -> int:
    """Where a map holds that digest, or the free slot where it is to go. There always is a free one."""
    at = _MAP_HEAD + _MAP_SLOT * (first % ((len(table) - _MAP_HEAD) // _MAP_SLOT))
    while table[at + 2] != 0 and (table[at] != first or table[at + 1] != second):
        at += _MAP_SLOT
        if at == len(table):
            at = _MAP_HEAD
    return at


def take_keys(
    body: Buffer, at: int, end: int, base_offset: int, from_offset: int, keys_max: int, table: Any, found: array[int]
) -> int:
    """Takes the keys of the records in body[at:end] into a map, those from an offset on, without the interpreter's lock
    where compiled. Returns where it stopped: at `end`, or at a record whose key would be one more than `keys_max`.

    The map has more slots than that. `found`, an array of "q", gets how many records were taken or passed over, added
    to what is there, and the offset of the last that was looked at. MALFORMED where one cannot be read.
    """
    if at < 0 or end > len(body) or at >= end:
        return at if 0 <= at == end <= len(body) else _MALFORMED
    if COMPILED:
        return _take_keys_compiled(body, at, end, base_offset, from_offset, keys_max, table, found)  # type: ignore[name-defined,no-any-return]  # noqa: F821
    return _take_keys(body, at, end, base_offset, from_offset, keys_max, table, found)


def _take_keys(
    body: Buffer, at: int, end: int, base_offset: int, from_offset: int, keys_max: int, table: Any, found: array[int]
) -> int:
    while at < end:
        _, offset, key_at, key_size, _, stop = _fields(body, at, end)
        if stop < 0 or _overflows(base_offset, offset):
            return _MALFORMED
        offset += base_offset
        found[1] = offset
        if key_size >= 0 and offset >= from_offset:
            first, second = _digest(body, key_at, key_size, table[0], table[1])
            slot = _slot(table, first, second)
            if table[slot + 2] == 0:
                if table[2] >= keys_max:
                    return at
                table[2] += 1
                table[slot] = first
                table[slot + 1] = second
            table[slot + 2] = offset + 1
        found[0] += 1
        at = stop
    return at


def move_keys(old: Any, new: Any) -> None:
    """Takes the keys of one map, and its secret, into another that is empty and larger."""
    if COMPILED:
        _move_keys_compiled(old, new)  # type: ignore[name-defined]  # noqa: F821
    else:
        _move_keys(old, new)


def _move_keys(old: Any, new: Any) -> None:
    for index in range(_MAP_HEAD):
        new[index] = old[index]
    at = _MAP_HEAD
    while at < len(old):
        if old[at + 2] != 0:
            slot = _slot(new, old[at], old[at + 1])
            for index in range(_MAP_SLOT):
                new[slot + index] = old[at + index]
        at += _MAP_SLOT


def retain(
    body: Buffer,
    at: int,
    end: int,
    base_offset: int,
    end_offset: int,
    tombstones: bool,
    shift: int,
    table: Any,
    out: Buffer | None,
    found: array[int],
) -> int:
    """Writes those of the records in body[at:end] that compaction keeps into `out`; None counts alone. Without the
    interpreter's lock where compiled.

    They are those from `end_offset` on, where the map of keys ends, and below it the last ones of their keys; null
    values among these with `tombstones` alone. `shift` is taken off the delta of every timestamp. Returns the bytes of
    the kept ones. `found`, an array of "q", gets how many records there are, how many are kept, how many of these are
    null, and the smallest and the largest of their timestamp deltas before the shift. MALFORMED where one cannot be
    read.
    """
    if at < 0 or end > len(body) or at >= end:
        return 0 if 0 <= at == end <= len(body) else _MALFORMED
    if COMPILED:
        return _retain_compiled(body, at, end, base_offset, end_offset, tombstones, shift, table, out, found)  # type: ignore[name-defined,no-any-return]  # noqa: F821
    return _retain(body, at, end, base_offset, end_offset, tombstones, shift, table, out, out is not None, found)


def _retain(
    body: Buffer,
    at: int,
    end: int,
    base_offset: int,
    end_offset: int,
    tombstones: bool,
    shift: int,
    table: Any,
    out: Any,
    writes: bool,
    found: array[int],
) -> int:
    size = 0
    found[0] = found[1] = found[2] = 0
    found[3] = _LONG_MAX
    found[4] = -_LONG_MAX - 1
    while at < end:
        begin = at
        delta, offset, key_at, key_size, value_size, at = _fields(body, begin, end)
        if at < 0 or _overflows(base_offset, offset):
            return _MALFORMED
        found[0] += 1
        offset += base_offset
        if offset < end_offset:
            if key_size < 0 or (value_size < 0 and not tombstones):
                continue
            first, second = _digest(body, key_at, key_size, table[0], table[1])
            last = table[_slot(table, first, second) + 2]
            if offset + 1 < last:
                continue
        found[1] += 1
        if value_size < 0:
            found[2] += 1
        found[3] = min(found[3], delta)
        found[4] = max(found[4], delta)
        size = _keep(body, begin, at, delta, shift, out, size, writes)
    return size


def _keep(body: Buffer, at: int, end: int, delta: int, shift: int, out: Any, to: int, writes: bool) -> int:
    """Copies a record behind out[:to], with its timestamp shifted; returns where it ends there."""
    if shift:
        _, at = _number(body, at, end)
        attributes = at
        _, at = _number(body, at + 1, end)
        delta -= shift
        to = _set(out, to, 1 + _set(out, 0, delta, False) + end - at, writes)
        if writes:
            out[to] = body[attributes]
        to = _set(out, to + 1, delta, writes)
    if writes:
        for index in range(end - at):
            out[to + index] = body[at + index]
    return to + end - at


def _set(out: Any, at: int, value: int, writes: bool) -> int:
    """Puts a zigzag varint at out[at:], or counts it; returns where it ends."""
    zigzag = ((value << 1) ^ (value >> 63)) & _WORD
    while zigzag > 0x7F:
        if writes:
            out[at] = zigzag & 0x7F | 0x80
        zigzag >>= 7
        at += 1
    if writes:
        out[at] = zigzag
    return at + 1
