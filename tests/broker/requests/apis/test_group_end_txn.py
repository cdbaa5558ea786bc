"""HeadraceGroupEndTxn of very many transactions: one decision, which others need not wait for."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from broker.raw import Raw, create_topic
from broker.turns import turns_of

from headrace.broker.net import request_reader
from headrace.broker.requests import produce_run
from headrace.broker.requests.pieces import SMALL_PER_STEP
from headrace.env.completion import Completion
from headrace.testing.running import TestBroker, broker
from headrace.transactions.asks import Identity, InitProducer, Partitions
from headrace.transactions.shard import TransactionShard
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k19900_headrace_group_end_txn import GroupEndTxnChild, HeadraceGroupEndTxnRequest

MANY = 3000
SOME = 300
"""More than are looked at when all is decided."""
CALLS_MAX = 70_000
"""In one turn of the loop: the one that decides on all, in which each child costs little. With all that is done about
each, it would be ten times as many."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    with (
        pytest.MonkeyPatch.context() as patched,
        broker({"transaction.state.log.num.partitions": "1"}, data=tmp_path_factory.mktemp("data")) as running,
    ):
        for decodes in (request_reader, produce_run):
            patched.setattr(decodes, "FEW_ELEMENT_BYTES", 1024)
        create_topic(running.port, "t", 1)
        deadline = time.monotonic() + 60
        with Raw(running.port) as raw:
            while raw.ask(FindCoordinatorRequest("", 1, ["any"]), 4).coordinators[0].error_code:
                assert time.monotonic() < deadline
        wait_until(running, lambda inside: not isinstance(inside.transactions.read("any"), ErrorCode))
        yield running


def wait_until(running: TestBroker, holds: Any) -> None:
    deadline = time.monotonic() + 60
    while not running.call(holds):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def opened(running: TestBroker, names: list[str]) -> dict[str, tuple[int, int]]:
    """Open transactions of these ids: the producer id and epoch of each."""

    def open_all(inside: Any) -> dict[str, tuple[int, int]]:
        made: dict[str, tuple[int, int]] = {}
        for name in names[len(found) :]:
            ask = InitProducer(name, 60_000, -1, -1, False)
            got = inside.transactions.write(
                name, lambda shard, now_ms, ask=ask: shard.init_producer(ask, now_ms), Identity
            ).take()
            if got.error:
                return made  # producer ids are fetched
            identity = got.producer_id, got.producer_epoch
            partitions = Partitions(name, *identity, frozenset([("t", 0)]), 2)
            joined = inside.transactions.write(
                name, lambda shard, now_ms, ask=partitions: shard.add_partitions(ask, now_ms), ErrorCode
            )
            assert not joined.take()
            made[name] = identity
        return made

    found: dict[str, tuple[int, int]] = {}

    def goes_on(inside: Any) -> bool:
        found.update(open_all(inside))
        return len(found) == len(names)

    wait_until(running, goes_on)
    return found


def end_of(identities: dict[str, tuple[int, int]]) -> HeadraceGroupEndTxnRequest:
    (main, of_main), *children = identities.items()
    return HeadraceGroupEndTxnRequest(main, *of_main, True, [GroupEndTxnChild(name, *who) for name, who in children])


def is_over(inside: Any, last: str) -> bool:
    """Whether the markers of all are written: those of `last` leave last."""
    is_sent = not inside.transactions.markers.deliveries
    state: str = inside.transactions.read("any").describe(last).state
    return is_sent and state == "CompleteCommit"


def states(running: TestBroker, names: list[str]) -> set[str]:
    def look(inside: Any) -> set[str]:
        shard = inside.transactions.read("any")
        return {shard.describe(name).state for name in names}

    found: set[str] = running.call(look)
    return found


@pytest.mark.slow
def test_many_are_ended_as_one_in_small_turns(served: TestBroker) -> None:
    few = opened(served, ["few-0", "few-1"])
    names = [f"many-{n}" for n in range(MANY + 1)]
    identities = opened(served, names)
    with Raw(served.port, timeout_s=60) as raw:
        assert raw.ask(end_of(few), 0).error_code == 0  # imports modules
        with turns_of(served, counts_calls=True) as turns:
            answer = raw.ask(end_of(identities), 0)
            assert answer.error_code == 0
            assert [(each.transactional_id, each.error_code) for each in answer.children] == [(n, 0) for n in names[1:]]
            wait_until(served, lambda inside: is_over(inside, names[-1]))
            assert turns.most_calls <= CALLS_MAX
    assert states(served, names) == {"CompleteCommit"}


def meanwhile(monkeypatch: pytest.MonkeyPatch, do: Callable[[], None]) -> None:
    """Has something else done between two pieces of the next request."""
    prepare, calls = TransactionShard.prepare_group, itertools.count()

    def between(self: TransactionShard, *given: Any) -> Any:
        if next(calls) == SOME // SMALL_PER_STEP - 2:
            do()
        return prepare(self, *given)

    monkeypatch.setattr(TransactionShard, "prepare_group", between)


def test_a_child_that_is_fenced_between_two_pieces_stops_all(
    served: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"fenced-{n}" for n in range(SOME + 1)]
    identities = opened(served, names)
    fence = InitProducer(names[1], 60_000, -1, -1, False)
    got: list[Completion[Identity]] = []
    coordinator = served.inside.transactions
    meanwhile(
        monkeypatch,
        lambda: got.append(
            coordinator.write(names[1], lambda shard, now_ms: shard.init_producer(fence, now_ms), Identity)
        ),
    )
    with Raw(served.port, timeout_s=60) as raw:
        answer = raw.ask(end_of(identities), 0)
    assert got[0].take().error == ErrorCode.CONCURRENT_TRANSACTIONS  # its transaction is aborted
    assert answer.error_code == ErrorCode.OPERATION_NOT_ATTEMPTED
    assert [each.error_code for each in answer.children] == [ErrorCode.PRODUCER_FENCED] + [0] * (SOME - 1)
    assert states(served, [names[0], *names[2:]]) == {"Ongoing"}


def test_a_log_that_is_loaded_again_between_two_pieces_ends_none(
    served: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"loaded-{n}" for n in range(SOME + 1)]
    identities = opened(served, names)
    coordinator = served.inside.transactions
    (runtime,) = coordinator.runtime.shards.values()
    meanwhile(monkeypatch, lambda: coordinator._load_again(runtime, coordinator.now_ms()))
    with Raw(served.port, timeout_s=60) as raw:
        answer = raw.ask(end_of(identities), 0)
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        wait_until(served, lambda inside: not isinstance(inside.transactions.read("any"), ErrorCode))
        assert states(served, names) == {"Ongoing"}
        assert raw.ask(end_of(identities), 0).error_code == 0  # the same request again
