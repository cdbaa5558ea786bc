"""Reading a segment from front to back, batch by batch: for recovery, verification, compaction and dumps.

Reads in big pieces, and looks at nothing but headers and checksums.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from headrace.env import File
from headrace.wire.batch import BATCH_OVERHEAD, BATCH_PLACE, LENGTH_OVERHEAD, MAGIC, BatchHeader, read_header
from headrace.wire.checksum import crc32c
from headrace.wire.primitives import Buffer

READ_BYTES = 1024 * 1024
"""Bytes read at a time; a batch that is larger gets a buffer of its own size."""

_MAGIC_AT = 16
_LENGTH_MAGIC = Struct(">8xi4xb")


def is_batch_at(data: Buffer, base_offset: int, offset: int) -> bool:
    """Whether what begins there may be a batch of a segment that begins with `base_offset`, and the one to look for an
    offset from, as an index says."""
    if len(data) < BATCH_PLACE.size:
        return False
    base, length, delta = BATCH_PLACE.unpack_from(data)
    is_whole = length + LENGTH_OVERHEAD >= BATCH_OVERHEAD and delta >= 0
    return is_whole and data[_MAGIC_AT] == MAGIC and base_offset <= base <= offset


class Scan:
    """A walk over the whole batches of a file from one position on.

    After the iteration `position` is the end of the last whole, valid batch, and `problem` says why it ended before
    `end`, None where it did not. Batches that start below `crc_from` (a position) are taken without their checksum.
    """

    def __init__(self, file: File, start: int, end: int, *, crc_from: int = 0, read_bytes: int = READ_BYTES) -> None:
        self._file = file
        self._end = end
        self._crc_from = crc_from
        self._buffer = bytearray(max(min(read_bytes, end - start), BATCH_OVERHEAD))
        self.position = start
        self.problem: str | None = None

    def stop(self, position: int, problem: str) -> None:
        """Ends the walk before the batch at `position`, in which the caller found a fault."""
        self.position = position
        self.problem = problem

    def __iter__(self) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """(position, header, the bytes of the batch) each; the bytes are good until the next one."""
        end = self._end
        while self.position < end and self.problem is None:
            view = self._fill(self.position)
            yield from self._batches(view)

    def _fill(self, position: int) -> memoryview:
        view = memoryview(self._buffer)
        return view[: self._file.read_into(position, view[: self._end - position])]

    def _batches(self, view: memoryview) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        at, filled, start = 0, len(view), self.position
        crc_from = self._crc_from
        while filled - at >= BATCH_OVERHEAD:
            length, magic = _LENGTH_MAGIC.unpack_from(view, at)
            size = length + LENGTH_OVERHEAD
            if magic != MAGIC or size < BATCH_OVERHEAD:
                self.problem = f"no record batch: magic {magic}, length {length}"
                return
            if start + at + size > self._end:
                self.problem = f"the file ends {start + at + size - self._end} bytes before the batch does"
                return
            if at + size > filled:
                if size > len(self._buffer):
                    self._buffer = bytearray(size)
                return
            header = read_header(view, at)
            if start + at >= crc_from and crc32c(view[at + 21 : at + size]) != header.crc:
                self.problem = "the checksum of the batch does not match"
                return
            if header.last_offset_delta < 0:
                self.problem = f"the last offset delta of the batch is {header.last_offset_delta}"
                return
            yield start + at, header, view[at : at + size]
            at += size
            self.position = start + at
        if self.position == start and filled < BATCH_OVERHEAD:
            self.problem = f"{self._end - self.position} bytes are left, less than the header of a batch"
