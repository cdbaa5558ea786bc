"""What the coordinator reads of the bytes that consumers put into the classic protocol.

A member's metadata is a ConsumerProtocolSubscription behind an int16 version, its assignment a
ConsumerProtocolAssignment. A classic group's coordinator looks at the topics alone: every version starts with them, so
that version 0's first field is enough, whatever follows it. Where a classic member is in a consumer group, or is to be,
all of it is read, and assignments are written.
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
"""The newest version that there is here; a newer one is read as this one: fields are only ever added (KIP-429)."""
MEMBER_NAMES_MAX: Final = 10_000
"""Topics that a member of a consumer group may subscribe to by name: each takes some 2 us of the turn in which it does.
A regular expression may mean any number."""
NAMES_MAX: Final = 30_000
"""Topics that the members of a group name together, as often as each: more are not looked through."""
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_NAMES_AT: Final = 6


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """All topics that these subscriptions name; None when one of them cannot be read, or they name too many."""
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
        # A topic takes at least its two length bytes: a count that cannot fit is refused before the loop.
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
    """All that a member's metadata says. Raises DecodeError, also where it says too much."""
    version = _version(metadata)
    if len(metadata) >= _NAMES_AT and _INT32.unpack_from(metadata, 2)[0] > MEMBER_NAMES_MAX:
        raise DecodeError(f"a subscription names more than {MEMBER_NAMES_MAX} topics")
    return ConsumerProtocolSubscription.decode(metadata, version, 2)


def read_assignment(assignment: bytes) -> ConsumerProtocolAssignment:
    """All that a leader assigned to a member; nothing where it has no assignment. Raises DecodeError."""
    if not assignment:
        return ConsumerProtocolAssignment()
    return ConsumerProtocolAssignment.decode(assignment, _version(assignment), 2)


def write_assignment(partitions: Iterable[tuple[str, list[int]]], metadata: bytes) -> bytes:
    """An assignment of (topic, partitions), in the version in which its member speaks. Raises DecodeError where the
    metadata tells none."""
    version = _version(metadata)
    assigned = ConsumerProtocolAssignment([TopicPartition(topic, all_) for topic, all_ in partitions])
    return _INT16.pack(version) + assigned.encode(version)


def _version(data: bytes) -> int:
    if len(data) < 2 or (version := _INT16.unpack_from(data)[0]) < 0:
        raise DecodeError("these bytes are not the consumer protocol's")
    return min(int(version), _VERSION_MAX)
