"""What is read from the batches again where its own file is missing or cannot be read: the leader epochs of a log."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.log.epochs import LeaderEpochs
from headrace.log.scan import Scan
from headrace.log.segment import Segment
from headrace.wire.batch import BATCH_OVERHEAD, BatchHeader, read_header


def rebuild_epochs(epochs: LeaderEpochs, segments: Sequence[Segment]) -> None:
    """Takes the epochs from the batches, which carry them. Raises OSError.

    Epochs rise: a segment that begins and ends under the same one is not read. Where a header makes no sense the rest
    of its segment is left out: whoever opens the log looks at its end, and a reader at the rest.
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


def _first_header(segment: Segment) -> BatchHeader | None:
    data = segment.file().read(0, BATCH_OVERHEAD)
    return read_header(data) if len(data) == BATCH_OVERHEAD else None


def _take(epochs: LeaderEpochs, header: BatchHeader) -> None:
    if header.partition_leader_epoch > epochs.latest:
        epochs.assign(header.partition_leader_epoch, header.base_offset)
