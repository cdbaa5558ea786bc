"""The findings of opening a log: damage that keeps it offline, and repairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from headrace.log.segment import Segment


class LogCorrupt(NamedTuple):
    """Damage below the recovery point: the partition stays offline until an operator decides."""

    directory: str
    path: str
    offset: int
    position: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path} is damaged at byte {self.position} (offset {self.offset}): {self.reason}"


class LogDamaged(OSError):
    """A log that must not be served; `corrupt` says where it is damaged. Its partition alone stays offline."""

    def __init__(self, corrupt: LogCorrupt) -> None:
        super().__init__(str(corrupt))
        self.corrupt = corrupt


class RecoveryReport(NamedTuple):
    """The work of opening a log, after a crash or because of damaged files."""

    batches_scanned: int = 0
    bytes_scanned: int = 0
    bytes_cut: int = 0
    cut_path: str = ""
    cut_offset: int = -1
    cut_reason: str = ""
    gap_offset: int = -1
    """The offset of a gap that may be due to compaction or to a power loss; -1: none."""
    rebuilt: tuple[str, ...] = ()
    """Names of files that were missing or damaged, and were written again from the batches."""
    unindexed: tuple[Segment, ...] = ()
    """Segments without an index: it is rebuilt when it is asked for, or in the background."""
    stray: str = ""
    """The new path of a folder that was in the log's place and belonged to another or an unknown topic."""
