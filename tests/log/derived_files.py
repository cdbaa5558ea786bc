"""Logs with everything that derived files tell of, ways to damage these files, and what a log says of itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import RLock
from typing import Any, NamedTuple

from log.conftest import read_at

from headrace.config.topic import TopicConfig
from headrace.env import Disk
from headrace.log import seal
from headrace.log.log import Log
from headrace.log.recovery import open_log
from headrace.log.resources import Resources
from headrace.sim.disk import SimDisk
from headrace.wire.batch import BatchHeader, CorruptBatch, iter_headers
from headrace.wire.markers import EndMarker, build_marker, marker_of
from headrace.wire.records import Record, build_batch, decode_batch

NOW_MS = 1_750_000_000_000
FOLDER = "/t-0"
DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot", ".seal", "leader-epoch-checkpoint")
PRODUCERS = range(1, 5)
READ_BYTES = 300
STEPS = ("plain", "sequenced", "begun", "ended", "elected", "rolled", "safe", "deleted")


class Stopped(NamedTuple):
    """What the files of the log directory say of a log that has stopped."""

    clean: bool
    recovery_point: int
    log_start_offset: int


NEVER_STOPPED = Stopped(False, 0, 0)


class Writer:
    """Writes to one log what a leader gets: `step` does something at random."""

    def __init__(self, disk: SimDisk, config: TopicConfig, rng: random.Random) -> None:
        self.disk, self.config, self.rng = disk, config, rng
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.opened: set[int] = set()
        self.epoch = 0
        self.now_ms = NOW_MS
        self.recovery_point = 0
        self.log = opened(disk, config)

    def step(self) -> None:
        rng, log = self.rng, self.log
        kind = rng.choices(STEPS, (4, 3, 6, 4, 1, 1, 1, 0.3))[0]
        self.now_ms += rng.choice((-7, 0, 1, 10, 1000))
        if kind == "plain":
            self.append()
        elif kind == "sequenced":
            self.append(rng.choice(PRODUCERS[:2]))
        elif kind == "begun":
            self.append(rng.choice(PRODUCERS[2:]), transactional=True)
        elif kind == "ended" and self.opened:
            self.end(rng.choice(sorted(self.opened)), committed=rng.random() < 0.4)
        elif kind == "elected":
            self.epoch += rng.randint(1, 3)
        elif kind == "rolled":
            log.writer.roll(now_ms=self.now_ms)
        elif kind == "safe":
            log.flush()
            if rng.random() < 0.5:
                self.checkpoint()
        elif kind == "deleted":
            log.delete_records_before(rng.randint(log.log_start_offset, min(log.log_start_offset + 4, log.end_offset)))

    def append(self, producer: int = -1, *, transactional: bool = False) -> None:
        count = self.rng.randint(1, 3)
        records = [Record(0, self.now_ms + self.rng.randint(-3, 3), b"k", b"v" * self.rng.randint(1, 40), [])]
        fields: dict[str, Any] = {}
        if producer >= 0:
            fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": self.sequences[producer]}
            self.sequences[producer] += count
        if transactional:
            self.opened.add(producer)
        batch = build_batch(records * count, transactional=transactional, **fields)
        assert not self.log.writer.append(batch, leader_epoch=self.epoch, now_ms=self.now_ms).error

    def end(self, producer: int, *, committed: bool) -> None:
        self.opened.discard(producer)
        marker = build_marker(EndMarker(producer, 0, 3, committed), self.now_ms)
        assert not self.log.writer.append(marker, leader_epoch=self.epoch, now_ms=self.now_ms, origin="marker").error

    def checkpoint(self) -> None:
        point = self.log.recovery_point
        self.log.flushing.sync_indexes()
        self.recovery_point = point

    def stop(self, how: str) -> Stopped:
        """A clean stop, a kill, or a power loss once all batches are safe; what else is safe is left to chance."""
        log = self.log
        if how == "power":
            log.flush()
            self.disk.crash()
        if how == "stop":
            log.close()
            self.recovery_point = log.recovery_point
        return Stopped(how == "stop", self.recovery_point, log.log_start_offset)

    def start(self, stopped: Stopped) -> None:
        self.log = opened(self.disk, self.config, stopped)


def opened(disk: Disk, config: TopicConfig, stopped: Stopped = NEVER_STOPPED) -> Log:
    resources = Resources(disk, RLock)
    return open_log(resources, FOLDER, ("t", 0), config, now_ms=NOW_MS, **stopped._asdict())


# What a log says


def whole(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """The batches that are there as a whole: a read may end in the middle of one."""
    with suppress(CorruptBatch):
        yield from iter_headers(data)


def committed(log: Log) -> list[tuple[int, bytes | None]]:
    """What a consumer of committed records reads, a few batches at a time, as Java's does."""
    found: list[tuple[int, bytes | None]] = []
    offset, end = log.log_start_offset, log.last_stable_offset(log.end_offset)
    while offset < end:
        read = read_at(log, offset, max_bytes=READ_BYTES, max_offset=end)
        if read.slice is None:
            break
        listed = sorted((each.first_offset, each.producer_id) for each in log.reader.aborted_transactions(offset, read))
        aborted: set[int] = set()
        data, next_offset = read.slice.read(), offset
        for at, header in whole(data):
            next_offset = header.next_offset
            while listed and listed[0][0] <= header.last_offset:
                aborted.add(listed.pop(0)[1])
            if header.is_control:
                marker = marker_of(header, data[at : at + header.size])
                if marker is not None and marker[0] == 0:
                    aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                found += [(each.offset, each.value) for each in decode_batch(data, at) if each.offset >= offset]
        assert next_offset > offset
        offset = next_offset
    return found


def described(log: Log) -> dict[str, Any]:
    """All that derived files have a part in, found without their help where that is possible."""
    end = log.end_offset
    producers = {
        producer: (each[0], [batch[:4] for batch in each.batches[-1:]], each.coordinator_epoch, each[-1])
        for producer, each in log.producers.items()
    }
    times = [log.reader.offset_for_timestamp(NOW_MS + late) for late in range(-20, 30_000, 397)]
    places = []
    for offset in range(log.log_start_offset, end, 3):
        read = read_at(log, offset, max_bytes=1, max_offset=end)
        assert read.slice is not None
        assert read.segment is not None
        places.append((read.segment.path, read.slice.position))
    return {
        "end": end,
        "stable": log.last_stable_offset(end),
        "committed": committed(log),
        "producers": producers,
        "epochs": log.epochs.entries(),
        "times": times,
        "newest": log.reader.max_timestamp_offset(),
        "places": places,
    }


# Damage


def _truncated(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.choice((0, rng.randrange(len(data) + 1), len(data) // 34 * 17))]


def _zeroed(data: bytes, rng: random.Random) -> bytes:
    return bytes(len(data))


def _partly_zeroed(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + bytes(len(data) - at)


def _flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3) if data else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _appended(data: bytes, rng: random.Random) -> bytes:
    return data + rng.randbytes(rng.randint(1, 80))


DAMAGE: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _truncated,
    _zeroed,
    _partly_zeroed,
    _flipped,
    _appended,
)


def unproven(disk: Disk, done: list[tuple[str, str]], how: str) -> bool:
    """Whether the times of a segment are damaged and nothing proves it: its seal is gone too, or the broker was killed
    before it sealed them; or a power loss took the seal, or left one from before the segment was full."""
    damaged = [name.partition(".")[0] for name, how in done if name.endswith(("index", "seal")) and how != "removed"]
    for stem in damaged:
        path = f"{FOLDER}/{stem}.seal"
        sealed = seal.decode(disk.read_file(path)) if disk.exists(path) else None
        if sealed is None or sealed.time_index.size < 0:
            return True
        if how == "power" and sealed.log_bytes < disk.size(f"{FOLDER}/{stem}.log"):
            return True
    return False


def damage(disk: Disk, rng: random.Random) -> list[tuple[str, str]]:
    """Removes or damages some of the derived files; returns which, and how."""
    share = rng.choice((0.1, 0.5, 1.0))
    kinds = [kind for kind in DERIVED if rng.random() < 0.6]
    done = []
    for name in disk.list(FOLDER):
        if name.endswith(tuple(kinds)) and rng.random() < share:
            path = f"{FOLDER}/{name}"
            if rng.random() < 0.5:
                disk.remove(path)
                done.append((name, "removed"))
            else:
                how = rng.choice(DAMAGE)
                disk.write_file(path, how(disk.read_file(path), rng))
                done.append((name, how.__name__))
    return done
