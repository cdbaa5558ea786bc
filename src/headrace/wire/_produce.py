# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""The loops over what plain Produce requests bring, and over their answers. Compiled where a C compiler was there, with
the C types of `_produce.pxd`; else this same file runs.

Every bound is checked by hand here, as the compiled code has no checks of its own. Source: Kafka's Produce request from
version 9 on, and message format v2 (KIP-98).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from headrace.wire._walk import largest_timestamp

Buffer = bytes | bytearray | memoryview

COMPILED = not __file__.endswith(".py")
"""Whether the native build of this file runs."""

NOT_PLAIN = _NOT_PLAIN = -1
"""What `check` answers where a batch has to be looked at in full. Two names: a number of C is no attribute."""

_HEADER_BYTES = 61
_ATTRIBUTES_AT = 22
_CHECKED_FROM = 21
"""What the checksum of a batch covers begins here."""
_SPECIAL_BITS = 0x78
"""Of the attributes: timestamp type, transactional, control, delete horizon."""
_CODEC_BITS = 0x07
_CODEC_MAX = 4
_LENGTH_BYTES_MAX = 4
"""The most bytes of a length: larger ones occur in no request of several partitions."""


def _big(data: Any, at: int, count: int) -> int:
    """A signed number of `count` bytes, the most significant first."""
    value: int = data[at]
    if value >= 0x80:
        value -= 0x100
    for index in range(at + 1, at + count):
        value = value * 0x100 + data[index]
    return value


def _put(data: Any, at: int, count: int, value: int) -> None:
    """Writes what `_big` reads."""
    for index in range(count):
        data[at + count - 1 - index] = value & 0xFF
        value >>= 8


# --- requests


def records_of(
    frame: Buffer, at: int, end: int, gaps: list[bytes], forbidden: int, places: array[int], chunks: list[list[Any]]
) -> bool:
    """Whether `frame[at:end]` is gaps[0], records, gaps[1], records, ... gaps[-1], and no records have attributes of
    `forbidden`: appends each of them to its one of `chunks` then, and nothing otherwise.

    Records are led by their length as in a compact field, and have room for the header of a batch. `frame` is a
    memoryview; `places`, an array of "q" with two for each of `chunks`, is written over.
    """
    if at < 0 or end > len(frame) or len(gaps) != len(chunks) + 1 or len(places) < 2 * len(chunks):
        return False
    if COMPILED:
        found = _places_compiled(frame, at, end, gaps, forbidden, places)  # type: ignore[name-defined]  # noqa: F821
    else:
        found = _places(frame, at, end, gaps, forbidden, places)
    if not found:
        return False
    for index in range(len(chunks)):
        chunks[index].append(frame[places[2 * index] : places[2 * index + 1]])
    return True


def _places(frame: Any, at: int, end: int, gaps: list[bytes], forbidden: int, places: Any) -> bool:
    """Where each of the records begins and ends; see `records_of`."""
    last = len(gaps) - 1
    for index in range(last + 1):
        gap = gaps[index]
        size = len(gap)
        if size > end - at or not _same(frame, at, gap, size):
            return False
        at += size
        if index == last:
            break
        size = 0
        shift = 0
        while True:
            if at >= end or shift == 7 * _LENGTH_BYTES_MAX:
                return False
            byte = frame[at]
            at += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        size -= 1
        if size < _HEADER_BYTES or size > end - at or frame[at + _ATTRIBUTES_AT] & forbidden:
            return False
        places[2 * index] = at
        at += size
        places[2 * index + 1] = at
    return at == end


def _same(frame: Any, at: int, gap: Any, size: int) -> bool:
    index = 0
    while index < size and frame[at + index] == gap[index]:
        index += 1
    return index == size


# --- batches


def check(chunks: Sequence[Any], latest: int, most: int, crc: Callable[[Any], int], found: array[int]) -> int:
    """Whether each of the chunks is a plain batch in memory that may be written to: whole, untouched, of at most `most`
    bytes, not of a transaction, with timestamps from 0 to `latest`.

    NOT_PLAIN where one is not; else 1 where one has a sequence, and 0. `found`, an array of "q", has three parts of one
    more than there are chunks: offsets, positions and timestamps. The first of the first two is there, and each gets
    what follows a batch; the third gets the largest timestamp of each batch, and then the largest of these.
    """
    count = len(chunks)
    if len(found) != 3 * (count + 1):
        return _NOT_PLAIN
    sequenced = 0
    newest = 0
    for index in range(count):
        chunk = chunks[index]
        if type(chunk) is not memoryview:
            return _NOT_PLAIN
        if COMPILED:
            records, timestamp, is_sequenced = _checked_compiled(chunk, latest, most, crc)  # type: ignore[name-defined]  # noqa: F821
        else:
            records, timestamp, is_sequenced = _checked(chunk, latest, most, crc)
        if records <= 0:
            return _NOT_PLAIN
        sequenced |= is_sequenced
        newest = max(newest, timestamp)
        found[index + 1] = found[index] + records
        found[count + index + 2] = found[count + index + 1] + len(chunk)
        found[2 * count + 2 + index] = timestamp
    found[3 * count + 2] = newest
    return sequenced


def _checked(chunk: memoryview, latest: int, most: int, crc: Callable[[Any], int]) -> tuple[int, int, int]:
    """The records of a batch, its largest timestamp, and whether it has a sequence; 0 records where it is not plain."""
    if chunk.readonly:
        return 0, 0, 0
    records, timestamp, sequenced = _header(chunk, len(chunk), latest, most)
    if records <= 0:
        return 0, 0, 0
    if not chunk[_ATTRIBUTES_AT] & _CODEC_BITS:
        base_timestamp = _big(chunk, 27, 8)
        if largest_timestamp(chunk, _HEADER_BYTES, len(chunk), records, base_timestamp) != timestamp:
            return 0, 0, 0
    if crc(chunk[_CHECKED_FROM:]) != _big(chunk, 17, 4) & 0xFFFFFFFF:
        return 0, 0, 0
    return records, timestamp, sequenced


def _header(data: Any, size: int, latest: int, most: int) -> tuple[int, int, int]:
    """As `_checked`, by the header alone."""
    if size < _HEADER_BYTES or size > most or _big(data, 0, 8) or _big(data, 8, 4) + 12 != size or data[16] != 2:
        return 0, 0, 0
    attributes = data[_ATTRIBUTES_AT]
    if attributes & _SPECIAL_BITS or (attributes & _CODEC_BITS) > _CODEC_MAX:
        return 0, 0, 0
    records = _big(data, 57, 4)
    timestamp = _big(data, 35, 8)
    sequenced = _big(data, 43, 8) >= 0
    if _big(data, 23, 4) + 1 != records or timestamp < 0 or timestamp > latest:
        return 0, 0, 0
    if sequenced and _big(data, 53, 4) < 0:
        return 0, 0, 0
    return records, timestamp, sequenced


def stamp(chunks: Sequence[Any], offsets: array[int], leader_epoch: int) -> None:
    """Gives checked batches their offsets and their leader's epoch, where they lie."""
    for index in range(len(chunks)):
        if COMPILED:
            _stamp_compiled(chunks[index], offsets[index], leader_epoch)  # type: ignore[name-defined]  # noqa: F821
        else:
            _stamp(chunks[index], offsets[index], leader_epoch)


def _stamp(data: Any, offset: int, leader_epoch: int) -> None:
    _put(data, 0, 8, offset)
    _put(data, 12, 4, leader_epoch)


# --- answers


def put(block: bytearray, at: int, step: int, count: int, width: int, values: array[int], first: int) -> None:
    """Writes `count` numbers of `width` bytes, those from values[first] on, into the block: one at `at`, and the others
    `step` bytes behind each other."""
    assert at >= 0 and step >= 0 and first >= 0 and count >= 0, "places begin at 0"
    if count:
        assert at + (count - 1) * step + width <= len(block) and first + count <= len(values), "there is room"
    if COMPILED:
        _put_all_compiled(block, at, step, count, width, values, first)  # type: ignore[name-defined]  # noqa: F821
    else:
        _put_all(block, at, step, count, width, values, first)


def _put_all(block: Any, at: int, step: int, count: int, width: int, values: Any, first: int) -> None:
    for index in range(count):
        _put(block, at + index * step, width, values[first + index])
