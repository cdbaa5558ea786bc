"""What the generated codecs share: errors, limits, variable-length integers and runs of numbers.

A compact length is an unsigned varint of the length plus one; zero is null. The generated code reads its first byte,
which is all of it below 128, and calls here for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct, pack, unpack_from

from headrace.wire.file_slice import FileSlice

Buffer = bytes | bytearray | memoryview
Records = bytes | bytearray | memoryview | FileSlice | None
Part = bytes | bytearray | memoryview | FileSlice

MAX_ELEMENTS = 1_000_000
"""Elements that one array may announce."""
MAX_TAGS = 10_000
"""Tagged fields that one struct may announce."""
MAX_STRING = 32_767
"""Bytes of one string."""
REQUEST_ELEMENT_BYTES = 4 * 1024 * 1024
"""What the elements of all arrays of a request may take at least, together: what a client can make a server hold."""
OTHER_ELEMENT_BYTES = 256 * 1024 * 1024
"""The same for responses and records."""
INLINE_BYTES = 1024
"""Records up to this size are copied into the part before them: cheaper than a part of their own."""

new = object.__new__


class DecodeError(Exception):
    """Bytes that are not what they should be; the message says where."""


class EncodeError(Exception):
    """A value that the version at hand cannot say."""


def bad_count(path: str, count: int) -> DecodeError:
    if count < 0:
        return DecodeError(f"{path} is null or has a negative count")
    return DecodeError(f"{path} announces {count} elements, more than the limit or its frame can hold")


def unknown_version(name: str, version: int) -> DecodeError:
    return DecodeError(f"{name} has no version {version}")


def unreadable(name: str, version: int, error: Exception) -> DecodeError:
    if isinstance(error, UnicodeDecodeError):
        return DecodeError(f"{name} version {version} has a string that is not UTF-8")
    return DecodeError(f"{name} version {version} ends too early")


def not_in_version(path: str, version: int) -> EncodeError:
    return EncodeError(f"{path} is set, and version {version} does not have it")


def null_in_version(path: str, version: int) -> EncodeError:
    return EncodeError(f"{path} is null, which version {version} does not allow")


def unencodable_version(name: str, version: int) -> EncodeError:
    return EncodeError(f"{name} has no version {version}")


def unsayable(name: str, version: int, error: Exception) -> EncodeError:
    return EncodeError(f"{name} version {version} cannot be encoded: {error}")


# --- reading


def read_varint(data: Buffer, at: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits, and where it ends."""
    byte = data[at]
    if byte < 128:
        return byte, at + 1
    return _rest_of_varint(data, at + 1, byte)


def _rest_of_varint(data: Buffer, at: int, first: int) -> tuple[int, int]:
    value = first & 0x7F
    shift = 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                raise DecodeError("a varint is longer than 32 bits")
            return value, at
        shift += 7
        if shift > 28:
            raise DecodeError("a varint is longer than 5 bytes")


_SHORT = [Struct(f"{size}s").unpack_from for size in range(128)]
CLASSIC = _SHORT
"""By the length of a string or bytes: how to take them out of a buffer."""
COMPACT = [_SHORT[0], *_SHORT]
"""The same by the compact length, which is one more."""


def long_length(data: Buffer, at: int, first: int, path: str) -> tuple[int, int]:
    """A compact length whose first byte says that there is more, or that it is null; refuses what the frame lacks."""
    if first == 0:
        raise DecodeError(f"{path} is null")
    value, at = _rest_of_varint(data, at, first)
    if not 0 < value <= len(data) - at + 1:
        raise DecodeError(f"{path} has a length of {value - 1}, more than its frame")
    return value, at


def long_bytes(data: Buffer, at: int, first: int, path: str) -> tuple[bytes, int]:
    """Compact bytes that are not short, and where they end."""
    value, at = long_length(data, at, first, path)
    end = at + value - 1
    return bytes(data[at:end]), end


def long_string(data: Buffer, at: int, first: int, path: str) -> tuple[str, int]:
    """A compact string that is not short, and where it ends."""
    value, at = long_length(data, at, first, path)
    if value > MAX_STRING + 1:
        raise DecodeError(f"{path} has a length of {value - 1}, more than a string can have")
    end = at + value - 1
    return str(data[at:end], "utf-8"), end


def classic_bytes(data: Buffer, at: int, length: int, path: str) -> tuple[bytes, int]:
    """Bytes that are not short, and where they end."""
    end = _classic_end(data, at, length, path)
    return bytes(data[at:end]), end


def classic_string(data: Buffer, at: int, length: int, path: str) -> tuple[str, int]:
    """A string that is not short, and where it ends."""
    end = _classic_end(data, at, length, path)
    return str(data[at:end], "utf-8"), end


def _classic_end(data: Buffer, at: int, length: int, path: str) -> int:
    if length < 0:
        raise DecodeError(f"{path} is null" if length == -1 else f"{path} has a negative length")
    if length > len(data) - at:
        raise DecodeError(f"{path} has a length of {length}, more than its frame")
    return at + length


def long_count(data: Buffer, at: int, first: int, path: str) -> tuple[int, int]:
    """The compact count of an array, where its first byte says that there is more, or that it is null."""
    if first == 0:
        raise DecodeError(f"{path} is null")
    value, at = _rest_of_varint(data, at, first)
    if not 0 < value <= MAX_ELEMENTS + 1:
        raise bad_count(path, value - 1)
    return value, at


def long_tag_count(data: Buffer, at: int, first: int) -> tuple[int, int]:
    """The same for the number of tagged fields."""
    value, at = _rest_of_varint(data, at, first)
    if value > MAX_TAGS or value * 2 > len(data) - at:
        raise DecodeError(f"a struct announces {value} tagged fields, more than the limit or its frame can hold")
    return value, at


def read_tag(data: Buffer, at: int) -> tuple[int, int, int]:
    """The number and size of a tagged field, and where it starts."""
    tag, at = read_varint(data, at)
    length, at = read_varint(data, at)
    if length > len(data) - at:
        raise DecodeError(f"tagged field {tag} has a length of {length}, more than its frame")
    return tag, length, at


def skip_tags(data: Buffer, at: int, first: int) -> int:
    """Where the tagged fields end; `first` is the first byte of their number."""
    count, at = (first, at) if first < 128 else long_tag_count(data, at, first)
    for _ in range(count):
        _, length, at = read_tag(data, at)
        at += length
    return at


_FEW = 17
_INT8 = [Struct(f">{count}b") for count in range(_FEW)]
_INT16 = [Struct(f">{count}h") for count in range(_FEW)]
_INT32 = [Struct(f">{count}i") for count in range(_FEW)]
_INT64 = [Struct(f">{count}q") for count in range(_FEW)]


def read_int8s(data: Buffer, at: int, count: int) -> list[int]:
    if count < _FEW:
        return list(_INT8[count].unpack_from(data, at))
    return list(unpack_from(f">{count}b", data, at))


def read_int16s(data: Buffer, at: int, count: int) -> list[int]:
    if count < _FEW:
        return list(_INT16[count].unpack_from(data, at))
    return list(unpack_from(f">{count}h", data, at))


def read_int32s(data: Buffer, at: int, count: int) -> list[int]:
    if count < _FEW:
        return list(_INT32[count].unpack_from(data, at))
    return list(unpack_from(f">{count}i", data, at))


def read_int64s(data: Buffer, at: int, count: int) -> list[int]:
    if count < _FEW:
        return list(_INT64[count].unpack_from(data, at))
    return list(unpack_from(f">{count}q", data, at))


def read_uuids(data: Buffer, at: int, count: int) -> list[bytes]:
    end = at + 16 * count
    if end > len(data):
        raise DecodeError(f"{count} ids reach beyond their frame")
    return [bytes(data[place : place + 16]) for place in range(at, end, 16)]


# --- writing


def varint(value: int) -> bytes:
    """An unsigned varint."""
    if value < 128:
        return bytes((value,))
    return long_varint(value)


def long_varint(value: int) -> bytes:
    """An unsigned varint of two bytes or more."""
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_varint(value: int) -> bytes:
    """The compact length of a string, of two bytes or more; raises EncodeError where the string is too long."""
    if value > MAX_STRING + 1:
        raise EncodeError(f"a string of {value - 1} bytes is too long")
    return long_varint(value)


def pack_int8s(values: list[int]) -> bytes:
    return pack(f">{len(values)}b", *values)


def pack_int16s(values: list[int]) -> bytes:
    return pack(f">{len(values)}h", *values)


def pack_int32s(values: list[int]) -> bytes:
    count = len(values)
    return _INT32[count].pack(*values) if count < _FEW else pack(f">{count}i", *values)


def pack_int64s(values: list[int]) -> bytes:
    count = len(values)
    return _INT64[count].pack(*values) if count < _FEW else pack(f">{count}q", *values)


def pack_uuids(values: list[bytes]) -> bytes:
    for value in values:
        if len(value) != 16:
            raise EncodeError("an id is not 16 bytes long")
    return b"".join(values)


def join_parts(parts: Iterable[Part]) -> bytes:
    """The parts as one piece; file slices are read, which may block."""
    return b"".join([part.read() if isinstance(part, FileSlice) else part for part in parts])
