"""The cluster's topics as a consumer group sees them: names, ids, partition counts and racks, as a plain value.

The caller makes a new one if and only if something of it changes: a group compares the hash of its topics (KIP-1101)
each time it is handed another one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from xxhash import xxh3_64_intdigest

_INT32 = struct.Struct("<i")
_INT64 = struct.Struct("<q")
_UINT64 = struct.Struct("<Q")


@dataclass(frozen=True)
class TopicInfo:
    """One topic."""

    name: str
    id: bytes
    partition_count: int
    racks: tuple[tuple[str, ...], ...] = ()
    """For each partition the racks of its replicas; empty where no broker says its rack."""

    @cached_property
    def hash(self) -> int:
        """The topic's hash, unsigned."""
        parts = [b"\x00", self.id[7::-1], self.id[:7:-1], _text(self.name), _INT32.pack(self.partition_count)]
        for partition in range(self.partition_count):
            parts.append(_INT32.pack(partition))
            if partition < len(self.racks):
                for rack in sorted(self.racks[partition]):
                    parts += (_INT32.pack(_units(rack)), _text(rack))
        return xxh3_64_intdigest(b"".join(parts))


class Topics:
    """The topics of a cluster, as of one version of its metadata."""

    __slots__ = ("by_id", "by_name", "last_created_version", "version")

    def __init__(self, topics: Iterable[TopicInfo] = (), version: int = 0, last_created_version: int = 0) -> None:
        self.by_name = {topic.name: topic for topic in topics}
        self.by_id = {topic.id: topic for topic in self.by_name.values()}
        self.version = version
        """The metadata offset; grows with every change."""
        self.last_created_version = last_created_version
        """The version that created the newest topic."""

    def ids(self, names: Iterable[str]) -> frozenset[bytes]:
        """Returns the ids of the topics that exist."""
        by_name = self.by_name
        return frozenset(by_name[name].id for name in names if name in by_name)

    def hash(self, names: Iterable[str]) -> int:
        """Returns the signed hash of these topics for a group's record; 0 if none of them exists."""
        hashes = [_UINT64.pack(self.by_name[name].hash) for name in sorted(names) if name in self.by_name]
        if not hashes:
            return 0
        found: int = _INT64.unpack(_UINT64.pack(xxh3_64_intdigest(b"".join(hashes))))[0]
        return found


NO_TOPICS: Final = Topics()
"""The topics of a shard before it is given any."""


def _text(text: str) -> bytes:
    """Encodes a string for Kafka's hash: UTF-16 units, then their number."""
    return text.encode("utf-16-le") + _INT32.pack(_units(text))


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
