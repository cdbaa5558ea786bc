"""Deferred removals: files and folders that already have their `.deleted` or `-delete` names.

They stay for file.delete.delay.ms, for readers that still hold them. The delay goes by the steady clock: setting the
wall clock back keeps nothing longer.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from headrace.env import Clock, Disk
from headrace.log.segment import Segment


class Removal:
    """The files and folders that wait for their removal. Any thread may add some; one at a time removes."""

    def __init__(self, disk: Disk, clock: Clock) -> None:
        self._disk = disk
        self._clock = clock
        self._files: list[tuple[float, Segment]] = []
        self._trees: list[tuple[float, str]] = []

    def add_files(self, segments: Iterable[Segment], delay_ms: int) -> None:
        """Has the files of segments (renamed to `.deleted`) removed after a delay."""
        due = self._clock.monotonic() + delay_ms / 1000
        self._files.extend((due, segment) for segment in segments)

    def add_tree(self, path: str, delay_ms: int) -> None:
        """Has a folder removed after a delay."""
        self._trees.append((self._clock.monotonic() + delay_ms / 1000, path))

    def is_due(self) -> bool:
        """Whether the delay of something is over."""
        now = self._clock.monotonic()
        return any(due <= now for due, _ in list(self._files)) or any(due <= now for due, _ in list(self._trees))

    def run(self) -> None:
        """Carries out the removals that are due. For a worker: a big file takes its time."""
        now = self._clock.monotonic()
        # Others add to the lists meanwhile: each entry is taken off, and goes to the end where it is not due.
        for _ in range(len(self._files)):
            due, segment = self._files.pop(0)
            if due <= now:
                with suppress(OSError):  # what cannot be removed now is removed at the next start
                    segment.remove_files()
            else:
                self._files.append((due, segment))
        for _ in range(len(self._trees)):
            due, path = self._trees.pop(0)
            if due <= now:
                with suppress(OSError):
                    self._disk.remove_tree(path)
            else:
                self._trees.append((due, path))
