"""Which shard of a coordinator an id belongs to: Kafka's, or adopted data would be lost."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_KEYS_MAX: Final = 4_096
"""Ids that are remembered, each of 64 KB at most: those in use are asked for again and again."""


def partition_of(key: str, partition_count: int) -> int:
    """The absolute value of Java's String.hashCode, modulo the partitions; -2**31, which has none, counts as 0."""
    return _hash(key) % partition_count


@lru_cache(maxsize=_KEYS_MAX)
def _hash(key: str) -> int:
    value = 0
    data = key.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        value = (value * 31 + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    if value >= 0x80000000:
        value = (0x100000000 - value) & 0x7FFFFFFF
    return value
