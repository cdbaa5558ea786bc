"""Bodies of a batch in every framing that a codec has, right and wrong: what Kafka's own reader is tried on."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Mapping

import cramjam

from headrace.wire.records import Compression, Record, build_batch, compress

GZIP, SNAPPY, LZ4, ZSTD = Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD
RECORDS = [Record(number, 1 << 40, b"k%d" % number, b"%d " % number * 40) for number in range(2000)]
"""More than one block of snappy and of lz4."""
PLAIN = bytes(build_batch(RECORDS)[61:])
HALVES = PLAIN[: len(PLAIN) // 2], PLAIN[len(PLAIN) // 2 :]
XERIAL = b"\x82SNAPPY\x00"
_GARBAGE = b"garbage that is longer than a header of any codec"


def xxh32(data: bytes) -> int:
    """The checksum of lz4's frames, with the seed 0."""
    p1, p2, p3, p4, p5, mask = 2654435761, 2246822519, 3266489917, 668265263, 374761393, 0xFFFFFFFF

    def turned(value: int, by: int) -> int:
        value &= mask
        return (value << by | value >> 32 - by) & mask

    at = 0
    if len(data) >= 16:
        lanes = [(p1 + p2) & mask, p2, 0, -p1 & mask]
        while at + 16 <= len(data):
            for lane, word in enumerate(struct.unpack_from("<4I", data, at)):
                lanes[lane] = turned(lanes[lane] + word * p2, 13) * p1 & mask
            at += 16
        total = sum(turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        total = p5
    total = (total + len(data)) & mask
    while at + 4 <= len(data):
        total = turned(total + struct.unpack_from("<I", data, at)[0] * p3, 17) * p4 & mask
        at += 4
    for byte in data[at:]:
        total = turned(total + byte * p5, 11) * p1 & mask
    total = (total ^ total >> 15) * p2 & mask
    total = (total ^ total >> 13) * p3 & mask
    return total ^ total >> 16


def lz4(
    data: bytes,
    *,
    flags: int = 0x60,
    descriptor: int = 0x40,
    said: int | None = None,
    header: int | None = None,
    block: int | None = None,
    content: int | None = None,
    stored: bool = False,
    end: bool = True,
    piece: int = 1 << 16,
) -> bytes:
    """An lz4 frame, its blocks independent whatever the flags say; checksums as given or, by the flags, right."""
    about = bytes((flags, descriptor))
    if flags & 0x08:
        about += struct.pack("<Q", len(data) if said is None else said)
    if flags & 0x01:
        about += struct.pack("<I", 1)
    check = xxh32(about) >> 8 & 0xFF if header is None else header
    out = struct.pack("<I", 0x184D2204) + about + bytes((check,))
    for at in range(0, len(data), piece):
        part = data[at : at + piece]
        packed = part if stored else bytes(cramjam.lz4.compress_block(part, store_size=False))
        out += struct.pack("<I", len(packed) | (1 << 31 if stored else 0)) + packed
        if flags & 0x10:
            out += struct.pack("<I", xxh32(packed) if block is None else block)
    if end:
        out += bytes(4)
        if flags & 0x04:
            out += struct.pack("<I", xxh32(data) if content is None else content)
    return out


def gz(data: bytes, flags: int = 0, extra: bytes = b"", method: int = 8, trailer: bytes | None = None) -> bytes:
    """A member of gzip."""
    deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
    body = deflate.compress(data) + deflate.flush()
    end = struct.pack("<II", zlib.crc32(data), len(data)) if trailer is None else trailer
    return b"\x1f\x8b" + bytes((method, flags)) + bytes(6) + extra + body + end


def zs(data: bytes, *, streamed: bool = False) -> bytes:
    """A frame of zstd; streamed ones do not say how large their content is."""
    if not streamed:
        return bytes(cramjam.zstd.compress(data))
    stream = cramjam.zstd.Compressor()
    stream.compress(data)
    return bytes(stream.finish())


def zstd_raw(data: bytes, *, window: int = 0x58, flags: int = 0, end: bytes = b"") -> bytes:
    """A frame of zstd with raw blocks and a window descriptor."""
    out = struct.pack("<I", 0xFD2FB528) + bytes((flags, window))
    for at in range(0, len(data), 1 << 16):
        part = data[at : at + (1 << 16)]
        last = at + (1 << 16) >= len(data)
        out += ((len(part) << 3) | last).to_bytes(3, "little") + part
    return out + end


def skippable(size: int = 12) -> bytes:
    return struct.pack("<II", 0x184D2A50, size) + bytes(size)


def xerial(data: bytes, version: int = 1, compatible: int = 1, magic: bytes = XERIAL, block: int = 1 << 15) -> bytes:
    """A stream of snappy as Kafka's clients write it."""
    out = magic + struct.pack(">ii", version, compatible)
    for at in range(0, len(data), block):
        packed = bytes(cramjam.snappy.compress_raw(data[at : at + block]))
        out += struct.pack(">i", len(packed)) + packed
    return out


def raw(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def _linked() -> bytes:
    stream = cramjam.lz4.Compressor(content_checksum=False, block_linked=True)
    stream.compress(PLAIN)
    return bytes(stream.finish())


def _lz4_rows() -> dict[str, bytes]:
    first, second = HALVES
    whole = lz4(PLAIN)
    return {
        "ours": bytes(compress(LZ4, PLAIN)),
        "linked": _linked(),
        "marked linked": lz4(PLAIN, flags=0x40),
        "block checksums": lz4(PLAIN, flags=0x70),
        "wrong block checksum": lz4(PLAIN, flags=0x70, block=1),
        "content checksum": lz4(PLAIN, flags=0x64),
        "wrong content checksum": lz4(PLAIN, flags=0x64, content=1),
        "no content checksum": lz4(PLAIN, flags=0x64)[:-4],
        "content size": lz4(PLAIN, flags=0x68),
        "wrong content size": lz4(PLAIN, flags=0x68, said=7),
        "huge content size": lz4(PLAIN, flags=0x68, said=1 << 62),
        "all flags": lz4(PLAIN, flags=0x7C),
        "dictionary": lz4(PLAIN, flags=0x61),
        "reserved flag": lz4(PLAIN, flags=0x62),
        "version 0": lz4(PLAIN, flags=0x20),
        "version 2": lz4(PLAIN, flags=0xA0),
        "reserved descriptor": lz4(PLAIN, descriptor=0x41),
        "reserved high descriptor": lz4(PLAIN, descriptor=0xC0),
        "block size 3": lz4(PLAIN, descriptor=0x30),
        "block size 7": lz4(PLAIN, descriptor=0x70, piece=1 << 20),
        "block above its size": lz4(PLAIN, piece=1 << 18),
        "stored": lz4(PLAIN, stored=True),
        "stored, checksums": lz4(PLAIN, flags=0x70, stored=True),
        "stored above its size": lz4(PLAIN, stored=True, piece=(1 << 16) + 1),
        "wrong header checksum": lz4(PLAIN, header=0),
        "no end mark": lz4(PLAIN, end=False),
        "cut": whole[:-20],
        "skippable first": skippable() + whole,
        "skippable last": whole + skippable(),
        "two frames": lz4(first) + lz4(second),
        "empty, then all": lz4(b"") + whole,
        "all, then empty": whole + lz4(b""),
        "all, twice": whole + whole,
        "empty": lz4(b""),
        "trailing zeros": whole + bytes(7),
        "trailing garbage": whole + _GARBAGE,
        "legacy": struct.pack("<I", 0x184C2102) + whole[7:],
        "nothing": b"",
    }


def _gzip_rows() -> dict[str, bytes]:
    first, second = HALVES
    whole = gz(PLAIN)
    crc = zlib.crc32(b"\x1f\x8b\x08\x02" + bytes(6)) & 0xFFFF
    return {
        "ours": bytes(compress(GZIP, PLAIN)),
        "python": gzip.compress(PLAIN, mtime=0),
        "two members": gz(first) + gz(second),
        "empty, then all": gz(b"") + whole,
        "all, then empty": whole + gz(b""),
        "all, twice": whole + whole,
        "empty": gz(b""),
        "trailing zero": whole + bytes(1),
        "trailing zeros": whole + bytes(512),
        "trailing garbage": whole + _GARBAGE,
        "trailing half header": whole + b"\x1f\x8b\x08\x00",
        "trailing header": whole + b"\x1f\x8b\x08" + bytes(7),
        "trailing short member": whole + gz(b"")[:18],
        "trailing header and garbage": whole + b"\x1f\x8b\x08" + bytes(7) + b"\xff" * 40,
        "member, zeros, member": gz(first) + bytes(4) + gz(second),
        "all, zeros, member": whole + bytes(4) + gz(second),
        "file name": gz(PLAIN, 0x08, b"name\0"),
        "comment": gz(PLAIN, 0x10, b"comment\0"),
        "extra": gz(PLAIN, 0x04, struct.pack("<H", 5) + b"extra"),
        "all fields": gz(PLAIN, 0x1C, struct.pack("<H", 5) + b"extraname\0comment\0"),
        "header checksum": gz(PLAIN, 0x02, struct.pack("<H", crc)),
        "wrong header checksum": gz(PLAIN, 0x02, struct.pack("<H", crc ^ 1)),
        "text flag": gz(PLAIN, 0x01),
        "reserved flag": gz(PLAIN, 0x20),
        "reserved high flag": gz(PLAIN, 0x80),
        "method 7": gz(PLAIN, method=7),
        "wrong checksum": gz(PLAIN, trailer=struct.pack("<II", 1, len(PLAIN))),
        "wrong size": gz(PLAIN, trailer=struct.pack("<II", zlib.crc32(PLAIN), 1)),
        "no trailer": gz(PLAIN, trailer=b""),
        "half trailer": whole[:-4],
        "cut": whole[:-40],
        "zlib": zlib.compress(PLAIN),
        "nothing": b"",
    }


def _zstd_rows() -> dict[str, bytes]:
    first, second = HALVES
    whole = zs(PLAIN)
    checked = struct.pack("<I", 0xFD2FB528) + bytes((4, 0x58)) + zstd_raw(PLAIN)[6:]
    return {
        "ours": bytes(compress(ZSTD, PLAIN)),
        "streamed": zs(PLAIN, streamed=True),
        "raw blocks": zstd_raw(PLAIN),
        "wrong checksum": checked + b"\1\2\3\4",
        "no checksum": checked,
        "two frames": zs(first) + zs(second),
        "two streamed frames": zs(first, streamed=True) + zs(second, streamed=True),
        "empty, then all": zs(b"") + whole,
        "all, then empty": whole + zs(b""),
        "all, twice": whole + whole,
        "empty": zs(b""),
        "skippable first": skippable() + whole,
        "skippable last": whole + skippable(),
        "skippable between": zs(first) + skippable() + zs(second),
        "skippable cut": whole + skippable()[:-4],
        "skippable alone": skippable(),
        "window of 128 MiB": zstd_raw(PLAIN, window=17 << 3),
        "window of 144 MiB": zstd_raw(PLAIN, window=17 << 3 | 1),
        "window of 1 GiB": zstd_raw(PLAIN, window=20 << 3),
        "window of 1 KiB": zstd_raw(PLAIN, window=0),
        "reserved bit": zstd_raw(PLAIN, flags=0x08),
        "unused bit": zstd_raw(PLAIN, flags=0x10),
        "dictionary": struct.pack("<I", 0xFD2FB528) + bytes((1, 0x58, 7)) + zstd_raw(PLAIN)[6:],
        "no last block": zstd_raw(PLAIN + bytes(1 << 16))[: 6 + len(PLAIN) + 3 * (len(PLAIN) // 65536)],
        "cut": whole[:-20],
        "cut by one": whole[:-1],
        "trailing zero": whole + bytes(1),
        "trailing zeros": whole + bytes(7),
        "trailing garbage": whole + _GARBAGE,
        "trailing magic": whole + whole[:4],
        "old version": b"\x27" + whole[1:],
        "nothing": b"",
    }


def _snappy_rows() -> dict[str, bytes]:
    first, second = HALVES
    whole = xerial(PLAIN)
    return {
        "ours": bytes(compress(SNAPPY, PLAIN)),
        "large blocks": xerial(PLAIN, block=1 << 20),
        "raw": raw(PLAIN),
        "raw, trailing zero": raw(PLAIN) + bytes(1),
        "raw, cut": raw(PLAIN)[:-5],
        "two streams": xerial(first) + xerial(second),
        "empty, then all": xerial(b"") + whole,
        "all, then empty": whole + xerial(b""),
        "all, twice": whole + whole,
        "empty": xerial(b""),
        "empty block last": whole + struct.pack(">i", 1) + raw(b""),
        "empty block first": whole[:16] + struct.pack(">i", 1) + raw(b"") + whole[16:],
        "block of no bytes last": whole + bytes(4),
        "version 0, compatible 0": xerial(PLAIN, 0, 0),
        "version 0": xerial(PLAIN, 0, 1),
        "compatible 0": xerial(PLAIN, 1, 0),
        "version 2, compatible 1": xerial(PLAIN, 2, 1),
        "version 2, compatible 2": xerial(PLAIN, 2, 2),
        "version 9, compatible 9": xerial(PLAIN, 9, 9),
        "version -1": xerial(PLAIN, -1, 1),
        "second of version 0": xerial(first) + xerial(second, 0, 0),
        "second of version 9": xerial(first) + xerial(second, 9, 9),
        "all, then another magic": whole + xerial(second, magic=b"\x82SNAPPX\x00"),
        "all, then version 0": whole + xerial(second, 0, 0),
        "all, then half a header": whole + XERIAL,
        "magic alone": whole + XERIAL[:4],
        "another magic": xerial(PLAIN, magic=b"\x82SNAPPX\x00"),
        "stream, raw": xerial(first) + raw(second),
        "header alone": whole[:16],
        "half a header": whole[:12],
        "cut": whole[:-20],
        "negative block": whole[:16] + struct.pack(">i", -5) + whole[20:],
        "trailing byte": whole + bytes(1),
        "trailing three": whole + bytes(3),
        "trailing zeros": whole + bytes(7),
        "trailing garbage": whole + _GARBAGE,
        "framing of snappy itself": bytes(cramjam.snappy.compress(PLAIN)),
        "nothing": b"",
    }


def rows() -> Mapping[tuple[Compression, str], bytes]:
    """Each body, by its codec and name."""
    tables = {LZ4: _lz4_rows(), GZIP: _gzip_rows(), ZSTD: _zstd_rows(), SNAPPY: _snappy_rows()}
    return {(codec, name): body for codec, table in tables.items() for name, body in table.items()}
