"""The segments of a log in order, those that are being removed, and the one about to be swapped in.

Any thread reads `segments`: a list is replaced, never changed. A thread holds `lock` to replace it, the appending one
and workers alike; no thread syncs under it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from headrace.env import Disk, Lock
from headrace.log.directory import LogDirFailed
from headrace.log.filenames import DELETED, SNAPSHOT, SWAP, offset_name
from headrace.log.segment import Segment


class SegmentList:
    """The segments of a log, in order. The last segment is the `active` one, which is appended to."""

    __slots__ = ("active", "bases", "lock", "retiring", "segments", "swapping")

    def __init__(self, segments: list[Segment], lock: Lock) -> None:
        self.lock = lock
        self.swapping: Segment | None = None  # a compacted segment that is about to take its place; with `lock`
        self.retiring: tuple[Segment, ...] = ()  # taken out, and not renamed yet; with `lock`
        self.replace(segments)

    def replace(self, segments: list[Segment]) -> None:
        """Puts another list in place; hold `lock` while others might do so too."""
        assert segments, "a log has an active segment"
        self.bases = [segment.base_offset for segment in segments]
        assert len(segments) < 2 or self.bases[-2] < self.bases[-1], "segments follow one another"
        self.segments = segments  # after the bases: a reader on another thread may look too low, never too high
        self.active = segments[-1]

    def all_there(self, disk: Disk) -> bool:
        """Whether every segment has its file: what was not found had been renamed, and is looked for again."""
        with self.lock:
            return all(disk.exists(segment.path) for segment in self.segments)

    def take_out(self, count: int) -> None:
        """Takes out the first segments; `retire_one` does the rest. Hold `lock`. Raises OSError where a swap that is
        under way cannot be given up."""
        assert 0 < count < len(self.segments), "the active segment stays"
        self.give_up_swap()
        self.retiring = (*self.retiring, *self.segments[:count])
        self.replace(self.segments[count:])

    def all_segments(self) -> list[Segment]:
        """Those too that are on their way out, or about to come in. Hold `lock`."""
        swapping = [] if self.swapping is None else [self.swapping]
        return [*self.segments, *self.retiring, *swapping]

    def retire_one(self, disk: Disk, newest_snapshot: int) -> Segment | None:
        """Gives the files of one segment that was taken out their `.deleted` names; None where none is left.

        For a worker: the lock is held for one segment at a time. Where it fails the segment is retired later. Raises
        OSError.
        """
        with self.lock:
            if not self.retiring:
                return None
            segment = self.retiring[0]
            _remove_snapshots(disk, [segment], newest_snapshot)
            segment.rename(DELETED)
            self.retiring = self.retiring[1:]
            return segment

    def swap(self, old: list[Segment], new: Segment, disk: Disk, newest_snapshot: int) -> bool:
        """Puts a compacted segment in the place of those it was made from; False where they are not all there any more.

        For a worker thread. Where it is not done, nothing is left of the new one. Its new name is safe once the folder
        has been synced. Raises OSError, and LogDirFailed where it ended half-way: a start goes on with it.
        """
        with self.lock:
            if self._place_of(old) < 0:
                new.remove_files()
                return False
            assert self.swapping is None, "one swap at a time"
            new.rename(SWAP)
            self.swapping = new
            directory = new.directory
        try:
            # From here on a start finishes the swap. Without the lock: who appends must not wait for the disk.
            disk.sync_directory(directory)
        except BaseException:
            with self.lock:
                self.give_up_swap()
            raise
        with self.lock:
            if self.swapping is not new:
                return False
            self.swapping = None
            first = self._place_of(old)
            self.replace([*self.segments[:first], new, *self.segments[first + len(old) :]])
            try:
                for segment in old:
                    segment.rename(DELETED)
                new.rename("")
                _remove_snapshots(disk, old[1:], newest_snapshot)
            except FileNotFoundError:
                raise  # the log lacks files, and its directory may be sound
            except OSError as error:
                raise LogDirFailed(new.directory.rpartition("/")[0], error) from error
        return True

    def _place_of(self, segments: list[Segment]) -> int:
        """Index of the first of neighbouring segments, -1 where they are not all there."""
        first = next((at for at, segment in enumerate(self.segments) if segment is segments[0]), -1)
        return first if self.segments[first : first + len(segments)] == segments else -1

    def give_up_swap(self) -> None:
        """Before segments are taken out of the log: a start must not bring them back in their compacted form.

        Hold the lock. Raises OSError.
        """
        swapping, self.swapping = self.swapping, None
        if swapping is not None:
            swapping.remove_files()

    def index_of(self, offset: int) -> int:
        """Index of the segment that holds an offset; 0 for offsets below the first one."""
        return max(bisect_right(self.bases, offset) - 1, 0)


def _remove_snapshots(disk: Disk, gone: Sequence[Segment], newest_snapshot: int) -> None:
    """A start looks for producer snapshots where segments begin, and for the newest one. Hold the lock: the folder has
    the name that they say."""
    for segment in gone:
        if segment.base_offset != newest_snapshot:
            disk.remove(f"{segment.directory}/{offset_name(segment.base_offset, SNAPSHOT)}")
