"""Followers whose logs went other ways than their leader's end with the same log, whatever the elections were."""

from __future__ import annotations

import random

import pytest
from replicas.fetching import ModelLog, answer_of

from headrace.replicas.fetcher import Fetcher, Key, Step, bounds_of, cut_at
from headrace.replicas.pieces import pieces
from headrace.wire.batch import CorruptBatch
from headrace.wire.primitives import Buffer
from headrace.wire.records import Record, build_batch

KEY: Key = (bytes(16), 0)


def fetch_once(log: ModelLog, leader: ModelLog, fetcher: Fetcher, count: int) -> bool:
    """One round; whether anything changed."""
    asked = fetcher.next_request(0)
    assert asked is not None
    followed = fetcher.partitions[KEY]
    answer, records = answer_of(leader, followed.offset, followed.last_epoch)
    before = (log.end, log.last_epoch)
    assert fetcher.answered(answer.error.NONE, 0, {KEY}, 0)
    step, found = fetcher.heard(KEY, answer, 0)
    assert found is followed
    if step is Step.APPEND:
        log.append(records[:count])
        fetcher.appended(followed, log.end, records[:count][-1] if records[:count] else -1, log.start)
    elif step is Step.CUT:
        assert answer.diverging is not None
        log.cut(cut_at(answer.diverging, log.end_of(answer.diverging[0]), log.end))
        fetcher.cut(followed, log.end, log.last_epoch, log.start, 0)
    else:
        log.cut(bounds_of(leader.start, leader.end, log.end).offset)
        fetcher.cut(followed, log.end, log.last_epoch, log.start, 0)
    return (log.end, log.last_epoch) != before


@pytest.mark.parametrize("seed", range(60))
def test_logs_agree_after_any_elections(seed: int) -> None:
    rng = random.Random(seed)
    logs = [ModelLog([]) for _ in range(3)]
    leader = logs[0]
    fetchers: dict[int, Fetcher] = {}
    for epoch in range(12):
        leader = rng.choice(logs)
        leader.note(epoch, leader.end)
        fetchers = {}
        for _ in range(rng.randrange(12)):
            at = rng.randrange(3)
            if logs[at] is leader:
                leader.append([epoch] * rng.randrange(4))
                continue
            if at not in fetchers:
                fetchers[at] = Fetcher(0)
                fetchers[at].follow(KEY, epoch, logs[at].end, logs[at].last_epoch, 0)
            fetch_once(logs[at], leader, fetchers[at], rng.randrange(1, 3))
    for log in logs:
        if log is not leader:
            fetcher = Fetcher(0)
            fetcher.follow(KEY, 11, log.end, log.last_epoch, 0)
            rounds = 0
            while fetch_once(log, leader, fetcher, 5):
                rounds += 1
                assert rounds < 60, "it goes round in circles"
            assert log.epochs == leader.epochs


def batches(*shapes: tuple[int, int, int]) -> bytes:
    """(base offset, records, leader epoch) of each."""
    made = b""
    for base, count, epoch in shapes:
        records = [Record(i, 1, None, b"x" * 10) for i in range(count)]
        made += bytes(build_batch(records, base_offset=base, leader_epoch=epoch))
    return made


def cut_up(data: Buffer, epoch_max: int, bytes_max: int, batches_max: int) -> list[tuple[int, int, int]]:
    found = pieces(data, epoch_max, bytes_max=bytes_max, batches_max=batches_max)
    return [(piece.first_offset, piece.next_offset, piece.last_epoch) for piece in found]


def test_an_answer_is_parted_between_batches() -> None:
    data = batches((5, 2, 1), (7, 1, 1), (9, 3, 2), (12, 1, 3))
    assert cut_up(data, 3, 1 << 20, 100) == [(5, 13, 3)]
    assert cut_up(data, 3, 1 << 20, 2) == [(5, 8, 1), (9, 13, 3)]
    assert cut_up(data, 3, 1, 100) == [(5, 7, 1), (7, 8, 1), (9, 12, 2), (12, 13, 3)]
    assert b"".join(piece.data for piece in pieces(data, 3, bytes_max=200, batches_max=9)) == data
    # The end cuts a batch, or the header of one; a later leader wrote the rest.
    assert cut_up(data[:-1], 3, 1 << 20, 100) == [(5, 12, 2)]
    assert cut_up(data[:20], 3, 1 << 20, 100) == []
    assert cut_up(data, 1, 1 << 20, 100) == [(5, 8, 1)]
    with pytest.raises(CorruptBatch):
        cut_up(data[:-1] + bytes(100), 3, 1 << 20, 1)
    with pytest.raises(CorruptBatch):
        cut_up(bytes(100), 3, 1 << 20, 1)
