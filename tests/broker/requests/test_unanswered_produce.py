"""Produce with acks=0: as many writes as with acks=1, no answer, and an error ends the connection."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from broker.raw import Raw, batch, create_topic, produce

from headrace.env.posix import PosixFile
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker

REQUESTS = 400


@pytest.fixture
def served() -> Iterator[TestBroker]:
    with running_broker() as served:
        create_topic(served.port, "t")
        yield served


def end_of(served: TestBroker, topic: str = "t") -> int:
    return served.call(lambda broker: broker.logs.logs[topic, 0].end_offset)


def sent(raw: Raw, acks: int, version: int) -> bytes:
    return b"".join(raw.frame(produce("t", batch(b"x" * 100), acks=acks), version) for _ in range(REQUESTS))


@pytest.mark.parametrize("version", [9, 7, 12])
def test_requests_that_arrive_together_are_written_together(
    served: TestBroker, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    writes: list[int] = []
    append = PosixFile.append

    def counted(self: PosixFile, parts: list[bytes]) -> int:
        if self.path.endswith("t-0/00000000000000000000.log"):
            writes.append(len(parts))
        return append(self, parts)

    monkeypatch.setattr(PosixFile, "append", counted)
    counts = {}
    for acks in (1, 0):
        with Raw(served.port) as raw:
            before, writes[:] = end_of(served), []
            frames = sent(raw, acks, version)
            raw.socket.sendall(frames)
            for _ in range(REQUESTS if acks else 0):
                assert raw.receive(0, version)[1].responses[0].partition_responses[0].error_code == 0
            closing = raw.ask(produce("t", batch(b"end"), acks=1), version).responses[0].partition_responses[0]
            assert closing.base_offset == before + REQUESTS, "nothing came in between, and all came before"
            counts[acks] = len(writes)
    assert max(counts.values()) <= REQUESTS / 8, counts


def test_an_error_ends_the_connection_behind_the_answers_before_it(served: TestBroker) -> None:
    good = batch(b"x")
    damaged = bytearray(good)
    damaged[-1] ^= 1
    with Raw(served.port) as raw:
        frames = [raw.frame(produce("t", good, acks=1), 9), raw.frame(produce("t", bytes(damaged), acks=0), 9)]
        frames.append(raw.frame(produce("t", good, acks=1), 9))
        raw.socket.sendall(b"".join(frames))
        correlation_id, answer = raw.receive(0, 9)
        assert correlation_id == 1 and answer.responses[0].partition_responses[0].base_offset == 0
        assert raw.is_closed()
    with Raw(served.port) as raw:
        assert raw.ask(produce("t", good, acks=1), 9).responses[0].partition_responses[0].error_code == 0


def test_answers_keep_their_order_around_requests_without_one(served: TestBroker) -> None:
    with Raw(served.port) as raw:
        acks = [1, 0, -1, 0, 0, 1]
        raw.socket.sendall(b"".join(raw.frame(produce("t", batch(b"x"), acks=each), 9) for each in acks))
        answers = [raw.receive(0, 9) for each in acks if each]
    offsets = [answer.responses[0].partition_responses[0].base_offset for _, answer in answers]
    assert [correlation_id for correlation_id, _ in answers] == [1, 3, 6] and offsets == [0, 2, 5]
