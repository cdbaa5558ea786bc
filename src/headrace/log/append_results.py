"""The results of appends, and the form of a checked batch before it is written."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TypeAlias, overload

from headrace.log.transaction_index import AbortedTransaction
from headrace.wire.errors import ErrorCode
from headrace.wire.primitives import Buffer


class AppendResult:
    """The result of one append. Offsets are -1 if nothing was appended.

    `log_append_time_ms` is -1 unless the topic stamps records itself. A duplicate of an idempotent producer has the
    offsets of the batch that it repeats.
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
    """The results of appends without a refusal, a duplicate or a topic's timestamp: their offsets alone."""

    __slots__ = ("_count", "log_start_offset", "offsets", "size")

    def __init__(self, offsets: array[int], count: int, log_start_offset: int, size: int) -> None:
        self.offsets = offsets
        """An array of "q" with the base offsets of all batches, and the end of the last."""
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


Staged: TypeAlias = tuple[int, int, int, int, int, AppendResult, AbortedTransaction | None]
"""A checked batch with its offset that is not written yet: base offset, last offset, size in bytes, largest timestamp,
leader epoch, the result for its sender, and its entry of the transaction index."""

Parts: TypeAlias = tuple[Buffer, Buffer]
"""The bytes of a staged batch: the prefix set by the log (base offset, length, leader epoch), and the rest."""
