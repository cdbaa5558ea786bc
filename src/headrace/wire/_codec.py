# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
"""Records as objects, out of a body that is not compressed (any more) and into one: for those who open batches, which
produce, fetch and compaction do not. Compiled where a C compiler was there, with the C types of `_codec.pxd`; else this
same file runs uncompiled.

Every bound is checked by hand here, as the compiled code has no checks of its own. Source: Kafka's message format v2
(KIP-98).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_SMALLEST = 6
"""Length of the smallest record: attributes, two deltas, two lengths and a header count of one byte each."""


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
