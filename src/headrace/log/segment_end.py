"""The end of a segment's batches, and the check of it."""

from __future__ import annotations

from headrace.log.scan import Scan
from headrace.log.segment import RELATIVE_OFFSET_MAX, SCAN_BYTES, Segment
from headrace.wire.batch import BATCH_OVERHEAD, BATCH_PLACE, BatchHeader, CorruptBatch, check_crc


def last_batch_end(segment: Segment) -> int:
    """The offset after the last batch: from the last index entry on, by the headers. Raises OSError."""
    position = segment.index.last & 0xFFFFFFFF
    next_offset = segment.base_offset
    file = segment.file()
    while position < segment.size:
        data = file.read(position, SCAN_BYTES)
        at = 0
        while at + BATCH_PLACE.size <= len(data):
            base, length, delta = BATCH_PLACE.unpack_from(data, at)
            if length + 12 < BATCH_OVERHEAD:
                return next_offset
            next_offset = base + delta + 1
            at += length + 12
        if not at:
            break
        position += at
    return next_offset


def check_end(segment: Segment, closed_at: int, *, from_start: bool = False) -> int:
    """The offset after the last batch, which is read whole. Raises OSError.

    Raises CorruptBatch where the batches from the last index entry on (or all) do not follow one another up to the
    end of the file, or the checksum of the last is wrong. Length and base offset lie outside of it: only the walk
    tells, the index, and (`closed_at`, 0: not known) the offset that the log ended at when it was closed.
    """
    next_offset, end = segment.base_offset, segment.base_offset + RELATIVE_OFFSET_MAX
    indexed = 0 if from_start else segment.index.last
    scan = Scan(segment.file(), indexed & 0xFFFFFFFF, segment.size, crc_from=segment.size, read_bytes=SCAN_BYTES)
    first_end = segment.base_offset + (indexed >> 32) if indexed else end
    last: tuple[int, BatchHeader, memoryview] | None = None
    before = next_offset
    for last in scan:
        header = last[1]
        if not next_offset <= header.base_offset <= header.last_offset <= first_end:
            raise CorruptBatch(f"offset {header.base_offset} does not follow {next_offset - 1} at byte {last[0]}")
        before, next_offset, first_end = next_offset, header.next_offset, end
    if scan.problem is not None:
        raise CorruptBatch(f"{scan.problem} at byte {scan.position}")
    if indexed and segment.base_offset + (indexed >> 32) >= next_offset:
        raise CorruptBatch(f"the index names offset {segment.base_offset + (indexed >> 32)}, and {next_offset} is next")
    if last is not None and not check_crc(last[2], 0, last[1]):
        raise CorruptBatch(f"the checksum of the last batch does not match at byte {last[0]}")
    if last is not None and is_misplaced(last[1], before, closed_at):
        raise CorruptBatch(f"offset {last[1].base_offset} lies behind the end of the log at byte {last[0]}")
    return next_offset


def is_misplaced(header: BatchHeader, expected: int, closed_at: int) -> bool:
    """Whether a batch lies behind where its log was closed, and would end there if it began at the `expected` offset:
    its base offset is damaged. A gap before it says nothing alone: compaction leaves such."""
    return expected < header.base_offset and expected + header.last_offset_delta + 1 == closed_at < header.next_offset
