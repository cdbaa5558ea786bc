"""Which partition a record goes to, equal to Apache Kafka's Java clients.

A key's partition is murmur2 (32 bit, seed 0x9747b28c) of its bytes, made non-negative, modulo the partition count:
clients in any language then agree on where a key lives.
"""

from __future__ import annotations

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Murmur2 of `data` as Kafka computes it, as an unsigned 32-bit number."""
    size = len(data)
    value = (SEED ^ size) & MASK
    whole = size & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 24) * MULTIPLIER & MASK
        value = value * MULTIPLIER & MASK ^ word
    if size > whole:
        value = (value ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & MASK
    value = (value ^ value >> 13) * MULTIPLIER & MASK
    return value ^ value >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a key in a topic of `partition_count` partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
