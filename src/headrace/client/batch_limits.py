"""How large batches of a topic may be, as its brokers have shown by what they refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

BATCH_SIZE_MAX: Final = (1 << 31) - 1
"""The largest batch that has a length."""

FORGET_AFTER_S: Final = 600.0
"""What was learned is forgotten so long after the last refusal: the topic's setting may have been raised."""


@dataclass(slots=True)
class _Refused:
    """The shortest batch that was refused, and how large a batch of records may be before it is compressed."""

    length: int
    records: int
    since: float


@dataclass(slots=True)
class BatchLimits:
    """What was learned of each topic, by one client: what writes with it learns together.

    A batch is too large if it is at least as long as one that was refused. Later batches, of records or of such a
    batch, become half as long, so that a few refusals find the size.
    """

    clock: Callable[[], float] = time.monotonic
    _topics: dict[str, _Refused] = field(default_factory=dict)

    def refuse(self, topic: str, length: int, records: int) -> None:
        """Takes note that a batch was refused, of `length` bytes and with records of `records` bytes."""
        now = self.clock()
        known = self._known(topic)
        if known is not None:
            length, records = min(length, known.length), min(records, 2 * known.records)
        self._topics[topic] = _Refused(length, max(records // 2, 1), now)

    def is_refused(self, topic: str, length: int) -> bool:
        """Whether a batch of that length is too large."""
        known = self._known(topic)
        return known is not None and length >= known.length

    def wanted(self, topic: str) -> int:
        """Returns how many bytes, as it is sent, a new batch should have at most."""
        known = self._known(topic)
        return BATCH_SIZE_MAX if known is None else max(known.length // 2, 1)

    def records(self, topic: str) -> int:
        """Returns how many bytes, before they are compressed, the records of a new batch may have."""
        known = self._known(topic)
        return BATCH_SIZE_MAX if known is None else known.records

    def _known(self, topic: str) -> _Refused | None:
        known = self._topics.get(topic)
        if known is not None and self.clock() - known.since > FORGET_AFTER_S:
            del self._topics[topic]
            return None
        return known
