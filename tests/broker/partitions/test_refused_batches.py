"""What a broker remembers of batches that it refused, because it did not lead their partitions."""

from __future__ import annotations

import pytest

from headrace.broker.partitions import refused_batches
from headrace.broker.partitions.refused_batches import KEPT_S, RefusedBatches
from headrace.wire.batch import read_header
from headrace.wire.records import Record, build_batch


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps here")


def batch(producer_id: int, sequence: int, epoch: int = 0) -> bytes:
    records = [Record(0, 0, None, b"x" * 100)]
    return build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def sequences(headers: list[bytes]) -> list[tuple[int, int, int]]:
    read = [read_header(each) for each in headers]
    return [(each.producer_id, each.producer_epoch, each.base_sequence) for each in read]


def test_the_first_of_each_producer_and_epoch_is_kept_for_its_place() -> None:
    refused = RefusedBatches(Clock())
    for producer_id, epoch, sequence in ((1, 0, 5), (1, 0, 6), (2, 0, 0), (1, 1, 0), (1, 1, 1), (-1, -1, -1)):
        refused.note(("t", 0), batch(producer_id, sequence, epoch))
    refused.note(("t", 1), batch(1, 7))
    refused.note((b"id", 0), batch(3, 8))
    refused.note(("t", 0), b"short")
    assert sequences(refused.take(("t", 0), (b"id", 0))) == [(1, 0, 5), (2, 0, 0), (1, 1, 0), (3, 0, 8)]
    assert refused.take(("t", 0), (b"id", 0)) == []
    assert sequences(refused.take(("t", 1))) == [(1, 0, 7)]


def test_they_are_forgotten_when_nothing_behind_them_can_be_on_its_way() -> None:
    clock = Clock()
    refused = RefusedBatches(clock)
    refused.note(("t", 0), batch(1, 0))
    clock.now_s += KEPT_S - 1
    refused.note(("t", 0), batch(2, 0))
    clock.now_s += 2
    assert sequences(refused.take(("t", 0))) == [(2, 0, 0)]
    refused.note(("t", 0), batch(1, 4))
    assert sequences(refused.take(("t", 0))) == [(1, 0, 4)]


def test_an_old_one_gives_way_to_a_new_one_of_the_same_producer() -> None:
    clock = Clock()
    refused = RefusedBatches(clock)
    refused.note(("a", 0), batch(1, 0))
    refused.note(("b", 0), batch(1, 0))
    clock.now_s += KEPT_S / 2
    refused.note(("a", 0), batch(2, 0))
    clock.now_s += KEPT_S / 2 + 1
    refused.note(("b", 0), batch(1, 7))
    assert sequences(refused.take(("b", 0))) == [(1, 0, 7)]
    assert sequences(refused.take(("a", 0))) == [(2, 0, 0)]


def test_they_are_no_more_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_batches, "KEPT_MAX", 3)
    refused = RefusedBatches(Clock())
    for producer_id in range(5):
        refused.note(("t", producer_id), batch(producer_id, 0))
    assert sequences(refused.take(*(("t", each) for each in range(5)))) == [(2, 0, 0), (3, 0, 0), (4, 0, 0)]
