"""How far Kafka's own reader reads a compressed body: frames, members and streams, and what may lie behind them.

Sources: the readers that Kafka's Java clients and brokers use, `Lz4BlockInputStream`, `java.util.zip.GZIPInputStream`,
`SnappyInputStream` of snappy-java and `ZstdInputStreamNoFinalizer` of zstd-jni; RFC 1952 and 8878. What they leave
unread depends on how much they read at once, which is followed here: a body is read alike on both sides.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

from headrace.wire.batch import CorruptBatch
from headrace.wire.primitives import Buffer

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_HEAD: Final[int] = struct.unpack(">i", XERIAL_MAGIC[:4])[0]
_HEADERS_MAX: Final = 1000
"""Headers of snappy streams one behind the other, without a block: Kafka's reader takes each a call deeper."""
_LZ4_MAGIC: Final = 0x184D2204
_ZSTD_MAGIC: Final = 0xFD2FB528
_SKIPPABLE: Final = 0x184D2A50
_ZSTD_BLOCK: Final = 128 * 1024
_ZSTD_READ_BYTES: Final = 128 * 1024 + 3
"""What zstd-jni reads at once."""
_GZIP_READ_BYTES: Final = 8192
"""What Kafka gives Java's gzip reader to read at once."""
_GZIP_REST_BYTES: Final = 26
"""Java looks for no other member where all that is left is in its hands and no more than this: a trailer, a header and
a trailer."""
_PIECE_BYTES: Final = 1 << 10, 1 << 16
_INFLATED_BYTES: Final = 1 << 20


class BodyTooLarge(CorruptBatch):
    """A body that opens to more than its reader wants to hold."""


# --- lz4


def lz4_frame(data: Buffer, narrow: bool) -> Buffer:
    """The one frame that Kafka reads, without what Kafka does not look at: content size and content checksum.

    `narrow`: only what Kafka's reader reads, that is a frame of independent blocks, without a dictionary, at the very
    beginning. Raises `CorruptBatch`.
    """
    view = memoryview(data)
    start, flags, at = _lz4_header(view)
    if narrow and start:
        raise CorruptBatch("an lz4 body begins with a frame to skip, which Kafka's reader does not know")
    if narrow and flags & 0x21 != 0x20:
        raise CorruptBatch("the blocks of an lz4 body are linked or need a dictionary, which Kafka's reader refuses")
    if _xxh32_short(bytes(view[start + 4 : at - 1])) >> 8 & 0xFF != view[at - 1]:
        raise CorruptBatch("the header of an lz4 frame has another checksum")
    end = max(_lz4_ends(view, at, flags))
    if flags & 0x04 and end + 4 > len(view):
        raise CorruptBatch("an lz4 frame ends before its checksum")
    if not flags & 0x0D:
        return view[start:end]
    about = bytes((flags & ~0x0D, view[start + 5]))
    head = struct.pack("<I", _LZ4_MAGIC) + about + bytes((_xxh32_short(about) >> 8 & 0xFF,))
    return b"".join((head, view[at:end]))


def lz4_blocks(data: Buffer) -> Iterator[int]:
    """How large each block of the frame can become."""
    view = memoryview(data)
    start, flags, at = _lz4_header(view)
    block = 1 << (8 + 2 * (view[start + 5] >> 4 & 7))
    for _ in _lz4_ends(view, at, flags):
        yield block


def _lz4_header(view: memoryview) -> tuple[int, int, int]:
    """Where the frame begins, its flags, and where its blocks begin."""
    at = 0
    (magic,) = struct.unpack_from("<I", view, at)
    while magic & 0xFFFFFFF0 == _SKIPPABLE:
        at += 8 + int(struct.unpack_from("<I", view, at + 4)[0])
        (magic,) = struct.unpack_from("<I", view, at)
    if magic != _LZ4_MAGIC:
        raise CorruptBatch("an lz4 body is not an lz4 frame")
    flags = view[at + 4]
    return at, flags, at + 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)


def _lz4_ends(view: memoryview, at: int, flags: int) -> Iterator[int]:
    """Where each block ends; the end mark is the last of them."""
    checksum = 4 if flags & 0x10 else 0
    length = 1
    while length:
        (length,) = struct.unpack_from("<I", view, at)
        at += 4 + ((length & 0x7FFFFFFF) + checksum if length else 0)
        yield at


def _xxh32_short(data: bytes) -> int:
    """The checksum XXH32 of less than 16 bytes, as the header of a frame has."""
    total = 374761393 + len(data)
    whole = len(data) & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        total = _turned(total + word * 3266489917, 17) * 668265263
    for byte in data[whole:]:
        total = _turned(total + byte * 374761393, 11) * 2654435761
    total &= 0xFFFFFFFF
    total = (total ^ total >> 15) * 2246822519 & 0xFFFFFFFF
    total = (total ^ total >> 13) * 3266489917 & 0xFFFFFFFF
    return total ^ total >> 16


def _turned(value: int, by: int) -> int:
    value &= 0xFFFFFFFF
    return (value << by | value >> 32 - by) & 0xFFFFFFFF


# --- zstd


def zstd_frames(data: Buffer) -> memoryview:
    """The whole frames of a body: Kafka's reader does not mind the beginning of another one behind them."""
    return memoryview(data)[: max((end for end, _ in _zstd_ends(data)), default=0)]


def zstd_blocks(data: Buffer) -> Iterator[int]:
    """How large each block of the frames can become."""
    for _, size in _zstd_ends(data):
        yield size


def _zstd_ends(data: Buffer) -> Iterator[tuple[int, int]]:
    """Where each block and each frame ends, and how large it can become (RFC 8878)."""
    at, size = 0, len(data)
    while at < size and not _zstd_rest(data, at):
        (magic,) = struct.unpack_from("<I", data, at)
        if magic & 0xFFFFFFF0 == _SKIPPABLE:
            at += 8 + int(struct.unpack_from("<I", data, at + 4)[0])
            yield at, 0
            continue
        if magic != _ZSTD_MAGIC:
            raise CorruptBatch("a zstd body is not a zstd frame")
        flags = data[at + 4]
        single = flags >> 5 & 1
        content = (single, 2, 4, 8)[flags >> 6]
        at += 5 + (1 - single) + (0, 1, 2, 4)[flags & 3] + content
        last = 0
        while not last:
            header = data[at] | data[at + 1] << 8 | data[at + 2] << 16
            last, kind, length = header & 1, header >> 1 & 3, header >> 3
            at += 3 + (1 if kind == 1 else length)
            yield at, _ZSTD_BLOCK if kind == 2 else min(length, _ZSTD_BLOCK)
        at += 4 if flags & 4 else 0
        yield at, 0


def _zstd_rest(data: Buffer, at: int) -> bool:
    """Whether what begins at `at` is a magic number or the beginning of a frame to skip, and nothing behind it, and was
    read together with the frame before it."""
    size = len(data)
    if not at or at % _ZSTD_READ_BYTES == 0 or at // _ZSTD_READ_BYTES != (size - 1) // _ZSTD_READ_BYTES:
        return False
    head = bytes(data[at : at + 8])
    skippable = head[0] & 0xF0 == 0x50 and b"\x2a\x4d\x18".startswith(head[1:4])
    if skippable:
        return len(head) < 8 or struct.unpack_from("<I", head, 4)[0] > size - at - 8
    return len(head) <= 4 and struct.pack("<I", _ZSTD_MAGIC).startswith(head)


# --- snappy


def snappy_pieces(data: Buffer) -> Iterator[memoryview]:
    """The blocks of a snappy body: of streams as Kafka's clients write them, or the one raw block that it is.

    The versions of the first stream are not looked at, and up to three bytes behind the last block are not read. A
    second header with another magic, which Java's reader takes for the end once and then reads on, is refused.
    """
    view = memoryview(data)
    end = len(view)
    if end < len(XERIAL_HEADER) or bytes(view[:8]) != XERIAL_MAGIC:
        yield view
        return
    at, headers = len(XERIAL_HEADER), 1
    while at + 4 <= end:
        (length,) = struct.unpack_from(">i", view, at)
        if length == _XERIAL_HEAD:
            (version,) = struct.unpack_from(">i", view, at + 8)
            headers += 1
            if bytes(view[at : at + 8]) != XERIAL_MAGIC or version < 1 or end - at < len(XERIAL_HEADER):
                raise CorruptBatch("a second stream of snappy has a header that Kafka's reader refuses")
            if headers > _HEADERS_MAX:
                raise CorruptBatch(f"more than {_HEADERS_MAX} streams of snappy hold nothing")
            at += len(XERIAL_HEADER)
            continue
        at += 4
        headers = 0
        if length < 0 or length > end - at:
            raise CorruptBatch("a snappy block is longer than its body")
        yield view[at : at + length]
        at += length


# --- gzip


def gunzip(data: Buffer, out: memoryview) -> int:
    """Fill `out` with the content of the members, as far as Java's reader reads them; returns its length.

    Raises `BodyTooLarge` where that is more, `CorruptBatch`, `zlib.error` and `struct.error`. The interpreter's lock is
    free meanwhile.
    """
    body = bytes(data)
    end = len(body)
    at = read_to = _gzip_header(body, 0)
    if at < 0:
        raise CorruptBatch("a gzip body does not begin with a header")
    filled = 0
    while True:
        start = filled
        at, filled, checksum = _inflate(body, at, out, filled)
        if struct.unpack_from("<II", body, at) != (checksum, filled - start & 0xFFFFFFFF):
            raise CorruptBatch("a gzip member has another checksum or length")
        while read_to < at:
            read_to = min(read_to + _GZIP_READ_BYTES, end)
        if read_to - at <= _GZIP_REST_BYTES and max(read_to, at + 8) >= end:
            return filled
        following = _gzip_header(body, at + 8)
        if following < 0:
            return filled
        at = following
        read_to = max(read_to, at)


def _inflate(body: bytes, at: int, out: memoryview, filled: int) -> tuple[int, int, int]:
    """One deflate stream: where it ends, how much of `out` is filled then, and the checksum of its content."""
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    view = memoryview(body)
    checksum = 0
    step, largest = _PIECE_BYTES
    while not stream.eof:
        piece: Buffer = view[at : at + step]
        if not piece:
            raise CorruptBatch("a gzip member is cut off")
        at += len(piece)
        step = min(2 * step, largest)
        more = True
        while more:
            most = min(_INFLATED_BYTES, len(out) - filled + 1)
            content = stream.decompress(piece, most)
            if filled + len(content) > len(out):
                raise BodyTooLarge(f"a body decompresses to more than {len(out)} bytes")
            out[filled : filled + len(content)] = content
            filled += len(content)
            checksum = zlib.crc32(content, checksum)
            piece = stream.unconsumed_tail
            more = not stream.eof and (len(piece) > 0 or len(content) == most)
    return at - len(stream.unused_data), filled, checksum


def _gzip_header(body: bytes, at: int) -> int:
    """Where the header at `at` ends; -1 where none is there."""
    start, at, size = at, at + 10, len(body)
    if at > size or body[start : start + 3] != b"\x1f\x8b\x08":
        return -1
    flags = body[start + 3]
    if flags & 0x04:
        at += 2 + int.from_bytes(body[at : at + 2], "little")
    for flag in (0x08, 0x10):
        if flags & flag:
            at = body.find(0, at) + 1
            if not at:
                return -1
    if flags & 0x02:
        at += 2
        if at > size or int.from_bytes(body[at - 2 : at], "little") != zlib.crc32(body[start : at - 2]) & 0xFFFF:
            return -1
    return at if at <= size else -1
