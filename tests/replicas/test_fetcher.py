"""Followers whose logs went other ways than their leader's end with the same log, whatever the elections were."""

from __future__ import annotations

import random

import pytest
from replicas.fetching import ModelLog, answer_of

from headrace.replicas.fetcher import Fetcher, Key, NextRequest, PartitionAnswer, Step, bounds_of, cut_at
from headrace.replicas.pieces import pieces
from headrace.wire.batch import CorruptBatch
from headrace.wire.errors import ErrorCode
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


def test_what_rests_is_not_looked_at_and_what_was_held_back_is_asked_for() -> None:
    keys = [(bytes([each]) * 16, 0) for each in range(3)]
    fetcher = Fetcher(0)
    for key in keys:
        fetcher.follow(key, 0, 5, 0, 0)
    assert list(fetcher.next_request(0).named) == keys  # type: ignore[union-attr]
    assert fetcher.answered(ErrorCode.NONE, 7, fetcher.partitions.keys(), 0)
    for key in keys:
        step, followed = fetcher.heard(key, PartitionAnswer(ErrorCode.NONE), 0)
        assert step is Step.APPEND and followed is not None
        fetcher.appended(followed, 5, -1, 0)
    assert fetcher.touched(0) == []
    assert fetcher.next_request(0) == NextRequest(7, 1, {}, [])
    assert fetcher.answered(ErrorCode.NONE, 7, set(), 0)
    step, followed = fetcher.heard(keys[1], PartitionAnswer(ErrorCode.NONE), 0)
    assert step is Step.APPEND and followed is not None, "the session has it"
    fetcher.appended(followed, 6, 0, 0)
    assert fetcher.touched(0) == [followed]
    asked = fetcher.next_request(0, lambda key: key == keys[0])
    assert asked is not None and (list(asked.named), asked.forgotten) == ([keys[1]], [keys[0]])
    assert fetcher.answered(ErrorCode.NONE, 7, set(), 0)
    asked = fetcher.next_request(0)
    assert asked is not None and (list(asked.named), asked.forgotten) == ([keys[0]], [])


def test_without_a_session_every_request_is_a_full_one_that_asks_for_none() -> None:
    fetcher = Fetcher(0, has_session=False)
    fetcher.follow(KEY, 0, 5, 0, 0)
    for _ in range(2):
        asked = fetcher.next_request(0)
        assert asked is not None and (asked.session_id, asked.session_epoch, list(asked.named)) == (0, -1, [KEY])
        assert fetcher.answered(ErrorCode.NONE, 0, {KEY}, 0)
