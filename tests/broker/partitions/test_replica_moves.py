"""Moves between log directories that are interrupted: they go on where they were, and with what the log has."""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from broker.raw import Raw, batch, create_topic, fetch, produce
from peers.waiting import until

from headrace.broker.broker import Broker
from headrace.broker.partitions import replica_moves
from headrace.log.log import Log
from headrace.log.moves import copy_piece
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.batch import iter_headers
from headrace.wire.errors import ErrorCode
from headrace.wire.file_slice import FileSlice
from headrace.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.records import decode_batch

Homes = tuple[Path, Path]


@contextmanager
def served_from(source: Path, target: Path) -> Iterator[tuple[TestBroker, Raw]]:
    settings = {"log.dirs": f"{source},{target}"}
    with running_broker(settings, data=source) as served, Raw(served.port) as raw:
        yield served, raw


@pytest.fixture
def homes(tmp_path: Path) -> Homes:
    return tmp_path / "one", tmp_path / "two"


@pytest.fixture(autouse=True)
def nothing_is_left_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_moves, "INLINE_BYTES", 0)


def append(raw: Raw, *values: bytes) -> None:
    for value in values:
        assert raw.ask(produce("t", batch(value)), 9).responses[0].partition_responses[0].error_code == 0


def values_of(raw: Raw) -> list[bytes | None]:
    data = bytes(raw.ask(fetch("t", 0), 11).responses[0].partitions[0].records)
    return [record.value for at, _ in iter_headers(data) for record in decode_batch(data, at)]


def begin(served: TestBroker, homes: Homes) -> Path:
    """Moves t-0, and holds the copy when it is complete; returns its folder."""

    def start(broker: Broker) -> str:
        broker.logs.compaction.is_running = True  # a copy does not take over while a compaction runs
        source = broker.logs.directory_of(broker.logs.logs["t", 0]).path
        target = next(str(home) for home in homes if str(home) != source)
        assert broker.moves.start("t", 0, target) is ErrorCode.NONE
        return broker.logs.future_logs["t", 0].directory

    path = served.call(start)

    def missing(broker: Broker) -> int:
        return broker.logs.logs["t", 0].end_offset - broker.logs.future_logs["t", 0].flushing.flushed_offset

    until(lambda: served.call(missing) == 0)
    return Path(path)


def test_an_epoch_without_a_record_moves_too(homes: Homes) -> None:
    with served_from(*homes) as (served, raw):
        create_topic(served.port, "t")

        def move(broker: Broker) -> None:
            source = broker.logs.directory_of(broker.logs.logs["t", 0]).path
            target = next(str(home) for home in homes if str(home) != source)
            assert broker.replicas.by_name["t", 0].log.end_offset_for_epoch(0) == (0, 0)
            assert broker.moves.start("t", 0, target) is ErrorCode.NONE

        served.call(move)
        until(lambda: not served.call(lambda broker: broker.moves._tasks))

        def where(broker: Broker) -> tuple[str, tuple[int, int]]:
            replica = broker.replicas.by_name["t", 0]
            return replica.log.directory, replica.log.end_offset_for_epoch(0)

        directory, answer = served.call(where)
        assert answer == (0, 0)
        append(raw, b"a")  # waits until the epoch's start is on disk there
        assert Path(directory, "leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 0\n"


def copies(homes: Homes) -> list[str]:
    return [path.name for home in homes for path in home.glob("t-0.*-future")]


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the pieces that moves copy."""
    sizes: list[int] = []

    def noted(piece: FileSlice, future: Log, now_ms: int) -> None:
        sizes.append(piece.size)
        copy_piece(piece, future, now_ms)

    monkeypatch.setattr(replica_moves, "copy_piece", noted)
    return sizes


@pytest.mark.slow
def test_a_move_keeps_to_its_rate(homes: Homes, copied: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_moves, "PIECE_BYTES", 10_000)
    rate = 100_000
    settings = {"log.dirs": ",".join(map(str, homes)), "replica.alter.log.dirs.io.max.bytes.per.second": str(rate)}
    with running_broker(settings, data=homes[0]) as served, Raw(served.port) as raw:
        create_topic(served.port, "t")
        append(raw, *[b"%d" % n * 1000 for n in range(130)])
        began = time.monotonic()
        begin(served, homes)
        took = time.monotonic() - began
        assert sum(copied) > 3 * rate
        assert took > 0.8 * (sum(copied) - rate) / rate, "what a rate allows in one second may go at once"


def test_a_move_goes_on_after_a_restart(homes: Homes, copied: list[int]) -> None:
    values = [b"%d" % n * 1000 for n in range(100)]
    with served_from(*homes) as (served, raw):
        create_topic(served.port, "t")
        append(raw, *values)
        # The broker stops in the middle.
        path = begin(served, homes)
        more = [b"more %d" % n * 100 for n in range(10)]
        served.call(lambda broker: setattr(broker.moves, "_stopping", True))
        append(raw, *more)
    assert path.is_dir() and not (path.parent / "t-0").exists()
    before = sum(copied)
    with served_from(*homes) as (served, raw):
        until((path.parent / "t-0").is_dir)
        append(raw, b"after")
        assert values_of(raw) == [*values, *more, b"after"]
        assert not copies(homes)
        moved = served.call(lambda broker: broker.logs.logs["t", 0].directory)
        assert moved == str(path.parent / "t-0")
    assert 0 < sum(copied) - before < before  # of what was there nothing is copied again
    with served_from(*homes) as (_, raw):
        assert values_of(raw) == [*values, *more, b"after"]


def test_a_copy_is_cut_to_what_a_crash_left_of_its_log(homes: Homes, tmp_path: Path) -> None:
    crashed = tmp_path / "crashed one", tmp_path / "crashed two"
    values = [b"%d" % n * 100 for n in range(30)]
    with served_from(*homes) as (served, raw):
        create_topic(served.port, "t")
        append(raw, *values)
        path = begin(served, homes)
        for home, copy in zip(homes, crashed, strict=True):
            shutil.copytree(home, copy, ignore=shutil.ignore_patterns("*.tmp"))
    source = next(home for home in crashed if (home / "t-0").is_dir())
    segment = source / "t-0" / "00000000000000000000.log"
    keep = [at for at, _ in iter_headers(segment.read_bytes())][27]
    with segment.open("r+b") as file:
        file.truncate(keep)
    target = next(home for home in crashed if home is not source)
    assert (target / path.name).is_dir()
    with served_from(*crashed) as (_, raw):
        append(raw, b"new")
        until((target / "t-0").is_dir)
        assert values_of(raw) == [*values[:27], b"new"]
    assert not (source / "t-0").exists() and not copies(crashed)


def test_a_copy_is_cut_to_where_a_crash_has_left_a_gap(homes: Homes, tmp_path: Path) -> None:
    """The end of a segment is lost, and the next one is whole: the log has what the copy has not."""
    crashed = tmp_path / "crashed one", tmp_path / "crashed two"
    values = [b"%d" % n * 30_000 for n in range(30)]
    with served_from(*homes) as (served, raw):
        create_topic(served.port, "t", cleanup_policy="compact", segment_bytes="1048576")
        for number, value in enumerate(values):
            assert raw.ask(produce("t", batch(value, key=b"%d" % number)), 9).responses[0].partition_responses[0]
        path = begin(served, homes)
        for home, copy in zip(homes, crashed, strict=True):
            shutil.copytree(home, copy, ignore=shutil.ignore_patterns("*.tmp"))
    source = next(home for home in crashed if (home / "t-0").is_dir())
    target = next(home for home in crashed if home is not source)
    copied = target / path.name / "00000000000000000000.log"
    keep = [at for at, _ in iter_headers(copied.read_bytes())][-1]
    with copied.open("r+b") as file:
        file.truncate(keep)
    with served_from(*crashed) as (served, raw):
        until((target / "t-0").is_dir)
        names = sorted(each.name for each in (target / "t-0").glob("*.log"))
    assert len(names) > 1
    with served_from(*crashed) as (_, raw):
        got: list[bytes | None] = []
        while len(got) < len(values):
            data = bytes(raw.ask(fetch("t", len(got)), 11).responses[0].partitions[0].records)
            got += [record.value for at, _ in iter_headers(data) for record in decode_batch(data, at)]
    assert got == values


def test_a_move_that_was_called_off_stays_so(homes: Homes) -> None:
    with served_from(*homes) as (served, raw):
        create_topic(served.port, "t")
        append(raw, b"a")
        path = begin(served, homes)
        source = next(home for home in homes if home != path.parent)
        assert served.call(lambda broker: broker.moves.start("t", 0, str(source))) is ErrorCode.NONE
        assert not copies(homes)
    with served_from(*homes) as (_, raw):
        assert values_of(raw) == [b"a"]
        assert (source / "t-0").is_dir() and not (path.parent / "t-0").exists()


@pytest.mark.parametrize("anew", [False, True])
def test_the_copy_of_a_deleted_topic_goes_with_it(homes: Homes, anew: bool) -> None:
    with served_from(*homes) as (served, raw):
        create_topic(served.port, "t")
        append(raw, b"a")
        path = begin(served, homes)
        kept = path.parent / "kept"
        shutil.copytree(path, kept)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=5000)
        assert raw.ask(request, 6).responses[0].error_code == 0
        assert not copies(homes)
        if anew:
            create_topic(served.port, "t")
            append(raw, b"b")
    kept.rename(path)  # as if the crash had come before the folder went
    with served_from(*homes) as (served, raw):
        if anew:
            append(raw, b"c")
            until(lambda: not copies(homes))
            assert values_of(raw) == [b"b", b"c"]
        assert not copies(homes)
        assert served.call(lambda broker: broker.logs.future_logs) == {}


def test_a_full_directory_ends_a_move_and_nothing_else(homes: Homes, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(piece: FileSlice, future: Log, now_ms: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(replica_moves, "copy_piece", full)
    with served_from(*homes) as (served, raw):
        create_topic(served.port, "t")
        append(raw, b"a")

        def start(broker: Broker) -> ErrorCode:
            source = broker.logs.directory_of(broker.logs.logs["t", 0]).path
            return broker.moves.start("t", 0, next(str(home) for home in homes if str(home) != source))

        assert served.call(start) is ErrorCode.NONE
        until(lambda: not served.call(lambda broker: broker.moves._tasks))
        assert not copies(homes)
        assert len(served.call(lambda broker: broker.logs.online())) == 2
        assert values_of(raw) == [b"a"]
