"""One partition replica on disk: its state, the writer that appends to it, and the reader.

One thread appends (the event loop). Any thread may read. `Flushing` and the cleaner run on workers during appends:
shared lists are replaced, never changed, and `lock` orders the threads that replace them.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.config.topic import TopicConfig
from headrace.env import Lock
from headrace.log import lookup, retention
from headrace.log.bounds import LogBounds
from headrace.log.epochs import LeaderEpochs
from headrace.log.filenames import SNAPSHOT, offset_name
from headrace.log.flushing import Flushing
from headrace.log.producer_history import snapshot_offsets
from headrace.log.producers import Producers
from headrace.log.reader import LogReader
from headrace.log.recovery_report import RecoveryReport
from headrace.log.resources import Resources
from headrace.log.seal import read_sum
from headrace.log.segment import Segment
from headrace.log.segment_end import last_batch_end
from headrace.log.state import LogState
from headrace.log.validate import opened_bits
from headrace.log.writer import LogWriter

_NOTHING_DONE = RecoveryReport()


class Log:
    """The log of one partition replica, created by `recovery.open_log` and `LogManager`.

    `bounds`, `reader` and `writer` are for hot paths; `state` is for the package and for what may change: configuration
    and producers are replaced as a whole.
    """

    __slots__ = (
        "bounds",
        "flushing",
        "gap_offset",
        "is_future",
        "opened_bits",
        "reader",
        "recovery_report",
        "state",
        "topic_id",
        "writer",
    )

    def __init__(
        self,
        state: LogState,
        topic_id: bytes,
        *,
        recovery_point: int,
        report: RecoveryReport = _NOTHING_DONE,
        fresh: bool = False,
    ) -> None:
        """Creates a log. `recovery_point`: everything below it is on stable storage. `fresh`: see `Flushing`."""
        self.state = state
        self.bounds: LogBounds = state.bounds
        self.flushing = Flushing(state, recovery_point, fresh=fresh)
        self.reader = LogReader(state)
        self.writer = LogWriter(state, self.flushing)
        self.topic_id = topic_id
        self.is_future = False
        """Whether it is a copy that is being filled from its partition's log in another directory."""
        self.recovery_report = report
        self.gap_offset = report.gap_offset
        """The offset where records may be missing that its leader has; -1: none."""
        self.opened_bits = opened_bits(state.config)
        """The attribute bits of batches that have to be opened for the topic: see `validate`."""

    def __repr__(self) -> str:
        return f"Log({self.directory}, {self.log_start_offset}..{self.end_offset})"

    # Properties, for callers off the hot paths

    @property
    def name(self) -> str:
        """Topic and partition, as in `topic-0`."""
        return self.state.name

    @property
    def topic_partition(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.state.topic_partition

    @property
    def directory(self) -> str:
        """The folder."""
        return self.state.directory

    @property
    def config(self) -> TopicConfig:
        """The topic's configuration."""
        return self.state.config

    @property
    def resources(self) -> Resources:
        """What the logs of a broker share."""
        return self.state.resources

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self.bounds.log_start_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self.bounds.end_offset

    @property
    def epochs(self) -> LeaderEpochs:
        """The leader epochs, each with its first offset."""
        return self.state.epochs

    @property
    def producers(self) -> Producers:
        """The producers; a new object after a truncation."""
        return self.state.producers

    @property
    def segments(self) -> list[Segment]:
        """The segments, oldest first; replaced as a whole."""
        return self.state.segments

    @property
    def bases(self) -> list[int]:
        """The base offsets of the segments."""
        return self.state.bases

    @property
    def active(self) -> Segment:
        """The segment that is appended to."""
        return self.state.active

    @property
    def lock(self) -> Lock:
        """The lock that is held while segments are replaced or files renamed; see `SegmentList`."""
        return self.state.lock

    @property
    def recovery_point(self) -> int:
        """The recovery point: `Flushing.flushed_offset`."""
        return self.flushing.flushed_offset

    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return self.state.size_bytes()

    def last_stable_offset(self, high_watermark: int) -> int:
        """Returns the offset up to which a read_committed consumer may read, at most the high watermark."""
        return self.bounds.last_stable_offset(high_watermark, self.state.producers)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Returns (largest epoch at or below `epoch`, its end offset); (-1, -1) if unknown."""
        return self.state.epochs.end_offset_for(epoch, self.bounds.end_offset)

    # Changes

    def configure(self, config: TopicConfig) -> None:
        """Applies a topic's new configuration."""
        self.state.configure(config)
        self.writer.configure(config)
        self.opened_bits = opened_bits(config)

    def serve(self, *, roll_jitter_ms: int, on_flush_due: Callable[[LogState], object]) -> None:
        """Attaches the log to a running broker: sets the roll jitter and the flush callback."""
        self.writer.serve(roll_jitter_ms=roll_jitter_ms, on_flush_due=on_flush_due)

    def named(self, topic_id: bytes) -> None:
        """Sets the topic id, which its folder did not have."""
        self.topic_id = topic_id

    def replaces_stray(self, path: str) -> None:
        """Notes the new path of another topic's folder that was in its place."""
        self.recovery_report = self.recovery_report._replace(stray=path)

    def has_no_gap(self) -> None:
        """Notes that no record is missing that the leader has."""
        self.gap_offset = -1

    def becomes_copy(self) -> None:
        """Marks the log as a copy, filled from its partition's log in another directory."""
        self.is_future = True

    def becomes_current(self) -> None:
        """Marks a complete copy as its partition's log."""
        self.is_future = False

    # Truncation

    def truncate_to(self, offset: int, *, now_ms: int = 0) -> None:
        """Drops everything from `offset` on, including epochs without records that start there. Raises OSError."""
        state, flushing = self.state, self.flushing
        if offset <= self.gap_offset:
            self.gap_offset = -1
        if offset >= state.bounds.end_offset:
            with flushing.guard:
                state.epochs.truncate_from_end(offset)
                state.epochs.write(durable=True)
            return
        if offset < state.bases[0]:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return
        listed = state.segment_list
        lookup.aborted_in(state, listed.segments[listed.index_of(offset)])  # a damaged index cannot be truncated
        with flushing.guard, listed.lock:
            listed.give_up_swap()
            keep = listed.index_of(offset)
            kept, gone = listed.segments[: keep + 1], listed.segments[keep + 1 :]
            last = kept[-1]
            self._ends_at(offset)
            for segment in reversed(gone):
                segment.remove_files()
            place = last.find(offset)
            if place is not None:
                last.truncate(place[0], offset)
            listed.replace(kept)
            self.writer.was_cut()
            # A batch is dropped as a whole: the log may end below the offset, at the batch that held it.
            self._ends_at(min(offset, last_batch_end(last)) if last.size else last.base_offset)
            state.begins_within()
            state.reload_producers(now_ms)
            state.epochs.truncate_from_end(state.bounds.end_offset)
            state.epochs.write(durable=True)
            # The log grows over the truncated part: a crash must not restore it.
            last.sync()
            state.resources.disk.sync_directory(state.directory)

    def _ends_at(self, offset: int) -> None:
        self.state.ends_at(offset)
        self.flushing.cut(offset)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int = 0) -> None:
        """Drops everything, and continues at `offset`. Raises OSError."""
        state = self.state
        listed, disk = state.segment_list, state.resources.disk
        self.gap_offset = -1
        with self.flushing.guard, listed.lock:
            listed.give_up_swap()
            for segment in reversed(listed.segments):
                segment.remove_files()
            for snapshot in snapshot_offsets(list(disk.list(state.directory))):
                disk.remove(f"{state.directory}/{offset_name(snapshot, SNAPSHOT)}")
            segment = Segment(state.resources, state.directory, offset, size=0, created_ms=now_ms)
            segment.create()
            self.flushing.new_name()
            state.restarts_at(offset)
            self.flushing.start_at(offset)
            listed.replace([segment])
            self.writer.was_cut()

    def delete_records_before(self, offset: int) -> None:
        """Moves the log start offset up; the files follow with `maybe_delete_old_segments`."""
        self.state.begins_at(offset)

    def maybe_delete_old_segments(self, now_ms: int, high_watermark: int | None = None) -> list[Segment]:
        """Takes out the segments that retention no longer keeps, below the high watermark (None: the end of the log).

        They have their `.deleted` names when this returns; the caller removes them after file.delete.delay.ms. Raises
        OSError.
        """
        state = self.state
        mark = state.bounds.end_offset if high_watermark is None else high_watermark
        with state.lock:
            self.take_out(retention.expired(state, now_ms), now_ms, mark)
            gone = list(state.segment_list.retiring)
            while self.retire_one() is not None:
                pass
        return gone

    def take_out(self, old: retention.Expired, now_ms: int, high_watermark: int) -> None:
        """Takes the segments that are no longer kept out of the log: `retire_one` does the rest.

        Touches no file unless the log loses its active segment and rolls, or a swap is under way. Hold the lock. For
        the thread that appends. Raises OSError.
        """
        state = self.state
        count = retention.count_gone(state, old, high_watermark)
        if not count:
            return
        if count == len(state.segments):
            self.writer.roll(now_ms=now_ms)
        state.segment_list.take_out(count)
        state.begins_at(min(state.bases[0], state.bounds.end_offset))

    def retire_one(self) -> Segment | None:
        """Renames one removed segment (SegmentList.retire_one). For a worker. Raises OSError."""
        return self.state.segment_list.retire_one(self.state.resources.disk, self.state.snapshot_offset)

    def swap(self, old: list[Segment], new: Segment) -> bool:
        """Replaces segments with a compacted one (SegmentList.swap). For a worker. Raises OSError."""
        return self.state.segment_list.swap(old, new, self.state.resources.disk, self.state.snapshot_offset)

    # Closing and moving

    def flush(self, up_to: int | None = None) -> int:
        """Flushes everything below `up_to`; returns the offset up to which the log is safe. For worker threads. Raises
        OSError."""
        return self.flushing.flush(up_to)

    def close(self) -> None:
        """Flushes, and writes what a clean start reads: producers, leader epochs, indexes. Raises OSError."""
        state = self.state
        active = state.active
        try:
            if not self.flushing.was_never_used():
                self.flushing.flush()  # thousands of empty logs would delay a stop by a minute
            state.take_snapshot()
            active.finish_indexes()
            active.complete_files()
            for segment in state.segments:
                if segment.write_aborted():  # what was read from the batches, and nothing was appended since
                    segment.put_seal()
            self.flushing.sync_indexes()
            self._seal_end()
        finally:
            self.release()

    def _seal_end(self) -> None:
        """Seals the last segment with the leader epochs, unless it was sealed so when it was opened. Raises OSError."""
        active = self.state.active
        if not active.size:
            return
        epochs = read_sum(self.state.resources.disk, self.state.epochs.path)
        if not active.is_sealed_with(epochs):
            active.put_seal(active.time_index.last, epochs)

    def release(self) -> None:
        """Closes the files once no slice needs them."""
        for segment in self.state.segments:
            segment.release()

    def rename_folder(self, directory: str) -> None:
        """Renames the folder; everyone who has the log finds its files under the new name. Hold `lock`, and if the log
        goes on under the new name, `Flushing.held_still`. Raises OSError."""
        resources = self.state.resources
        with resources.renames:
            resources.disk.rename(self.state.directory, directory)
            self.state.moved(directory)
