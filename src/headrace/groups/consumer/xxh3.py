"""XXH3 with 64 bits and no seed, as its specification describes it: the hash that Kafka takes of a group's topics.

In plain Python a kilobyte takes about 100 us; a topic is hashed once for each change of it.
"""

from __future__ import annotations

import struct
from typing import Final

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_EIGHT = struct.Struct("<8Q")
_MASK: Final = (1 << 64) - 1
_MASK32: Final = (1 << 32) - 1

_P32_1: Final = 0x9E3779B1
_P32_2: Final = 0x85EBCA77
_P32_3: Final = 0xC2B2AE3D
_P64_1: Final = 0x9E3779B185EBCA87
_P64_2: Final = 0xC2B2AE3D27D4EB4F
_P64_3: Final = 0x165667B19E3779F9
_P64_4: Final = 0x85EBCA77C2B2AE63
_P64_5: Final = 0x27D4EB2F165667C5
_MX1: Final = 0x165667919E3779F9
_MX2: Final = 0x9FB21C651E98DF25

_NOISE: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
"""The specification's own 192 bytes of noise."""
_STRIPE: Final = 64
_BLOCK: Final = 1024
_LONG: Final = 240


def xxh3_64(data: bytes) -> int:
    """The hash of `data`, unsigned."""
    size = len(data)
    if size > _LONG:
        return _hash_long(data)
    if size > 16:
        return _hash_middle(data)
    if size > 8:
        low = _u64(data, 0) ^ _u64(_NOISE, 24) ^ _u64(_NOISE, 32)
        high = _u64(data, size - 8) ^ _u64(_NOISE, 40) ^ _u64(_NOISE, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(size + swapped + high + _fold(low, high))
    if size > 3:
        value: int = _U32.unpack_from(data, size - 4)[0] + (_U32.unpack_from(data, 0)[0] << 32)
        value ^= _u64(_NOISE, 8) ^ _u64(_NOISE, 16)
        value ^= _rotated(value, 49) ^ _rotated(value, 24)
        value = value * _MX2 & _MASK
        value ^= (value >> 35) + size
        value = value * _MX2 & _MASK
        return value ^ (value >> 28)
    if size:
        value = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        return _avalanche_short(value ^ _U32.unpack_from(_NOISE, 0)[0] ^ _U32.unpack_from(_NOISE, 4)[0])
    return _avalanche_short(_u64(_NOISE, 56) ^ _u64(_NOISE, 64))


def _hash_middle(data: bytes) -> int:
    """17 to 240 bytes."""
    size = len(data)
    total = size * _P64_1
    if size <= 128:
        for at in reversed(range((size - 1) // 32 + 1)):
            total += _mix(data, 16 * at, 32 * at) + _mix(data, size - 16 * (at + 1), 32 * at + 16)
        return _avalanche(total)
    for at in range(8):
        total += _mix(data, 16 * at, 16 * at)
    total = _avalanche(total)
    for at in range(8, size // 16):
        total += _mix(data, 16 * at, 16 * (at - 8) + 3)
    return _avalanche(total + _mix(data, size - 16, 119))


def _hash_long(data: bytes) -> int:
    """More than 240 bytes: eight sums over stripes, stirred after each block, then merged."""
    size = len(data)
    sums = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    blocks = (size - 1) // _BLOCK
    for block in range(blocks):
        for stripe in range(_BLOCK // _STRIPE):
            _accumulate(sums, data, block * _BLOCK + stripe * _STRIPE, stripe * 8)
        noise = _EIGHT.unpack_from(_NOISE, 128)
        for lane in range(8):
            sums[lane] = (sums[lane] ^ sums[lane] >> 47 ^ noise[lane]) * _P32_1 & _MASK
    for stripe in range((size - 1 - blocks * _BLOCK) // _STRIPE):
        _accumulate(sums, data, blocks * _BLOCK + stripe * _STRIPE, stripe * 8)
    _accumulate(sums, data, size - _STRIPE, 121)
    total = size * _P64_1
    noise = _EIGHT.unpack_from(_NOISE, 11)
    for lane in range(0, 8, 2):
        total += _fold(sums[lane] ^ noise[lane], sums[lane + 1] ^ noise[lane + 1])
    return _avalanche(total)


def _accumulate(sums: list[int], data: bytes, at: int, noise_at: int) -> None:
    values, noise = _EIGHT.unpack_from(data, at), _EIGHT.unpack_from(_NOISE, noise_at)
    for lane in range(8):
        value = values[lane]
        keyed = value ^ noise[lane]
        sums[lane ^ 1] = sums[lane ^ 1] + value & _MASK
        sums[lane] = sums[lane] + (keyed & _MASK32) * (keyed >> 32) & _MASK


def _mix(data: bytes, at: int, noise_at: int) -> int:
    return _fold(_u64(data, at) ^ _u64(_NOISE, noise_at), _u64(data, at + 8) ^ _u64(_NOISE, noise_at + 8))


def _fold(left: int, right: int) -> int:
    """Both halves of the product, one over the other."""
    product = left * right
    return (product ^ product >> 64) & _MASK


def _avalanche(value: int) -> int:
    value &= _MASK
    value = (value ^ value >> 37) * _MX1 & _MASK
    return value ^ value >> 32


def _avalanche_short(value: int) -> int:
    value = (value ^ value >> 33) * _P64_2 & _MASK
    value = (value ^ value >> 29) * _P64_3 & _MASK
    return value ^ value >> 32


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _MASK


def _u64(data: bytes, at: int) -> int:
    found: int = _U64.unpack_from(data, at)[0]
    return found
