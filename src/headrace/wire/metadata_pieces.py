"""A Metadata response that is encoded a few topics at a time: that of a large cluster takes a second, and other work
has to run in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from headrace.wire.messages.k03_metadata import MetadataResponse, MetadataResponseTopic
from headrace.wire.primitives import Part, long_varint

FLEXIBLE_FROM: Final = 9
_TAIL_BYTES: Final = {8: 4, 9: 5, 10: 5, 11: 1, 12: 1, 13: 3}
"""What comes behind the topics, by version: the cluster's operations to v10, an error from v13 on, tags from v9 on."""

_pack_count = Struct(">i").pack


class PiecewiseMetadata:
    """The body of a MetadataResponse of one version, whose topics come piece by piece."""

    def __init__(self, rest: MetadataResponse, version: int) -> None:
        """`rest` is everything but the topics. Raises EncodeError for what the version cannot say."""
        assert not rest.topics
        self._version = version
        self._tail = _TAIL_BYTES.get(version, 0)
        self._rest = rest
        self._before, self._after = self._around()
        self._skipped = len(MetadataResponse().encode(version)) - self._tail - len(self._count(0))
        self._topics = bytearray()
        self._number = 0

    @property
    def throttle_time_ms(self) -> int:
        """As of a MetadataResponse; it may be set until the body is encoded."""
        return self._rest.throttle_time_ms

    @throttle_time_ms.setter
    def throttle_time_ms(self, value: int) -> None:
        self._rest.throttle_time_ms = value
        self._before, self._after = self._around()

    def _around(self) -> tuple[bytes, bytes]:
        """The parts before the topics' count, and after the topics."""
        whole = self._rest.encode(self._version)
        end = len(whole) - self._tail
        return whole[: end - len(self._count(0))], whole[end:]

    def _count(self, number: int) -> bytes:
        if self._version < FLEXIBLE_FROM:
            return _pack_count(number)
        return bytes([number + 1]) if number < 127 else long_varint(number + 1)

    def add(self, topics: Sequence[MetadataResponseTopic]) -> None:
        """Encodes the next topics. Raises EncodeError for what the version cannot say."""
        alone = MetadataResponse(topics=list(topics)).encode(self._version)
        begin = self._skipped + len(self._count(len(topics)))
        self._topics += memoryview(alone)[begin : len(alone) - self._tail]
        self._number += len(topics)

    def encode_parts(self, version: int, head: bytearray | None = None) -> list[Part]:
        """See `frame.PartedBody`: the whole body behind a head."""
        assert version == self._version, "it was made for one version"
        parts: list[Part] = [] if head is None else [head]
        return [*parts, self._before + self._count(self._number), self._topics, self._after]
