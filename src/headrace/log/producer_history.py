"""Restores the state of a log's producers from the newest usable snapshot and the batches behind it."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.env import Disk
from headrace.log.filenames import SNAPSHOT, offset_name, parse_offset_name
from headrace.log.producer_batches import note_producer
from headrace.log.producer_snapshot import SnapshotError
from headrace.log.producer_snapshot import decode as decode_snapshot
from headrace.log.producers import Producers
from headrace.log.scan import Scan
from headrace.log.segment import Segment, index_of


def snapshot_offsets(names: list[str]) -> list[int]:
    """The offsets of the producer snapshots among file names, rising."""
    offsets = (parse_offset_name(name, SNAPSHOT) for name in names)
    return sorted(offset for offset in offsets if offset is not None)


def load_producers(
    producers: Producers,
    disk: Disk,
    directory: str,
    segments: Sequence[Segment],
    end_offset: int,
    now_ms: int,
    snapshots: list[int] | None = None,
) -> int:
    """Makes the state of producers agree with a log that ends at `end_offset`. Raises OSError.

    Returns the offset of the snapshot that it began with, -1 for none. Snapshots (None: all in the folder) beyond the
    end, or that cannot be read, are deleted.
    """
    if snapshots is None:
        snapshots = snapshot_offsets(list(disk.list(directory)))
    producers.clear()
    # What lies below the log start offset but is still in the files counts: it tells of sequences all the same.
    start, used = segments[0].base_offset, -1
    for offset in reversed(snapshots):
        if offset < start:
            break  # the batches between it and the first segment are gone
        path = f"{directory}/{offset_name(offset, SNAPSHOT)}"
        if offset > end_offset:
            disk.remove(path)
            continue
        try:
            entries = decode_snapshot(path, disk.read_file(path))
        except FileNotFoundError:
            continue  # it could not be read before
        except SnapshotError:
            disk.remove(path)
            continue
        producers.load(entries, now_ms)
        start = used = offset
        break
    if start < end_offset:
        _scan(producers, segments, start, end_offset)
    producers.remove_expired(now_ms)
    return used


def _scan(producers: Producers, segments: Sequence[Segment], start: int, end_offset: int) -> None:
    """Takes in the producers' batches from one offset to another. Raises OSError."""
    for segment in segments[index_of(segments, start) :]:
        place = segment.find(start)
        if place is None:
            continue
        for _, header, data in Scan(segment.file(), place[0], segment.size, crc_from=segment.size):
            if header.base_offset >= end_offset:
                return  # recovery has not come that far
            if header.producer_id >= 0 and header.base_offset >= start:
                note_producer(producers, header, lambda data=data: data)  # type: ignore[misc]
