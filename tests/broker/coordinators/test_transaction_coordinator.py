"""The transaction coordinator of a real broker, whose markers a test holds in its hands."""

from __future__ import annotations

import socket
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import pytest
from broker.raw import Raw
from broker.requests.apis.test_transactions import (
    NONE,
    add,
    begin,
    describe,
    end,
    errors_of,
    of_client,
    until_state,
)
from peers.waiting import until

from headrace.broker.broker import Broker
from headrace.broker.coordinators.verifier import Patience
from headrace.config import BrokerConfig
from headrace.testing.running import TestBroker
from headrace.transactions.asks import Marking
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode


class Held:
    """Takes the place of a sender: nothing is sent until a test says so."""

    def __init__(self, broker: TestBroker) -> None:
        self.sent: list[tuple[Hashable, Marking, int, Callable[[], None]]] = []
        self.dropped: list[Hashable] = []
        self._broker = broker

    def send(self, origin: Hashable, marking: Marking, epoch: int, done: Callable[[], None]) -> None:
        self.sent.append((origin, marking, epoch, done))

    def drop(self, origin: Hashable) -> None:
        self.dropped.append(origin)

    def deliver(self, number: int) -> None:
        """Every partition of one of them holds its marker."""
        _, marking, _, done = self.sent[number]
        marking.left.clear()
        self._broker.call(lambda _: done())


@pytest.fixture
def held(served: TestBroker) -> Iterator[Held]:
    def exchange(broker: Broker, markers: Any) -> Any:
        before, broker.transactions.markers = broker.transactions.markers, markers
        return before

    held = Held(served)
    before = served.call(lambda broker: exchange(broker, held))
    yield held
    served.call(lambda broker: exchange(broker, before))


def test_a_transaction_is_over_when_its_markers_are_written(raw: Raw, held: Held, topic: Callable[..., str]) -> None:
    name = topic(2)
    producer = begin(raw, "held")
    assert add(raw, 3, "held", producer, **{name: [0, 1]}) == {(name, 0): NONE, (name, 1): NONE}
    assert held.sent == []
    assert end(raw, 5, "held", producer, committed=True) == (0, producer[0], producer[1] + 1)
    ((_, marking, epoch, _),) = held.sent
    assert (marking.transactional_id, marking.producer_id, marking.producer_epoch) == ("held", producer[0], 1)
    assert (marking.committed, marking.transaction_version, epoch) == (True, 2, 0)
    assert marking.left == {(name, 0), (name, 1)}
    assert describe(raw, "held").transaction_state == "PrepareCommit"
    later = (producer[0], producer[1] + 1)
    assert add(raw, 3, "held", later, **{name: [0]}) == {(name, 0): ErrorCode.CONCURRENT_TRANSACTIONS}
    held.deliver(0)
    assert describe(raw, "held").transaction_state == "CompleteCommit"


def test_a_client_that_goes_on_waits_for_the_markers(
    served: TestBroker, raw: Raw, held: Held, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Instead of hearing CONCURRENT_TRANSACTIONS and coming back much later than they need."""
    name = topic()
    producer = begin(raw, "goes on")
    add(raw, 3, "goes on", producer, **{name: [0]})
    assert end(raw, 4, "goes on", producer, committed=True)[0] == NONE

    def be_patient(broker: Broker) -> None:
        config = BrokerConfig({"add.partitions.to.txn.retry.backoff.max.ms": "600000"})
        monkeypatch.setattr(broker.transactions, "_config", lambda: config)

    served.call(be_patient)
    raw.send(of_client("goes on", producer, **{name: [0]}), 3)
    raw.socket.settimeout(0.1)
    with pytest.raises(TimeoutError):
        raw.socket.recv(1, socket.MSG_PEEK)
    raw.socket.settimeout(10.0)
    held.deliver(0)
    _, answer = raw.receive(ApiKey.ADD_PARTITIONS_TO_TXN, 3)
    assert errors_of(answer.results_by_topic_v3_and_below) == {(name, 0): NONE}


def test_a_client_that_waits_goes_on_when_the_markers_are_written(
    served: TestBroker, raw: Raw, held: Held, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not at the end of a pause, which may have just begun."""
    name = topic()
    producer = begin(raw, "woken")
    add(raw, 3, "woken", producer, **{name: [0]})
    assert end(raw, 4, "woken", producer, committed=True)[0] == NONE
    pause = {
        "add.partitions.to.txn.retry.backoff.ms": str(16 * 3_600_000),
        "add.partitions.to.txn.retry.backoff.max.ms": str(2 * 3_600_000),
    }
    config = BrokerConfig(pause)
    pauses: list[float | None] = []
    pause_of = Patience.pause_s

    def noted(patience: Patience) -> float | None:
        pauses.append(pause_of(patience))
        return pauses[-1]

    monkeypatch.setattr(Patience, "pause_s", noted)
    served.call(lambda broker: monkeypatch.setattr(broker.transactions, "_config", lambda: config))
    raw.send(of_client("woken", producer, **{name: [0]}), 3)
    until(lambda: pauses, "it waits")
    assert pauses == [3600.0]
    held.deliver(0)
    _, answer = raw.receive(ApiKey.ADD_PARTITIONS_TO_TXN, 3)
    assert errors_of(answer.results_by_topic_v3_and_below) == {(name, 0): NONE}
    assert served.call(lambda broker: dict(broker.transactions._joining)) == {}


def test_one_that_is_loaded_again_sends_its_markers_again(
    served: TestBroker, raw: Raw, held: Held, topic: Callable[..., str]
) -> None:
    """What was under way belongs to the shard before: its end says nothing any more."""
    name = topic()
    producer = begin(raw, "again")
    add(raw, 3, "again", producer, **{name: [0]})
    assert end(raw, 4, "again", producer, committed=False) == (0, -1, -1)
    assert len(held.sent) == 1

    def load_again(broker: Broker) -> None:
        transactions = broker.transactions
        runtime = transactions.runtime.shards[transactions.partition_for("again")]
        transactions._load_again(runtime, transactions.now_ms())

    served.call(load_again)
    assert held.dropped == [held.sent[0][0]]
    until_state(raw, "again", "PrepareAbort")
    while len(held.sent) < 2:
        assert describe(raw, "again").error_code in (NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert held.sent[1][1].left == {(name, 0)}
    held.deliver(0)
    assert describe(raw, "again").transaction_state == "PrepareAbort"
    held.deliver(1)
    assert describe(raw, "again").transaction_state == "CompleteAbort"
