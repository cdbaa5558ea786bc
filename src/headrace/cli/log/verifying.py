"""Checks a partition's folder without a broker, and cuts it where the user says.

A log is good when its segments follow one another, every batch is whole with the right checksum and rising offsets, the
record count of an uncompressed batch is what it says, and every index entry points at the batch it should.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.cli.log.dumping import INDEX_ENTRY, TIME_INDEX_ENTRY
from headrace.metadata.damage import INCOMPLETE_FILE, INCOMPLETE_TEXT
from headrace.wire.batch import (
    BATCH_OVERHEAD,
    MAGIC,
    BatchHeader,
    check_crc,
    read_header,
    records_are_whole,
)

PROBLEMS_MAX = 20
"""Problems listed a partition."""

METADATA = "__cluster_metadata-0"


class TruncateError(Exception):
    """A cut that cannot be made; the message says why."""


@dataclass(slots=True)
class Report:
    """What was found in one partition's folder. `cut_at` is where a cut would leave only good batches."""

    directory: Path
    segments: int = 0
    batches: int = 0
    size: int = 0
    start: int = 0
    end: int = 0
    cut_at: int | None = None
    problems: list[str] = field(default_factory=list)

    def bad_data(self, file: Path, position: int, offset: int, what: str) -> None:
        """A problem in a segment itself: everything from here on is in doubt."""
        if self.cut_at is None:
            self.cut_at = offset
        self.bad(f"{file.name} position {position}, offset {offset}: {what}")

    def bad(self, problem: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)

    def as_json(self) -> dict[str, Any]:
        return {
            "directory": str(self.directory),
            "ok": not self.problems,
            "segments": self.segments,
            "batches": self.batches,
            "size": self.size,
            "start": self.start,
            "end": self.end,
            "cut_at": self.cut_at,
            "problems": self.problems,
        }


def partition_directories(path: Path) -> list[Path]:
    """The folder itself where it holds segments, else the partitions' folders in it."""
    if _segments(path):
        return [path]
    return [each for each in sorted(path.iterdir()) if each.is_dir() and _is_partition(each)]


def _is_partition(directory: Path) -> bool:
    topic, dash, index = directory.name.rpartition("-")
    return bool(topic and dash and index.isdigit()) and bool(_segments(directory))


def is_metadata(directory: Path) -> bool:
    """Whether this is the folder of the cluster's metadata log."""
    return directory.resolve().name == METADATA


def _segments(directory: Path) -> list[Path]:
    return sorted(file for file in directory.glob("*.log") if file.stem.isdigit() and len(file.stem) == 20)


def verify(directory: Path, advance: Callable[[int], None] = lambda _size: None) -> Report:
    """Read a partition's folder through. `advance` gets the number of bytes that are done."""
    report = Report(directory)
    segments = _segments(directory)
    report.segments = len(segments)
    report.start = report.end = int(segments[0].stem) if segments else 0
    for segment in segments:
        base = int(segment.stem)
        if base < report.end:
            report.bad(f"{segment.name} begins at offset {base}, before the end {report.end} of the segment below it")
        report.end = max(report.end, base)
        positions = _verify_segment(segment, report)
        _verify_index(segment, positions, report)
        _verify_time_index(segment, report)
        size = segment.stat().st_size
        report.size += size
        advance(size)
    return report


@contextmanager
def _mapped(segment: Path) -> Iterator[memoryview]:
    if segment.stat().st_size == 0:
        yield memoryview(b"")
        return
    with segment.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        with memoryview(mapped) as view:
            yield view


def batches_of(view: memoryview) -> Iterator[tuple[int, BatchHeader | None]]:
    """(position, header) of every batch; a None header where the bytes are none, and nothing after it."""
    at, size = 0, len(view)
    while at < size:
        header = read_header(view, at) if size - at >= BATCH_OVERHEAD else None
        if header is None or header.magic != MAGIC or header.size < BATCH_OVERHEAD or at + header.size > size:
            yield at, None
            return
        yield at, header
        at += header.size


def _verify_segment(segment: Path, report: Report) -> dict[int, tuple[int, int]]:
    """Check the batches; returns their (base, last) offsets by position."""
    positions: dict[int, tuple[int, int]] = {}
    with _mapped(segment) as view:
        for at, header in batches_of(view):
            if header is None:
                report.bad_data(segment, at, report.end, "no whole batch here")
                break
            if header.base_offset < report.end:
                report.bad_data(segment, at, report.end, f"a batch that begins at offset {header.base_offset} again")
            elif not check_crc(view, at, header):
                report.bad_data(segment, at, header.base_offset, "wrong checksum")
            elif header.compression == 0 and not header.is_control and not records_are_whole(view, at, header):
                report.bad_data(segment, at, header.base_offset, "a wrong record count")
            positions[at] = (header.base_offset, header.last_offset)
            report.batches += 1
            report.end = max(report.end, header.next_offset)
    return positions


def _verify_index(segment: Path, positions: dict[int, tuple[int, int]], report: Report) -> None:
    index = segment.with_suffix(".index")
    if not index.exists():
        return
    base, last = int(segment.stem), -1
    data = index.read_bytes()
    for number, (relative, position) in enumerate(INDEX_ENTRY.iter_unpack(data[: len(data) // 8 * 8])):
        if relative == 0 and position == 0:
            if number:
                return
            continue
        if relative <= last:
            report.bad(f"{index.name} entry {number}: offset {base + relative} does not rise")
            return
        last = relative
        found = positions.get(position)
        if found is None or not found[0] <= base + relative <= found[1]:
            report.bad(f"{index.name} entry {number}: offset {base + relative} is not at position {position}")
            return


def _verify_time_index(segment: Path, report: Report) -> None:
    index = segment.with_suffix(".timeindex")
    if not index.exists():
        return
    last = (-1, -1)
    data = index.read_bytes()
    for number, (timestamp, relative) in enumerate(TIME_INDEX_ENTRY.iter_unpack(data[: len(data) // 12 * 12])):
        if timestamp == 0 and relative == 0:
            return
        if timestamp < last[0] or relative < last[1]:
            report.bad(f"{index.name} entry {number}: timestamp {timestamp} or its offset goes back")
            return
        last = (timestamp, relative)


# -- repair


def truncate(directory: Path, offset: int) -> int:
    """Remove everything from the batch that holds `offset` on. Returns the new end offset.

    Indexes of what is cut go with it (the broker builds them again), producer snapshots and leader epochs above the
    cut too, and the recovery point comes down to it. Before the metadata log is cut, a note is on the disk: the quorum
    counts on every voter to keep what it has acknowledged, so this node must not vote before it has it again. Raises
    `TruncateError`.
    """
    directory = directory.resolve()
    log_directory = directory.parent
    with _locked(log_directory):
        segments = _segments(directory)
        if not segments or offset < int(segments[0].stem):
            raise TruncateError(f"the log begins above offset {offset}")
        if is_metadata(directory):
            _write(log_directory / INCOMPLETE_FILE, INCOMPLETE_TEXT)
            _sync(log_directory)
        end = _cut(segments, offset)
        for snapshot in directory.glob("*.snapshot"):
            if snapshot.stem.isdigit() and int(snapshot.stem) > end:
                snapshot.unlink()
        _cut_epochs(directory / "leader-epoch-checkpoint", end)
        _lower(log_directory / "recovery-point-offset-checkpoint", directory.name, end)
        _lower(log_directory / "replication-offset-checkpoint", directory.name, end)
        (log_directory / ".kafka_cleanshutdown").unlink(missing_ok=True)
        _sync(directory)
        _sync(log_directory)
    return end


@contextmanager
def _locked(log_directory: Path) -> Iterator[None]:
    """Kafka's own lock: neither kind of broker runs on the directory meanwhile."""
    with (log_directory / ".lock").open("a+b") as lock:
        try:
            # Java locks with POSIX record locks, which flock(2) does not see.
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise TruncateError(f"a broker runs on {log_directory}; stop it first") from None
        yield


def _cut(segments: list[Path], offset: int) -> int:
    """Shorten the segment that holds the offset, remove those above it."""
    keep = [segment for segment in segments if int(segment.stem) <= offset]
    for segment in reversed(segments[len(keep) :]):
        for file in segment.parent.glob(f"{segment.stem}.*"):
            if not file.name.endswith(".snapshot"):
                file.unlink()
    last = keep[-1]
    end, position = int(last.stem), 0
    with _mapped(last) as view:
        for at, header in batches_of(view):
            if header is None or header.last_offset >= offset:
                break
            end, position = header.next_offset, at + header.size
    with last.open("r+b") as stream:
        stream.truncate(position)
        os.fsync(stream.fileno())
    for suffix in (".index", ".timeindex", ".txnindex", ".seal"):
        last.with_suffix(suffix).unlink(missing_ok=True)
    return end


def _cut_epochs(file: Path, end: int) -> None:
    if not file.exists():
        return
    entries = [line for line in file.read_text().splitlines()[2:] if line.strip()]
    _rewrite(file, [line for line in entries if int(line.split()[1]) < end])


def _lower(file: Path, partition: str, end: int) -> None:
    """No more than `end` for this partition in an offset checkpoint."""
    if not file.exists():
        return
    topic, _, index = partition.rpartition("-")
    entries = []
    for line in (line for line in file.read_text().splitlines()[2:] if line.strip()):
        name, number, offset = line.rsplit(" ", 2)
        if (name, number) == (topic, index):
            offset = str(min(int(offset), end))
        entries.append(f"{name} {number} {offset}")
    _rewrite(file, entries)


def _rewrite(file: Path, entries: list[str]) -> None:
    _write(file, "\n".join(["0", str(len(entries)), *entries]) + "\n")


def _write(file: Path, text: str) -> None:
    temporary = file.with_name(file.name + ".tmp")
    with temporary.open("w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(file)


def _sync(directory: Path) -> None:
    number = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
