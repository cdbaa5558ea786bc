"""Rebuilds lost files from the batches: a log's leader epochs, and a segment's aborted transactions."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.env import Disk
from headrace.log.epochs import LeaderEpochs
from headrace.log.producer_batches import note_producer
from headrace.log.producer_history import load_producers, snapshot_offsets
from headrace.log.producers import Producers
from headrace.log.scan import Scan
from headrace.log.segment import Segment, index_of
from headrace.log.transaction_index import AbortedTransaction
from headrace.wire.batch import BATCH_OVERHEAD, BatchHeader, read_header


def rebuild_epochs(epochs: LeaderEpochs, segments: Sequence[Segment]) -> None:
    """Rebuilds the epochs from the batches, which carry them. Raises OSError.

    Epochs rise, so a segment that begins and ends under the same one is not read. If a header is invalid, the rest of
    its segment is skipped: opening the log checks its end, and a reader the rest.
    """
    epochs.clear()
    filled = [segment for segment in segments if segment.size]
    firsts = [_first_header(segment) for segment in filled]
    for index, (segment, first) in enumerate(zip(filled, firsts, strict=True)):
        behind = firsts[index + 1] if index + 1 < len(firsts) else None
        if first is not None and behind is not None:
            if first.partition_leader_epoch == behind.partition_leader_epoch:
                _take(epochs, first)
                continue
        for _, header, _ in Scan(segment.file(), 0, segment.size, crc_from=segment.size):
            _take(epochs, header)


def are_epochs_true(epochs: LeaderEpochs, segments: Sequence[Segment], start_offset: int, end_offset: int) -> bool:
    """Returns whether the batches agree with the leader epochs: those around each start of an epoch, the first, and the
    last. Raises OSError."""
    beginnings = [offset for _, offset in epochs.entries() if start_offset < offset < end_offset]
    for offset in {start_offset, end_offset - 1, *beginnings, *(offset - 1 for offset in beginnings)}:
        header = _header_for(segments, offset)
        if header is not None:
            known = epochs.epoch_at(max(header.base_offset, start_offset))
            if header.partition_leader_epoch != known:
                return False
    return all(_begins(_header_for(segments, offset), offset) for offset in beginnings)


def _begins(header: BatchHeader | None, offset: int) -> bool:
    """Returns whether a batch may be the first of an epoch that starts at an offset: compaction may have removed the
    first."""
    return header is None or header.base_offset >= offset


def _header_for(segments: Sequence[Segment], offset: int) -> BatchHeader | None:
    """Returns the header of the first batch that ends at or above an offset, in its segment."""
    if offset < segments[0].base_offset:
        return None
    segment = segments[index_of(segments, offset)]
    place = segment.find(offset)
    return None if place is None else read_header(segment.file().read(place[0], BATCH_OVERHEAD))


def _first_header(segment: Segment) -> BatchHeader | None:
    data = segment.file().read(0, BATCH_OVERHEAD)
    return read_header(data) if len(data) == BATCH_OVERHEAD else None


def _take(epochs: LeaderEpochs, header: BatchHeader) -> None:
    if header.partition_leader_epoch > epochs.latest:
        epochs.assign(header.partition_leader_epoch, header.base_offset)


def rebuild_aborted(
    disk: Disk, directory: str, segments: Sequence[Segment], segment: Segment, *, below: int = 1 << 63
) -> list[AbortedTransaction]:
    """Returns the aborted transactions whose marker is in a segment, below an offset. Raises OSError.

    Their first offsets come from the snapshot at the start of the segment, or from the batches before it. Those that
    begin in the deleted part are left out, as they can no longer be read.
    """
    producers = Producers()
    base_offset = segment.base_offset
    snapshots = [offset for offset in snapshot_offsets(list(disk.list(directory))) if offset <= base_offset]
    load_producers(producers, disk, directory, segments, base_offset, 0, snapshots)
    found: list[AbortedTransaction] = []
    for _, header, data in Scan(segment.file(), 0, segment.size, crc_from=segment.size):
        if header.base_offset >= below:
            break
        if header.producer_id >= 0:
            entry = note_producer(producers, header, lambda data=data: data)  # type: ignore[misc]
            if entry is not None:
                found.append(entry)
    return found
