"""The folder of a log when it is opened: completes what a crash interrupted, and finds the segments."""

from __future__ import annotations

from headrace.env import Disk
from headrace.log.checkpoints import CheckpointError, decode_partition_metadata, is_torn_partition_metadata
from headrace.log.filenames import (
    CLEANED,
    DELETED,
    LOG,
    PARTITION_METADATA,
    REBUILT,
    SEGMENT_KINDS,
    SWAP,
    is_segment_file,
    offset_name,
    parse_offset_name,
)
from headrace.log.recovery_report import LogCorrupt, LogDamaged
from headrace.log.resources import Resources
from headrace.log.scan import Scan
from headrace.log.segment import Segment

NO_TOPIC_ID = bytes(16)


def finish_swaps(resources: Resources, directory: str, sizes: dict[str, int]) -> dict[str, int]:
    """Completes deletions and compactions that a crash interrupted. Returns the remaining names and sizes.

    A `.cleaned` file means that a compaction was not complete: it is removed, with the `.swap` files at or above it,
    and the old segments stay. A `.log.swap` is complete: it replaces the old segments in its range.
    """
    if not any(name.endswith((DELETED, CLEANED, SWAP, REBUILT)) for name in sizes):
        return sizes
    disk = resources.disk
    cleaned = [_base_of(name, CLEANED) for name in sizes if name.endswith(CLEANED)]
    incomplete_from = min(cleaned, default=None)
    swaps: list[int] = []
    for name in sorted(sizes):
        path = f"{directory}/{name}"
        if name.endswith((DELETED, CLEANED, REBUILT)):
            disk.remove(path)
        elif name.endswith(SWAP):
            base = _base_of(name, SWAP)
            if incomplete_from is not None and base >= incomplete_from:
                disk.remove(path)
            elif name.endswith(LOG + SWAP):
                swaps.append(base)
    for base in swaps:
        _finish_swap(resources, directory, base)
    for name in sorted(name for name, _ in disk.list_sizes(directory) if name.endswith(SWAP)):
        # The log of these has its final name already, or is finished above: they follow it.
        disk.rename(f"{directory}/{name}", f"{directory}/{name[: -len(SWAP)]}")
    return dict(disk.list_sizes(directory))


def _base_of(name: str, suffix: str) -> int:
    digits = name[: -len(suffix)].partition(".")[0]
    return int(digits) if digits.isdigit() else 0


def _finish_swap(resources: Resources, directory: str, base: int) -> None:
    disk = resources.disk
    path = f"{directory}/{offset_name(base, LOG + SWAP)}"
    segment = Segment(resources, directory, base, size=disk.size(path), suffix=SWAP)
    next_offset = base
    for _, header, _ in Scan(segment.file(), 0, segment.size, crc_from=segment.size):
        next_offset = header.next_offset
    segment.release()
    for name in disk.list(directory):
        for kind in SEGMENT_KINDS:
            offset = parse_offset_name(name, kind)
            if offset is not None and (offset == base or base <= offset < next_offset):
                disk.remove(f"{directory}/{name}")
    disk.rename(path, f"{directory}/{offset_name(base, LOG)}")


def find_segments(
    resources: Resources, directory: str, sizes: dict[str, int], log_start_offset: int, now_ms: int
) -> list[Segment]:
    """Returns the segments in a folder, oldest first; creates one at the log start offset if there are none. Removes an
    index without its log. Raises OSError."""
    bases = sorted(base for base in (parse_offset_name(name, LOG) for name in sizes) if base is not None)
    for name in sizes:
        if is_segment_file(name) and not name.endswith(LOG) and int(name[:20]) not in set(bases):
            resources.disk.remove(f"{directory}/{name}")  # an index without its log
    if not bases:
        segment = Segment(resources, directory, log_start_offset, size=0, created_ms=now_ms)
        segment.create()
        return [segment]
    older = [Segment(resources, directory, base, size=sizes[offset_name(base, LOG)]) for base in bases[:-1]]
    name = offset_name(bases[-1], LOG)
    created_ms = resources.disk.modified_ms(f"{directory}/{name}") if sizes[name] else now_ms
    return [*older, Segment(resources, directory, bases[-1], size=sizes[name], created_ms=created_ms)]


def read_topic_id(disk: Disk, directory: str) -> bytes:
    """Returns the topic id of a folder, NO_TOPIC_ID if it was not written yet. Raises OSError, LogDamaged."""
    path = f"{directory}/{PARTITION_METADATA}"
    data = disk.read_file(path)
    if is_torn_partition_metadata(data):
        return NO_TOPIC_ID  # a crash came before the first sync of the folder: the caller writes it again
    try:
        return decode_partition_metadata(path, data)
    except CheckpointError as error:
        reason = f"it does not say which topic this is; without the file the folder's name says it ({error})"
        raise LogDamaged(LogCorrupt(directory, path, 0, 0, reason)) from error
