"""What the coordinator reads out of a consumer's join metadata: the topics, and nothing else.

The metadata is a ConsumerProtocolSubscription behind an int16 version. Every version starts with the list of topics,
so that version 0's first field is enough, whatever follows it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """All topics that these subscriptions name; None when one of them cannot be read."""
    topics: set[str] = set()
    for data in metadata:
        named = _topics_of(data)
        if named is None:
            return None
        topics.update(named)
    return frozenset(topics)


def _topics_of(data: bytes) -> list[str] | None:
    try:
        if _INT16.unpack_from(data, 0)[0] < 0:
            return None
        (count,) = _INT32.unpack_from(data, 2)
        at = 6
        # A topic takes at least its two length bytes: a count that cannot fit is refused before the loop.
        if not 0 <= count <= (len(data) - at) // 2:
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
