"""Plain batches are checked by compiled code and written where they lie: all else of the log is as by the checks that
every other batch goes through."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Any

import pytest
from log.conftest import NOW_MS, batch, read_at

from headrace.config.topic import TopicConfig
from headrace.env.posix import PosixDisk, PosixFile
from headrace.log.append_results import AppendResult, PlainResults
from headrace.log.log import Log
from headrace.log.producer_snapshot import encode
from headrace.log.recovery import open_log
from headrace.log.resources import Resources
from headrace.log.writer import LogWriter
from headrace.wire._produce import COMPILED
from headrace.wire.errors import ErrorCode

SEEDS = 30
FIELDS = (
    "error", "base_offset", "last_offset", "log_append_time_ms", "log_start_offset", "error_message", "record_errors",
    "duplicate",
)  # fmt: skip

compiled = pytest.mark.skipif(not COMPILED, reason="plain batches take no short path where nothing is compiled")


def opened(folder: Path, config: TopicConfig) -> Log:
    folder.mkdir(parents=True)
    return open_log(Resources(PosixDisk(), RLock), str(folder), ("t", 0), config, now_ms=NOW_MS)


def writable(chunks: Sequence[bytes]) -> list[memoryview]:
    return [memoryview(bytearray(each)) for each in chunks]


def told(results: Sequence[AppendResult]) -> list[tuple[Any, ...]]:
    return [tuple(getattr(each, name) for name in FIELDS) for each in results]


def one(rng: random.Random, sequences: dict[int, int]) -> bytes:
    """A batch, mostly plain, and mostly the next one of its producer."""
    values = [b"v" * rng.randint(0, 60) for _ in range(rng.randint(1, 4))]
    fields: dict[str, Any] = {"timestamp": NOW_MS + rng.randint(-500, 500)}
    if rng.random() < 0.4:
        producer = rng.randint(1, 3)
        sequence = sequences.get(producer, 0) if rng.random() < 0.9 else rng.randint(0, 5)
        sequences[producer] = sequence + len(values)
        fields |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
    data = bytearray(batch(*values, **fields))
    if rng.random() < 0.05:
        data[rng.randrange(len(data))] ^= 1
    return bytes(data)


def state(log: Log, folder: Path) -> dict[str, Any]:
    places = [read_at(log, offset, max_bytes=1) for offset in range(log.end_offset)]
    segments = [
        (each.base_offset, each.size, each.bytes_since_index, each.newest_timestamp, each.max_timestamp)
        for each in log.segments
    ]
    log.flush()
    return {
        "end": log.end_offset,
        "epochs": log.epochs.entries(),
        "producers": encode(log.producers.to_snapshot()),
        "places": [place.slice and (place.slice.position, place.size) for place in places],
        "segments": segments,
        "files": {path.name: path.read_bytes() for path in sorted(folder.iterdir())},
    }


def test_what_is_plain_is_appended_as_all_else_is(
    tmp_path: Path, defaults: TopicConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = PosixFile.append
    for seed in range(SEEDS):
        rng = random.Random(seed)
        config = replace(
            defaults,
            segment_bytes=rng.choice((600, 3000, 1 << 20)),
            index_interval_bytes=rng.choice((0, 100, 1000)),
            segment_index_bytes=rng.choice((96, 10 << 20)),
            max_message_bytes=rng.choice((200, 1 << 20)),
            segment_ms=rng.choice((300, 1 << 40)),
            message_timestamp_type=rng.choice(("CreateTime", "CreateTime", "CreateTime", "LogAppendTime")),
            cleanup_policy=rng.choice([frozenset({"delete"}), frozenset({"delete"}), frozenset({"compact"})]),
        )
        sequences: dict[int, int] = {}
        runs = [
            ([one(rng, sequences) for _ in range(rng.randint(1, 6))], rng.choice((0, 0, 0, 1)), rng.random() < 0.1)
            for _ in range(12)
        ]
        outcomes = []
        for name in ("short", "long"):
            folder = tmp_path / f"{seed}-{name}" / "t-0"
            log = opened(folder, config)
            epoch, results = 0, []
            for chunks, more, is_full in runs:
                epoch += more

                def full(self: PosixFile, parts: Any, is_full: bool = is_full) -> int:
                    if is_full and self.path.endswith(".log"):
                        raise OSError(errno.ENOSPC, "full")
                    return write(self, parts)

                monkeypatch.setattr(PosixFile, "append", full)
                given: Any = writable(chunks) if name == "short" else chunks
                results.append(told(log.writer.append_many(given, leader_epoch=epoch, now_ms=NOW_MS)))
            outcomes.append((results, state(log, folder)))
        (short, short_state), (long, long_state) = outcomes
        assert short == long, seed
        for what, is_so in short_state.items():
            assert is_so == long_state[what], (seed, what)


@compiled
def test_the_short_way_is_taken(open_at: Callable[..., Log], monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_at()
    log.writer.append(batch(b"first"), leader_epoch=0, now_ms=NOW_MS)
    chunks = [batch(b"a", b"b"), batch(b"c", producer_id=1, producer_epoch=0, base_sequence=0), batch(b"d")]
    monkeypatch.setattr(LogWriter, "_stage_client", None)
    results = log.writer.append_many(writable(chunks), leader_epoch=0, now_ms=NOW_MS)
    assert type(results) is PlainResults
    assert (len(results), results.size) == (3, sum(map(len, chunks)))
    assert [(each.base_offset, each.last_offset) for each in results] == [(1, 2), (3, 3), (4, 4)]
    assert results[-1].base_offset == 4
    assert [each.base_offset for each in results[1:]] == [3, 4]
    with pytest.raises(IndexError):
        results[3]


@compiled
def test_a_defect_leaves_nothing_behind(open_at: Callable[..., Log], monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_at()
    log.writer.append(batch(b"first"), leader_epoch=0, now_ms=NOW_MS)
    chunk = batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0)
    with monkeypatch.context() as patched:
        patched.setattr(PosixFile, "append", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            log.writer.append_many(writable([chunk]), leader_epoch=0, now_ms=NOW_MS)
    assert not log.producers.staged
    (result,) = log.writer.append_many(writable([chunk]), leader_epoch=0, now_ms=NOW_MS)
    assert (result.error, result.base_offset) == (ErrorCode.NONE, 1)
