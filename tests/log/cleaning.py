"""What the tests of the cleaner give it: an empty map of keys, and memory."""

from __future__ import annotations

from collections.abc import Callable

from headrace.log import cleaner
from headrace.log.compaction import OffsetMap
from headrace.log.segment import Segment


def scratch(size: int) -> memoryview:
    return memoryview(bytearray(size))


def offset_map(memory_bytes: int = 1 << 20, load_factor: float = 0.9) -> OffsetMap:
    return OffsetMap(scratch, (1, 2), memory_bytes, load_factor)


def clean(
    found: cleaner.Candidate,
    now_ms: int,
    throttle: cleaner.CleanerThrottle,
    on_replaced: Callable[[list[Segment]], object],
    memory_bytes: int = 1 << 20,
) -> cleaner.Cleaned:
    return cleaner.clean(found, now_ms, throttle, offset_map(memory_bytes), scratch, on_replaced)
