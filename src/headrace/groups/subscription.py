"""Reads and writes the consumers' bytes in the classic protocol.

A member's metadata is a ConsumerProtocolSubscription with an int16 version, its assignment a
ConsumerProtocolAssignment. A classic group's coordinator reads the topics only: they come first in every version. For a
classic member of a consumer group, or of a group under conversion, the coordinator reads all fields and writes
assignments.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from headrace.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from headrace.wire.primitives import DecodeError

_VERSION_MAX: Final = 3
"""The newest known version; a newer one is read as this one, because fields are only ever added (KIP-429)."""
MEMBER_NAMES_MAX: Final = 10_000
"""The limit of topics that a member of a consumer group subscribes to by name: each takes some 2 us of one turn. A
regular expression may match any number."""
NAMES_MAX: Final = 30_000
"""The limit of topics named by all members of a group, with repetitions; beyond it they are not read."""
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_NAMES_AT: Final = 6


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Returns all topics that these subscriptions name; None if one is unreadable or they name too many."""
    topics: set[str] = set()
    left = NAMES_MAX
    for data in metadata:
        named = _topics_of(data, left)
        if named is None:
            return None
        left -= len(named)
        topics.update(named)
    return frozenset(topics)


def _topics_of(data: bytes, most: int) -> list[str] | None:
    try:
        if _INT16.unpack_from(data, 0)[0] < 0:
            return None
        (count,) = _INT32.unpack_from(data, 2)
        at = _NAMES_AT
        # A topic takes at least two length bytes: an impossible count is refused before the loop.
        if not 0 <= count <= min(most, (len(data) - at) // 2):
            return None
        topics = []
        for _ in range(count):
            (size,) = _INT16.unpack_from(data, at)
            at += 2
            if size < 0 or at + size > len(data):
                return None
            topics.append(str(data[at : at + size], "utf-8"))
            at += size
        return topics
    except (struct.error, UnicodeDecodeError):
        return None


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Decodes a member's metadata. Raises DecodeError, also for trailing bytes."""
    version = _version(metadata)
    if len(metadata) >= _NAMES_AT and _INT32.unpack_from(metadata, 2)[0] > MEMBER_NAMES_MAX:
        raise DecodeError(f"a subscription names more than {MEMBER_NAMES_MAX} topics")
    return ConsumerProtocolSubscription.decode(metadata, version, 2)


def read_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    """Decodes a member's assignment; an empty one if it has none. Raises DecodeError."""
    if not assignment:
        return ConsumerProtocolAssignment()
    return ConsumerProtocolAssignment.decode(assignment, _version(assignment), 2)


def write_assignment(partitions: Iterable[tuple[str, list[int]]], metadata: bytes) -> bytes:
    """Encodes an assignment of (topic, partitions) in the version of the member's metadata. Raises DecodeError if that
    has no version."""
    version = _version(metadata)
    assigned = ConsumerProtocolAssignment([TopicPartition(topic, all_) for topic, all_ in partitions])
    return _INT16.pack(version) + assigned.encode(version)


def _version(data: bytes) -> int:
    if len(data) < 2 or (version := _INT16.unpack_from(data)[0]) < 0:
        raise DecodeError("these bytes are not the consumer protocol's")
    return min(int(version), _VERSION_MAX)
