"""The results of reads and look-ups."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from headrace.wire.file_slice import FileSlice

if TYPE_CHECKING:
    from headrace.log.segment import Segment


class Local(NamedTuple):
    """Batches of the local log from the requested offset on (the first may start below it), as a slice of a segment's
    file; None if there is none to read."""

    slice: FileSlice | None = None
    size: int = 0
    segment: Segment | None = None


class OutOfRange(NamedTuple):
    """A read outside of the log, with the bounds of the log."""

    log_start_offset: int
    end_offset: int


ReadResult: TypeAlias = Local | OutOfRange
"""The result of a read. Readers handle each case by name, so a new case is a type error."""


class TimestampOffset(NamedTuple):
    """An answer to ListOffsets: a record's offset, its timestamp, and the epoch that wrote it (-1: not known)."""

    offset: int
    timestamp: int
    leader_epoch: int
