"""Groups of transactions as a client ends them: many writers, one decision, finished by whoever coordinates it next."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer
from peers.transactions import SMALL, settled_ends, visible

from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.client.conversation import PendingCall, Steps
from headrace.client.errors import BrokerError, InDoubtError
from headrace.client.groups import fetch_offsets
from headrace.client.reading import latest_offsets
from headrace.client.transacting import OpenTransaction, State
from headrace.client.transaction_groups import STATE_TOPIC, abandon, child_id, end_leftovers, serves_groups
from headrace.client.transaction_states import describe_transaction
from headrace.client.transactions import TransactionalProducer
from headrace.wire.errors import ErrorCode
from headrace.wire.sharding import partition_of

PARTITIONS = 2
PATIENCE_S = 60.0
KAFKAS_TIMEOUT_MS = 40_000
"""Of transactions that Apache Kafka is to abort: none ends before it serves."""
WRITERS = 3
_numbers = itertools.count(1)


class Unmarked(HeadracePeer):
    """A broker that decides and writes no marker: as one that is killed between the two."""

    def command(self) -> list[str]:
        cut = "from headrace.broker.coordinators.marker_sender import MarkerSender as M; M.send = lambda *_: None"
        cut += "; M.send_all = lambda *_: None; from headrace.cli import main; main()"
        serve = super().command()
        return [sys.executable, "-c", cut, *serve[serve.index("serve") :]]


class Group:
    """A main producer, and writers whose transactions are open."""

    def __init__(self, client: Client, name: str, timeout_ms: int = 60_000) -> None:
        self.client = client
        self.timeout_ms = timeout_ms
        self.name = name
        create_topic(client, name, partitions=PARTITIONS)
        assert serves_groups(client, name)
        self.opened = [self.write(number) for number in range(WRITERS)]
        self.main = TransactionalProducer(client, name, timeout_ms=timeout_ms)
        self.mark(7)

    def write(self, number: int) -> OpenTransaction:
        name = child_id(self.client, self.name, f"{self.name}-{number}")
        writer = TransactionalProducer(self.client, name, timeout_ms=self.timeout_ms)
        writer.begin()
        for partition in range(PARTITIONS):
            writer.send(self.name, b"%d" % number, partition=partition)
        opened = writer.hand_over()
        assert opened is not None and writer.state is State.DEAD
        return opened

    def mark(self, offset: int) -> None:
        self.main.begin()
        self.main.send_offsets(self.name, {(self.name, 0): offset})

    def states(self) -> set[str]:
        """When markers are written that are due; asked of whoever coordinates by now."""
        until = time.monotonic() + PATIENCE_S
        while True:
            names = [self.name, *(each.transactional_id for each in self.opened)]
            states = {describe_transaction(self.client, name).state for name in names}
            if not any(state.startswith("Prepare") for state in states) or time.monotonic() > until:
                return states
            time.sleep(0.02)

    def seen(self, offset: int | None = 7) -> None:
        """All of it is committed, or nothing; and no record waits."""
        written = sorted(b"%d" % number for number in range(WRITERS) for _ in range(PARTITIONS))
        until = time.monotonic() + PATIENCE_S
        while settled_ends(self.client, self.name) != latest_offsets(self.client, self.name):
            assert time.monotonic() < until, "records wait"
        assert sorted(visible(self.client, self.name)) == ([] if offset is None else written)
        found = fetch_offsets(self.client, self.name, require_stable=True)
        assert {at.offset for at in found.values()} == (set() if offset is None else {offset})


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    settings = {**SMALL, "transaction.state.log.num.partitions": "5"}
    with HeadracePeer(settings=settings) as peer, Client(peer.bootstrap) as client:
        yield client


@pytest.fixture
def group(client: Client) -> Group:
    return Group(client, f"group-{next(_numbers)}")


def test_all_are_committed_by_one_request(group: Group) -> None:
    assert group.states() == {"Ongoing"} and visible(group.client, group.name) == []
    group.main.commit(group.opened)
    assert group.states() == {"CompleteCommit"}
    group.seen()
    group.mark(8)  # the main producer goes on with what the answer said
    group.main.commit()
    group.seen(8)


def test_one_that_is_gone_keeps_all_from_being_committed(group: Group) -> None:
    abandon(group.client, group.opened[1:2])
    gone = group.opened[1].transactional_id
    with pytest.raises(BrokerError, match=f"{gone} of the group: PRODUCER_FENCED") as refused:
        group.main.commit(group.opened)
    assert refused.value.code == ErrorCode.OPERATION_NOT_ATTEMPTED and group.main.state is State.FAILED
    group.main.abort()
    assert end_leftovers(group.client, group.name, keep=[group.opened[0].transactional_id]) == [
        group.opened[2].transactional_id
    ]
    abandon(group.client, group.opened)
    group.seen(None)


def test_what_is_decided_is_not_undone(group: Group) -> None:
    group.main.commit(group.opened)
    abandon(group.client, group.opened)
    assert end_leftovers(group.client, group.name) == []
    group.seen()


def test_ids_of_other_coordinators_are_refused(group: Group) -> None:
    count = len(group.client.topic(STATE_TOPIC).partitions)
    name = next(
        each
        for each in (f"other-{n}" for n in range(99))
        if partition_of(each, count) != partition_of(group.name, count)
    )
    other = TransactionalProducer(group.client, name)
    other.begin()
    other.send(group.name, b"0", partition=0)
    opened = other.hand_over()
    assert opened is not None
    with pytest.raises(BrokerError, match=f"{name} of the group: NOT_COORDINATOR"):
        group.main.commit([*group.opened, opened])
    abandon(group.client, [opened])
    group.main.abort()
    group.mark(7)
    group.main.commit(group.opened)  # they were refused, and are as they were
    group.seen()


@pytest.mark.parametrize("committed", [True, False])
def test_one_of_them_may_stand_for_all(group: Group, committed: bool) -> None:
    """The main producer takes no part, and whoever decides takes one of the others' transactions on."""
    group.main.abort()
    first, *others = group.opened
    decider = TransactionalProducer(group.client, first.transactional_id)
    with pytest.raises(ValueError, match="cannot take on"):
        decider.take_on(others[0])
    decider.take_on(first)
    if committed:
        decider.commit(others)
    else:
        decider.abort()
        abandon(group.client, others)
    assert group.states() == {"CompleteCommit" if committed else "CompleteAbort", "CompleteAbort"}
    assert len(visible(group.client, group.name)) == (WRITERS * PARTITIONS if committed else 0)
    decider.begin()
    decider.send(group.name, b"goes on", partition=0)
    decider.commit()
    group.states()
    assert b"goes on" in visible(group.client, group.name)


def test_nothing_can_be_committed_beside_nothing(group: Group) -> None:
    group.main.abort()
    group.main.begin()
    with pytest.raises(ValueError, match="nothing is written that others could end with"):
        group.main.commit(group.opened)
    abandon(group.client, group.opened)
    group.seen(None)


SUCCESSORS = ["headrace", pytest.param("kafka", marks=[pytest.mark.jvm, pytest.mark.soak])]


@pytest.mark.slow
@pytest.mark.parametrize("successor", SUCCESSORS)
@pytest.mark.parametrize("torn", [False, True])
def test_the_next_coordinator_ends_each(tmp_path: Path, successor: str, torn: bool) -> None:
    """It finds as many decisions as there are ids in the group's one batch. Where the last byte of that did not reach
    the disk it finds none, and all is aborted.

    Apache Kafka's coordinator, while it starts after a crash, takes a partition without a leader for a deleted one and
    completes a transaction without that partition's marker. So what it is to end is decided when it serves, or is left
    by a broker that has given its partitions up.
    """
    file = tmp_path / "server.properties"
    kafka = KafkaPeer(tmp_path / "node", SMALL)
    if successor == "kafka":
        kafka.start()  # which formats the directory
        kafka.stop()
        file = kafka.write_properties()
        first = Unmarked(tmp_path / "node", properties=file, port=kafka.port)
    else:
        first = Unmarked(tmp_path / "node", settings=kafka.settings)
    first.start()
    with Client(first.bootstrap, timeout_s=20) as client:
        group = Group(client, "handed-over", timeout_ms=KAFKAS_TIMEOUT_MS if successor == "kafka" else 5_000)
        group.main.commit(group.opened)
        assert describe_transaction(client, "handed-over").state == "PrepareCommit"
    if successor == "kafka" and not torn:
        assert first.stop() == 0
    else:
        first.kill()
    if torn:
        (log,) = (tmp_path / "node").glob(f"**/{STATE_TOPIC}-0/*.log")
        with log.open("r+b") as segment:
            segment.truncate(log.stat().st_size - 1)
    then = kafka if successor == "kafka" else HeadracePeer(tmp_path / "node", first.settings, port=first.port)
    then.start()
    try:
        with Client(then.bootstrap) as client:
            group.client = client
            until_over(group)
            assert group.states() == {"CompleteAbort" if torn else "CompleteCommit"}
            group.seen(None if torn else 7)
    finally:
        then.stop()


def until_over(group: Group) -> None:
    until = time.monotonic() + 2 * PATIENCE_S
    while not all(state.startswith("Complete") for state in group.states()):
        assert time.monotonic() < until, group.states()
        time.sleep(0.1)


def test_an_answer_that_never_comes_leaves_doubt(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next producer of the id returns when it is over; the mark tells how."""
    from headrace.client.errors import ConnectionLostError
    from headrace.wire.messages.k19900_headrace_group_end_txn import HeadraceGroupEndTxnResponse

    router = group.client.router
    wait = router.wait

    def lost(call: PendingCall[Any], deadline: float) -> Steps[object]:
        answer: object = yield from wait(call, deadline)
        if isinstance(answer, HeadraceGroupEndTxnResponse):
            router.timeout_s = 0.0
            raise ConnectionLostError("the answer did not come")
        return answer

    timeout_s, router.timeout_s = router.timeout_s, 1.0
    monkeypatch.setattr(router, "wait", lost)
    with pytest.raises(InDoubtError):
        # the client repeats it for as long as it is told to, and is answered; each answer is lost
        group.main.commit(group.opened)
    monkeypatch.undo()
    router.timeout_s = timeout_s
    TransactionalProducer(group.client, group.name).initialize()
    group.seen()
