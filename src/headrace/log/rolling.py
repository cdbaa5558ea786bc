"""The rule when a log starts a new segment."""

from __future__ import annotations

from headrace.config.topic import TopicConfig
from headrace.log.segment import RELATIVE_OFFSET_MAX, Segment


class RollRule:
    """The rule of one log, on the thread that appends.

    `until`: batches with timestamps up to it need not ask because of their time; -1 where all must.
    """

    __slots__ = ("_config", "_jitter_ms", "until")

    def __init__(self, config: TopicConfig) -> None:
        self._jitter_ms = 0
        self.configure(config)

    def configure(self, config: TopicConfig) -> None:
        """Takes a topic's new configuration."""
        self._config = config
        self.until = -1

    def jitter(self, jitter_ms: int) -> None:
        """Rolls that much earlier: not all logs of a broker at once."""
        self._jitter_ms = jitter_ms
        self.until = -1

    def forget(self) -> None:
        """Another segment is the active one."""
        self.until = -1

    def must_roll(
        self, segment: Segment, used: int, size: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Whether a batch of `size` bytes that ends at `last_offset` belongs into a new segment, not into the active
        one, of which `used` bytes are taken."""
        config = self._config
        if used + size > config.segment_bytes and used:
            return True
        if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if not used:
            if segment.first_timestamp < 0:
                segment.begin(max_timestamp)
            return False
        first = segment.first_timestamp
        waited = max_timestamp - first if first >= 0 and max_timestamp >= 0 else now_ms - segment.created_ms
        if waited > config.roll_ms - self._jitter_ms:
            return True
        if first >= 0:
            self.until = first + config.roll_ms - self._jitter_ms
        if segment.bytes_since_index > config.index_interval_bytes:
            # Both indexes have room for segment.index.bytes; the time index keeps one entry for the roll itself.
            return (
                len(segment.index) >= config.segment_index_bytes // 8
                or len(segment.time_index) >= config.segment_index_bytes // 12 - 1
            )
        return False
