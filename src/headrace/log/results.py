"""What appends and reads answer."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, overload

from headrace.wire.errors import ErrorCode
from headrace.wire.file_slice import FileSlice

if TYPE_CHECKING:
    from headrace.log.segment import Segment


class AppendResult:
    """How one append went. Offsets are -1 where nothing was appended.

    `log_append_time_ms` is -1 unless the topic stamps records itself. A duplicate of an idempotent producer answers
    with the offsets of the batch that it repeats.
    """

    __slots__ = (
        "base_offset",
        "duplicate",
        "error",
        "error_message",
        "last_offset",
        "log_append_time_ms",
        "log_start_offset",
        "record_errors",
    )

    def __init__(
        self,
        error: ErrorCode,
        base_offset: int = -1,
        last_offset: int = -1,
        log_append_time_ms: int = -1,
        log_start_offset: int = -1,
        error_message: str | None = None,
        record_errors: Sequence[tuple[int, str]] = (),
        duplicate: bool = False,
    ) -> None:
        self.error = error
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.error_message = error_message
        self.record_errors = record_errors
        self.duplicate = duplicate

    def __repr__(self) -> str:
        return f"AppendResult({self.error.name}, {self.base_offset}..{self.last_offset}, {self.error_message!r})"


class PlainResults(Sequence[AppendResult]):
    """How appends went of which none was refused, a duplicate, or given a time by its topic: their offsets alone."""

    __slots__ = ("_count", "log_start_offset", "offsets", "size")

    def __init__(self, offsets: array[int], count: int, log_start_offset: int, size: int) -> None:
        self.offsets = offsets
        """An array of "q" that begins with the base offsets of all batches, and the end of the last."""
        self.log_start_offset = log_start_offset
        self.size = size
        """Bytes of all batches."""
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> AppendResult: ...
    @overload
    def __getitem__(self, index: slice) -> list[AppendResult]: ...
    def __getitem__(self, index: int | slice) -> AppendResult | list[AppendResult]:
        if isinstance(index, slice):
            return [self[at] for at in range(len(self))[index]]
        offsets = self.offsets
        at = index if 0 <= index < self._count else range(self._count)[index]
        return AppendResult(ErrorCode.NONE, offsets[at], offsets[at + 1] - 1, -1, self.log_start_offset)


class ReadResult(NamedTuple):
    """Batches from the asked offset on (the first may start below it), as a slice of a segment's file; None: nothing
    there."""

    error: ErrorCode
    slice: FileSlice | None = None
    size: int = 0
    segment: Segment | None = None


class TimestampOffset(NamedTuple):
    """An answer to ListOffsets: a record's offset, its timestamp, and the epoch that wrote it (-1: not known)."""

    offset: int
    timestamp: int
    leader_epoch: int


class LogCorrupt(NamedTuple):
    """Damage below what was known to be safe: the partition stays offline until someone decides."""

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
    """What opening a log had to do: after a crash, or where files were damaged."""

    batches_scanned: int = 0
    bytes_scanned: int = 0
    bytes_cut: int = 0
    cut_path: str = ""
    cut_offset: int = -1
    cut_reason: str = ""
    gap_offset: int = -1
    """Where records are missing behind what was safe, and one cannot tell whether compaction or a power loss took them;
    -1: nowhere."""
    rebuilt: tuple[str, ...] = ()
    """Names of files that were missing or damaged, and were written again from the batches."""
    unindexed: tuple[Segment, ...] = ()
    """Segments without an index: it is rebuilt when it is asked for, or in the background."""
    stray: str = ""
    """Where the folder lies now that was in the log's place and was of another topic, or of nobody knows which."""
