"""The leader epochs of one partition with their first offsets, as in `leader-epoch-checkpoint`.

Kept in two rising lists. The file is written when the log is flushed, rolled, truncated or closed: recovery restores
what a crash takes from the batches, which carry their epoch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import Final

from headrace.env import Disk
from headrace.log.checkpoints import CheckpointError, decode_epochs, encode_epochs
from headrace.log.filenames import LEADER_EPOCHS

_NONE: Final[list[int]] = []
"""The empty list that the many logs without epochs share: never changed."""


class LeaderEpochs:
    """Rising leader epochs, each with its first offset."""

    __slots__ = ("_disk", "_offsets", "directory", "dirty", "epochs", "latest")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.directory = directory
        self.epochs = _NONE
        self._offsets = _NONE
        self.latest = -1
        self.dirty = False

    @property
    def path(self) -> str:
        """The path of the checkpoint file."""
        return f"{self.directory}/{LEADER_EPOCHS}"

    def moved(self, directory: str) -> None:
        """Notes the new name of the folder."""
        self.directory = directory

    def load(self) -> None:
        """Reads the checkpoint file if it exists. Raises CheckpointError."""
        try:
            entries = decode_epochs(self.path, self._disk.read_file(self.path))
        except FileNotFoundError:
            entries = []
        for (epoch, offset), (next_epoch, next_offset) in pairwise([(-1, 0), *entries]):
            if next_epoch <= epoch or next_offset < offset:
                raise CheckpointError(f"{self.path}: epoch {next_epoch} at {next_offset} does not follow {epoch}")
        self._set(entries)
        self.dirty = False

    def _set(self, entries: list[tuple[int, int]]) -> None:
        self.epochs = [epoch for epoch, _ in entries]
        self._offsets = [offset for _, offset in entries]
        self.latest = self.epochs[-1] if self.epochs else -1
        self.dirty = True

    def entries(self) -> list[tuple[int, int]]:
        """Returns all (epoch, first offset)."""
        return list(zip(self.epochs, self._offsets, strict=False))  # a flush may look while one is added

    def assign(self, epoch: int, first_offset: int) -> None:
        """Starts `epoch` at an offset; removes later epochs or offsets that contradict it."""
        if epoch <= self.latest and self.epochs:
            return
        while self._offsets and self._offsets[-1] >= first_offset:
            self._offsets.pop()
            self.epochs.pop()
        if not self.epochs:
            self.epochs, self._offsets = [], []
        self.epochs.append(epoch)
        self._offsets.append(first_offset)
        self.latest = epoch
        assert first_offset >= 0 and len(self.epochs) == len(self._offsets), "each epoch begins at an offset"
        self.dirty = True

    def epoch_at(self, offset: int) -> int:
        """Returns the epoch that wrote an offset, -1 if unknown."""
        at = bisect_right(self._offsets, offset)
        return self.epochs[at - 1] if at else -1

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Returns (largest epoch at or below `epoch`, its end offset); (-1, -1) if unknown.

        As OffsetForLeaderEpoch answers (KIP-101, KIP-279).
        """
        if epoch < 0 or not self.epochs or epoch > self.latest:
            return -1, -1
        if epoch == self.latest:
            return epoch, log_end_offset
        above = bisect_right(self.epochs, epoch)
        if above == 0:
            # Older than everything here: the requested epoch itself, ending where the first known one starts.
            return epoch, self._offsets[0]
        return self.epochs[above - 1], self._offsets[above]

    def truncate_from_end(self, end_offset: int) -> None:
        """Drops the epochs that start at or above an offset."""
        at = bisect_left(self._offsets, end_offset)
        if at < len(self._offsets):
            self._set(self.entries()[:at])

    def truncate_from_start(self, start_offset: int) -> None:
        """Drops the epochs that end at or below an offset; the one that contains it starts there now."""
        at = bisect_right(self._offsets, start_offset)
        if (at and self._offsets[at - 1] != start_offset) or at > 1:
            entries = self.entries()
            self._set([(entries[at - 1][0], start_offset), *entries[at:]])

    def clear(self) -> None:
        """Removes all epochs."""
        if self.epochs:
            self._set([])

    def write(self, *, durable: bool) -> None:
        """Writes the checkpoint file if anything changed."""
        if not self.dirty:
            return
        self.dirty = False  # first: epochs assigned meanwhile are for the next write
        data = encode_epochs(self.entries())
        try:
            if durable:
                self._disk.write_file_atomically(self.path, data)
            else:
                temporary = self.path + ".tmp"
                self._disk.write_file(temporary, data)
                self._disk.rename(temporary, self.path)
        except OSError:
            self.dirty = True
            raise
