# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""The loops over the records of an uncompressed body. Compiled where a C compiler was there, with the C types of
`_walk.pxd`; else this same file runs as it stands.

A body is records one after the other, each led by its length as a zigzag varint. Every bound is checked by hand here,
as the compiled code has no checks of its own. Source: Kafka's message format v2 (KIP-98).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Buffer = bytes | bytearray | memoryview

COMPILED = not __file__.endswith(".py")
"""Whether the native build of this file runs."""

_SMALLEST = 12
"""Zigzag length of the smallest record: attributes, two deltas, two lengths and a header count of one byte each."""


def count_records(body: Buffer, at: int, end: int) -> int:
    """How many records lie in body[at:end]; -1 where their lengths do not fill it exactly."""
    if at < 0 or end > len(body):
        return -1
    count = 0
    while at < end:
        byte = body[at]
        at += 1
        length = byte & 0x7F
        shift = 7
        while byte > 0x7F:
            if at >= end or shift > 28:
                return -1
            byte = body[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
        if length & 1 or length < _SMALLEST:
            return -1
        at += length >> 1
        count += 1
    return count if at == end else -1


def null_keys(body: Buffer, at: int, end: int, expected: int) -> list[int] | None:
    """The indexes of records without a key in body[at:end]; None where the records are not `expected` or malformed."""
    if at < 0 or end > len(body):
        return None
    found: list[int] = []
    count = 0
    while at < end:
        byte = body[at]
        at += 1
        length = byte & 0x7F
        shift = 7
        while byte > 0x7F:
            if at >= end or shift > 28:
                return None
            byte = body[at]
            at += 1
            length |= (byte & 0x7F) << shift
            shift += 7
        if length & 1 or length < _SMALLEST:
            return None
        stop = at + (length >> 1)
        if stop > end:
            return None
        at += 1
        # the timestamp delta (at most 10 bytes) and the offset delta, by their continuation bits alone
        while at < stop and body[at] > 0x7F:
            at += 1
        at += 1
        while at < stop and body[at] > 0x7F:
            at += 1
        at += 1
        if at >= stop:
            return None
        if body[at] == 1:
            found.append(count)
        at = stop
        count += 1
    return found if count == expected and at == end else None


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
        if length < _SMALLEST >> 1 or stop > end:
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
