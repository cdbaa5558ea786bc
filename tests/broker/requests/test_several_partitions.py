"""Produce requests of several partitions or topics: those that arrive together are written together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from broker.raw import Raw, batch, create_topic, produce

from headrace.broker.requests import produce_run
from headrace.env.posix import PosixFile
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k00_produce import ProduceRequest

REQUESTS = 100
PARTITIONS = 10


@pytest.fixture
def served() -> Iterator[TestBroker]:
    with running_broker() as served:
        create_topic(served.port, "t", PARTITIONS)
        create_topic(served.port, "u")
        yield served


def several(acks: int, *topics: ProduceRequest) -> ProduceRequest:
    """One request of all of theirs."""
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[each for one in topics for each in one.topic_data])


def wide(acks: int) -> ProduceRequest:
    return several(acks, produce("t", *[batch(b"x" * 100)] * PARTITIONS), produce("u", batch(b"y")))


def offsets(answer: object) -> list[tuple[str, int, int, int]]:
    return [
        (topic.name, part.index, part.error_code, part.base_offset)
        for topic in answer.responses  # type: ignore[attr-defined]
        for part in topic.partition_responses
    ]


@pytest.mark.parametrize("acks", [-1, 0, 1])
@pytest.mark.parametrize("version", [7, 9, 12])
def test_what_arrives_together_is_written_together(
    served: TestBroker, monkeypatch: pytest.MonkeyPatch, version: int, acks: int
) -> None:
    writes: list[str] = []
    append = PosixFile.append

    def counted(self: PosixFile, parts: list[bytes]) -> int:
        if self.path.endswith("00000000000000000000.log"):
            writes.append(self.path)
        return append(self, parts)

    with Raw(served.port) as raw:
        assert {error for _, _, error, _ in offsets(raw.ask(wide(1), version))} == {0}
        monkeypatch.setattr(PosixFile, "append", counted)
        raw.socket.sendall(b"".join(raw.frame(wide(acks), version) for _ in range(REQUESTS)))
        for number in range(REQUESTS if acks else 0):
            places = [("t", index) for index in range(PARTITIONS)] + [("u", 0)]
            assert offsets(raw.receive(0, version)[1]) == [(*place, 0, 1 + number) for place in places]
        closing = offsets(raw.ask(wide(1), version))
    assert {offset for *_, offset in closing} == {1 + REQUESTS}, "nothing came in between, and all came before"
    assert len(writes) <= REQUESTS * (PARTITIONS + 1) / 4


def test_an_error_of_one_partition_is_its_own(served: TestBroker) -> None:
    damaged = bytearray(batch(b"x"))
    damaged[-1] ^= 1
    with Raw(served.port) as raw:
        one = several(1, produce("t", batch(b"x"), bytes(damaged), batch(b"x")), produce("u", batch(b"x")))
        answer = offsets(raw.ask(one, 9))
        assert answer == [("t", 0, 0, 0), ("t", 1, ErrorCode.CORRUPT_MESSAGE, -1), ("t", 2, 0, 0), ("u", 0, 0, 0)]
        missing = several(1, produce("t", batch(b"x")), produce("nowhere", batch(b"x")))
        answer = offsets(raw.ask(missing, 9))
        assert answer == [("t", 0, 0, 1), ("nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
        raw.socket.sendall(raw.frame(several(0, *[produce("t", batch(b"x"), bytes(damaged))] * 2), 9))
        assert raw.is_closed()


def test_a_partition_named_twice_and_requests_of_one_in_between_keep_their_order(served: TestBroker) -> None:
    twice = several(1, produce("t", batch(b"x")), produce("t", batch(b"x")))
    with Raw(served.port) as raw:
        asked = [produce("t", batch(b"x"), acks=1), twice, produce("t", batch(b"x"), acks=1), twice]
        raw.socket.sendall(b"".join(raw.frame(each, 9) for each in asked))
        answers = [raw.receive(0, 9) for _ in asked]
    assert [number for number, _ in answers] == [1, 2, 3, 4]
    assert [offset for _, answer in answers for *_, offset in offsets(answer)] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("version", "name", "bound"), [(7, "PARTS_MAX", 120), (9, "ALIKE_PARTS_MAX", 300)])
def test_one_run_takes_no_more_than_its_bound(
    served: TestBroker, monkeypatch: pytest.MonkeyPatch, version: int, name: str, bound: int
) -> None:
    """From version 9 on alike requests have a layout, and a larger bound of their own."""
    monkeypatch.setattr(produce_run, name, bound)
    most: list[int] = []
    finish = produce_run.ProduceRun.finish

    def counted(self: produce_run.ProduceRun, connection: object) -> None:
        most.append(self._parts)
        finish(self, connection)  # type: ignore[arg-type]

    monkeypatch.setattr(produce_run.ProduceRun, "finish", counted)
    with Raw(served.port) as raw:
        raw.socket.sendall(b"".join(raw.frame(wide(1), version) for _ in range(REQUESTS)))
        for _ in range(REQUESTS):
            assert {error for _, _, error, _ in offsets(raw.receive(0, version)[1])} == {0}
    assert 0 < max(most) <= bound + PARTITIONS + 1
