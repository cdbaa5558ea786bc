"""The start and end offsets of a log."""

from __future__ import annotations

from headrace.log.producers import Producers


class LogBounds:
    """Log start, local log start and log end of one replica. `LogState` alone changes them; any thread reads them.

    The log start offset is the first offset that may be read from the replica, the local log start offset the first
    that lies in its own segments. They are equal as long as no segment is stored elsewhere (KIP-405).
    """

    __slots__ = ("end_offset", "local_log_start_offset", "log_start_offset")

    def __init__(self, log_start_offset: int, end_offset: int) -> None:
        assert 0 <= log_start_offset <= end_offset, "a log begins before it ends"
        self.log_start_offset = log_start_offset
        self.local_log_start_offset = log_start_offset
        self.end_offset = end_offset
        """The offset that the next record gets."""

    def __repr__(self) -> str:
        return f"LogBounds({self.log_start_offset}, {self.local_log_start_offset}, {self.end_offset})"

    def last_stable_offset(self, high_watermark: int, producers: Producers) -> int:
        """Returns the offset up to which a read_committed consumer may read, at most the high watermark.

        A transaction whose first records were deleted is undecided from the log start offset on.
        """
        return min(high_watermark, max(producers.last_stable_offset(high_watermark), self.log_start_offset))
