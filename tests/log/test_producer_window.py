"""A refused batch changes nothing of its producer: on a full disk nothing is reordered, doubled or forgotten."""

from __future__ import annotations

import errno
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peers.tried import tried

from headrace.config import BrokerConfig, topic_config
from headrace.env.posix import PosixDisk, PosixFile
from headrace.log.append_results import AppendResult
from headrace.log.log import Log
from headrace.log.producers import Producers
from headrace.log.recovery import open_log
from headrace.log.resources import Resources
from headrace.wire.batch import iter_headers
from headrace.wire.errors import ErrorCode
from headrace.wire.records import Record, build_batch

NOW_MS = 1_700_000_000_000
SEGMENT_BYTES = 2000
ROLLS_BYTES = 1700
"""A value that makes its batch start a new segment."""

OK, STORAGE = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR
OUT_OF_ORDER, STALE = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH


class Full:
    """Which writes find no room: those to a segment, those of new files."""

    append = False
    file = False
    append_once = False


class FullFile(PosixFile):
    """A file on a disk that may be full."""

    __slots__ = ("full",)
    full: Full

    def append(self, parts: Any) -> int:
        if self.full.append or self.full.append_once:
            self.full.append_once = False
            raise OSError(errno.ENOSPC, "no space")
        return super().append(parts)


class FullDisk(PosixDisk):
    """A disk that may be full."""

    def __init__(self, full: Full) -> None:
        super().__init__()
        self.full = full

    def open(self, path: str, *, create: bool = False) -> FullFile:
        file = FullFile(path, create=create)
        file.full = self.full
        return file

    def write_file(self, path: str, data: bytes) -> None:
        if self.full.file:
            raise OSError(errno.ENOSPC, "no space")
        super().write_file(path, data)


@contextmanager
def log_on(full: Full) -> Iterator[Log]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "t-0").mkdir()
        config = replace(topic_config(BrokerConfig.load({}, lambda _: None), {}), segment_bytes=SEGMENT_BYTES)
        yield open_log(Resources(FullDisk(full), RLock), f"{folder}/t-0", ("t", 0), config, now_ms=NOW_MS)


def batch(sequence: int, *, producer: int = 7, epoch: int = 0, size: int = 10, count: int = 1) -> bytes:
    records = [Record(0, NOW_MS, None, b"x" * (size // count)) for _ in range(count)]
    return build_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


def send(log: Log, *batches: bytes) -> list[AppendResult]:
    return list(log.writer.append_many(batches, leader_epoch=0, now_ms=NOW_MS))


def errors(log: Log, *batches: bytes) -> list[ErrorCode]:
    return [ErrorCode(result.error) for result in send(log, *batches)]


@pytest.fixture
def full() -> Full:
    return Full()


@pytest.fixture
def log(full: Full) -> Iterator[Log]:
    with log_on(full) as opened:
        yield opened


def test_five_refused_at_once_come_again_in_their_order(log: Log, full: Full) -> None:
    assert errors(log, *map(batch, range(5))) == [OK] * 5
    known = log.producers.get(7)
    full.append = True
    assert errors(log, *map(batch, range(5, 10))) == [STORAGE] * 5
    assert log.producers.get(7) == known
    full.append, full.file = False, True
    first = batch(5, size=ROLLS_BYTES)
    assert errors(log, first, *map(batch, range(6, 10))) == [STORAGE] + [OUT_OF_ORDER] * 4
    full.file = False
    assert errors(log, *map(batch, range(6, 10))) == [OUT_OF_ORDER] * 4
    assert [result.base_offset for result in send(log, first, *map(batch, range(6, 10)))] == [5, 6, 7, 8, 9]


def test_what_is_known_of_a_producer_survives_a_full_disk(log: Log, full: Full) -> None:
    """A duplicate of what is in the log is still told from what is not."""
    send(log, *map(batch, range(5)))
    full.append = True
    send(log, *map(batch, range(5, 10)))
    full.append = False
    again = send(log, batch(0), batch(4))
    assert [(each.error, each.base_offset, each.duplicate) for each in again] == [(OK, 0, True), (OK, 4, True)]


def test_the_first_batches_of_a_producer_are_refused(log: Log, full: Full) -> None:
    """Any sequence may begin an unknown producer; but none that was sent behind a refused one."""
    full.append = True
    assert errors(log, batch(0), batch(1)) == [STORAGE, STORAGE]
    full.append = False
    assert errors(log, batch(1), batch(2)) == [OUT_OF_ORDER, OUT_OF_ORDER]
    assert errors(log, batch(0), batch(1), batch(2)) == [OK, OK, OK]


def test_the_very_first_batch_needs_a_segment_that_does_not_fit(log: Log, full: Full) -> None:
    send(log, batch(0, producer=1, size=1000))
    full.file = True
    assert errors(log, batch(3, size=ROLLS_BYTES), batch(4), batch(5)) == [STORAGE, OUT_OF_ORDER, OUT_OF_ORDER]
    full.file = False
    assert errors(log, batch(3, size=ROLLS_BYTES), batch(4)) == [OK, OK]


def test_an_epoch_that_was_refused_is_not_forgotten(log: Log, full: Full) -> None:
    send(log, batch(0, epoch=3), batch(1, epoch=3))
    full.append = True
    assert errors(log, batch(0, epoch=4), batch(1, epoch=4)) == [STORAGE, STORAGE]
    full.append = False
    assert errors(log, batch(9, epoch=2), batch(2, epoch=3), batch(1, epoch=4)) == [STALE, STALE, OUT_OF_ORDER]
    known = log.producers.get(7)
    assert known is not None and (known.epoch, len(known.batches)) == (3, 2)
    assert errors(log, batch(0, epoch=4), batch(1, epoch=4)) == [OK, OK]


def test_a_newer_epoch_begins_in_place_of_what_was_refused(log: Log, full: Full) -> None:
    full.append = True
    send(log, batch(0, epoch=0))
    full.append = False
    assert errors(log, batch(0, epoch=1), batch(1, epoch=1), batch(0, epoch=0)) == [OK, OK, STALE]


def test_a_duplicate_of_what_could_not_be_written_is_refused_too(log: Log, full: Full) -> None:
    """Even where a later batch of the same run takes its offset."""
    send(log, batch(0, producer=1, size=1000))
    full.append_once = True
    run = [batch(0), batch(0), batch(1, producer=1, size=ROLLS_BYTES), batch(0, producer=2)]
    results = send(log, *run)
    assert [result.error for result in results] == [STORAGE, STORAGE, STORAGE, OK]
    assert results[-1].base_offset == 1
    assert [result.base_offset for result in send(log, *run)] == [2, 2, 3, 1]


def test_what_producers_owe_is_bounded_and_expires(full: Full) -> None:
    producers = Producers(expiration_ms=1000, producers_max=10)
    for producer in range(30):
        producers.refused([batch(5, producer=producer)[16:]])
    assert len(producers._owed) == 10
    assert producers.check(29, 0, 6, 6, 0) is not None and producers.check(0, 0, 6, 6, 0) is None
    producers.remove_expired(NOW_MS + 1000)
    assert producers.check(29, 0, 6, 6, 0) is None


class Client:
    """A producer that sends its batches in order, several at a time, and sends again what was refused."""

    def __init__(self, producer: int) -> None:
        self.producer = producer
        self.epoch = 0
        self.sent: list[tuple[int, int]] = []  # (sequence, size) of what was not acknowledged, oldest first
        self.next = 0

    def bump(self) -> None:
        """A new epoch: what is left is sent again with sequences from zero on."""
        self.epoch += 1
        self.sent = [(at, size) for at, (_, size) in enumerate(self.sent)]
        self.next = len(self.sent)

    def take(self, size: int) -> None:
        if len(self.sent) < 5:
            self.sent.append((self.next, size))
            self.next += 1


steps = st.lists(
    st.tuples(
        st.lists(  # who sends: its next batch, or from some place on what was not acknowledged yet
            st.tuples(st.integers(0, 2), st.integers(-1, 4), st.sampled_from([10, 10, 10, ROLLS_BYTES])), max_size=8
        ),
        st.sampled_from(["room", "room", "no room", "no new files"]),
        st.none() | st.integers(0, 2),  # who bumps its epoch
    ),
    max_size=12,
)


@settings(max_examples=tried(150), deadline=None)
@given(steps)
def test_nothing_is_reordered_lost_or_doubled(script: list[Any]) -> None:
    """Whatever was refused and comes again, in whichever order: the log has each producer's batches in a row."""
    full = Full()
    with log_on(full) as log:
        clients = [Client(producer) for producer in range(3)]
        for sends, disk, bumps in [*script, *_the_rest()]:
            if bumps is not None:
                clients[bumps].bump()
            full.append, full.file = disk == "no room", disk == "no new files"
            run: list[tuple[Client, int, int]] = []
            for who, place, size in sends:
                client = clients[who]
                if place < 0:
                    client.take(size)
                    place = len(client.sent) - 1
                run += [(client, *each) for each in client.sent[place : place + 1]]
            results = send(log, *(batch(s, producer=c.producer, epoch=c.epoch, size=n) for c, s, n in run))
            for (client, sequence, size), result in zip(run, results, strict=True):
                if not result.error:
                    client.sent = [each for each in client.sent if each != (sequence, size)]
            _check(log, run, results)
        assert not any(client.sent for client in clients)


def _the_rest() -> Iterator[tuple[list[tuple[int, int, int]], str, None]]:
    """At last there is room, and everybody sends what is left, in order."""
    for _ in range(5):
        yield [(who, 0, 10) for who in range(3)], "room", None


def _check(log: Log, run: list[tuple[Client, int, int]], results: list[AppendResult]) -> None:
    in_log: dict[int, tuple[int, int, int]] = {}
    by_producer: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    newest: dict[int, int] = {}
    for segment in log.segments:
        for _, header in iter_headers(segment.file().read(0, segment.size)):
            in_log[header.base_offset] = (header.producer_id, header.producer_epoch, header.base_sequence)
            by_producer[header.producer_id, header.producer_epoch].append(header.base_sequence)
            assert header.producer_epoch >= newest.get(header.producer_id, 0)
            newest[header.producer_id] = header.producer_epoch
    for sequences in by_producer.values():
        assert sequences == list(range(len(sequences)))
    for (client, sequence, _), result in zip(run, results, strict=True):
        if not result.error:
            assert in_log[result.base_offset] == (client.producer, client.epoch, sequence)
    assert len(in_log) == log.end_offset
