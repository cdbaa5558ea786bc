"""The segments that a log no longer keeps: by age, by size, and below its start."""

from __future__ import annotations

from typing import NamedTuple

from headrace.config.topic import TopicConfig
from headrace.log.segment import Segment
from headrace.log.state import LogState


class Expired(NamedTuple):
    """The segments from the first on that are older than retention.ms, with their sizes, under one configuration."""

    config: TopicConfig
    segments: list[tuple[Segment, int]]


def expired(state: LogState, now_ms: int) -> Expired:
    """Looks up, by their largest timestamp, what has expired. Reads cold files: for a worker. Raises OSError.

    A segment that compaction has emptied has no age of its own, whatever its new file says: it goes with those before
    and behind it.
    """
    config = state.config
    found: list[tuple[Segment, int]] = []
    if not config.delete or config.retention_ms < 0:
        return Expired(config, found)
    emptied: list[tuple[Segment, int]] = []
    for segment in state.segments:
        size = segment.size  # first: an append during this check makes the segment young again
        if not size:
            emptied.append((segment, size))
            continue
        newest = segment.max_timestamp
        if newest < 0:
            newest = state.resources.disk.modified_ms(segment.path)
        if now_ms - newest <= config.retention_ms:
            break
        found += [*emptied, (segment, size)]
        emptied.clear()
    return Expired(config, found)


def count_gone(state: LogState, old: Expired, high_watermark: int) -> int:
    """How many segments from the first on are not kept any more. Touches no file. For the thread that appends."""
    count = 0
    if state.config.delete:
        count = max(_expired(state, old, high_watermark), _oversized(state, high_watermark))
    count = max(count, _below_start(state, high_watermark))
    assert count <= len(state.segments)
    return count


def _deletable(state: LogState, index: int, high_watermark: int) -> bool:
    """Whether a segment may go at all: everything in it is below the high watermark, and there is something in it."""
    segments = state.segments
    if index + 1 < len(segments):
        return segments[index + 1].base_offset <= high_watermark
    return segments[index].size > 0 and state.bounds.end_offset <= high_watermark


def _expired(state: LogState, old: Expired, high_watermark: int) -> int:
    """How many segments from the first on are among `old`, as they were when they were looked up."""
    if old.config is not state.config:
        return 0
    count = 0
    for segment, (known, size) in zip(state.segments, old.segments, strict=False):
        if segment is not known or segment.size != size or not _deletable(state, count, high_watermark):
            break
        count += 1
    return count


def _oversized(state: LogState, high_watermark: int) -> int:
    """How many segments from the first on may go with retention.bytes still kept by the rest."""
    retention_bytes = state.config.retention_bytes
    if retention_bytes < 0:
        return 0
    excess = state.size_bytes() - retention_bytes
    count = 0
    for index, segment in enumerate(state.segments):
        if excess - segment.size < 0 or not _deletable(state, index, high_watermark):
            break
        excess -= segment.size
        count += 1
    return count


def _below_start(state: LogState, high_watermark: int) -> int:
    """How many segments end below the log start offset."""
    segments = state.segments
    count = 0
    while (
        count + 1 < len(segments)
        and segments[count + 1].base_offset <= state.bounds.log_start_offset
        and _deletable(state, count, high_watermark)
    ):
        count += 1
    return count
