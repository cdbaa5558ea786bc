"""The state of one log: its bounds, segments, leader epochs and producers.

`LogWriter` appends to it and `LogReader` reads from it; `Log` holds all three. Nobody else changes the fields.
"""

from __future__ import annotations

from array import array

from headrace.config.topic import TopicConfig
from headrace.env import Lock
from headrace.log.bounds import LogBounds
from headrace.log.epochs import LeaderEpochs
from headrace.log.filenames import SNAPSHOT, offset_name
from headrace.log.producer_history import load_producers
from headrace.log.producer_snapshot import encode as encode_snapshot
from headrace.log.producers import Producers
from headrace.log.resources import Resources
from headrace.log.segment import Segment
from headrace.log.segment_list import SegmentList

RECENT_BATCHES_MAX = 256
"""Places of batches at the end of the log that are kept in memory, for consumers that are nearly up to date."""

_NO_RECENT: tuple[array[int], array[int]] = (array("q"), array("q"))
"""Offsets and positions of no batches; a pair, so that a reader on another thread never sees halves of two."""


class LogState:
    """The state of one log. The thread that appends changes it, or a worker that holds the lock."""

    __slots__ = (
        "bounds",
        "config",
        "directory",
        "epochs",
        "producers",
        "recent",
        "resources",
        "segment_list",
        "snapshot_offset",
        "topic_partition",
    )

    def __init__(
        self,
        resources: Resources,
        directory: str,
        topic_partition: tuple[str, int],
        config: TopicConfig,
        bounds: LogBounds,
        segments: list[Segment],
        epochs: LeaderEpochs,
        producers: Producers,
    ) -> None:
        self.resources = resources
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self.bounds = bounds
        self.segment_list = SegmentList(segments, resources.lock())
        self.epochs = epochs
        self.producers = producers
        self.snapshot_offset = -1
        """The offset of the newest producer snapshot on disk; -1: none."""
        self.recent = _NO_RECENT
        """Base offsets and positions of the newest batches of the active segment, rising."""

    @property
    def name(self) -> str:
        """Topic and partition, as in `topic-0`."""
        return f"{self.topic_partition[0]}-{self.topic_partition[1]}"

    @property
    def segments(self) -> list[Segment]:
        """The segments, oldest first; replaced as a whole."""
        return self.segment_list.segments

    @property
    def bases(self) -> list[int]:
        """The base offsets of the segments."""
        return self.segment_list.bases

    @property
    def active(self) -> Segment:
        """The segment that is appended to."""
        return self.segment_list.active

    @property
    def lock(self) -> Lock:
        """The lock that is held while segments are replaced or files renamed; see `SegmentList`."""
        return self.segment_list.lock

    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self.segments)

    def segment_of(self, offset: int) -> int:
        """Index (in `segments`) of the segment that holds an offset; 0 for offsets below the first one."""
        return self.segment_list.index_of(offset)

    def configure(self, config: TopicConfig) -> None:
        """Replaces the topic's configuration."""
        self.config = config

    # Bounds

    def appended(self, offsets: array[int], positions: array[int], end_offset: int) -> None:
        """Notes batches that the active segment has now: the log ends behind them, and their producers wrote them."""
        if self.recent is _NO_RECENT:
            self.recent = array("q"), array("q")
        recent_offsets, recent_positions = self.recent
        recent_offsets += offsets
        recent_positions += positions
        if len(recent_offsets) > RECENT_BATCHES_MAX:
            half = len(recent_offsets) - RECENT_BATCHES_MAX // 2
            # Replaced, not cut: a reader on another thread may be looking.
            self.recent = recent_offsets[half:], recent_positions[half:]
        self.bounds.end_offset = end_offset
        if self.producers.staged:
            self.producers.commit()

    def forget_recent(self) -> None:
        """Drops the remembered places of batches: they are of another segment, or gone."""
        self.recent = _NO_RECENT

    def ends_at(self, offset: int) -> None:
        """Moves the end of the log down; the places of its newest batches are forgotten."""
        assert 0 <= offset <= self.bounds.end_offset, "a log is cut at its end"
        self.recent = _NO_RECENT
        self.bounds.end_offset = offset

    def begins_within(self) -> None:
        """Moves the log start offset down to the end of the log, if that was cut below it."""
        bounds = self.bounds
        if bounds.log_start_offset > bounds.end_offset:
            bounds.log_start_offset = bounds.local_log_start_offset = bounds.end_offset

    def begins_at(self, offset: int) -> None:
        """Moves the log start offset up, and with it the local one."""
        bounds = self.bounds
        assert offset <= bounds.end_offset, "no record after the end can be deleted"
        if offset > bounds.log_start_offset:
            bounds.log_start_offset = bounds.local_log_start_offset = offset
            self.resources.start_moved()
            self.epochs.truncate_from_start(offset)

    def restarts_at(self, offset: int) -> None:
        """Resets the state: the log begins and ends at an offset, without epochs and producers. Raises OSError."""
        assert offset >= 0
        self.recent = _NO_RECENT
        self.snapshot_offset = -1
        self.producers = self.producers.empty()
        self.epochs.clear()
        self.epochs.write(durable=True)
        bounds = self.bounds
        bounds.end_offset = bounds.log_start_offset = bounds.local_log_start_offset = offset

    # Producers

    def take_snapshot(self) -> None:
        """Writes a producer snapshot at the end of the log, once for an end. Raises OSError."""
        end_offset = self.bounds.end_offset
        if self.snapshot_offset >= end_offset:
            return
        path = f"{self.directory}/{offset_name(end_offset, SNAPSHOT)}"
        self.resources.disk.write_file(path, encode_snapshot(self.producers.to_snapshot()))
        self.snapshot_offset = end_offset

    def has_snapshot(self, offset: int) -> None:
        """Notes the offset of the newest producer snapshot on disk; -1: none."""
        assert offset >= -1
        self.snapshot_offset = offset

    def load_producers(self, snapshots: list[int] | None, now_ms: int) -> None:
        """Reads the state of producers from the snapshots at these offsets (None: all in the folder) and the
        batches behind them. Raises OSError."""
        self.snapshot_offset = load_producers(
            self.producers,
            self.resources.disk,
            self.directory,
            self.segments,
            self.bounds.end_offset,
            now_ms,
            snapshots,
        )

    def reload_producers(self, now_ms: int) -> None:
        """Does the same after the log was cut, into another object: another thread may be reading the old one."""
        self.producers = self.producers.empty()
        self.load_producers(None, now_ms)

    # Files

    def moved(self, directory: str) -> None:
        """Notes the new name of the folder."""
        self.directory = directory
        self.epochs.moved(directory)
        for segment in self.segment_list.all_segments():
            segment.moved(directory, segment.suffix)
