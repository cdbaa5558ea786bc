"""TxnOffsetCommit over real sockets: what its transaction's coordinator has to say, and which offsets count when."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from broker.raw import Raw
from broker.scripted_coordinator import NONE, PATIENCE_S, ScriptedCoordinator, ask_there
from peers.waiting import until

from headrace.broker.broker import Broker
from headrace.broker.coordinators.group_coordinator import OFFSETS_TOPIC
from headrace.broker.requests.apis import SERVED, may
from headrace.security.authorizer import UNCACHED, OpenAuthorizer, Operation, ResourceType
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from headrace.wire.messages.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

_numbers = itertools.count()
ADDS = (4, 5)
"""The newest version that verifies, and the first one that adds."""


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(SERVED, ApiKey.TXN_OFFSET_COMMIT, may(ResourceType.GROUP, Operation.READ))
        with running_broker() as running:
            yield running


@pytest.fixture
def scripted(served: TestBroker) -> Iterator[ScriptedCoordinator]:
    with ScriptedCoordinator() as coordinator:
        served.call(lambda broker: ask_there(broker, coordinator.port))
        yield coordinator


@pytest.fixture
def group(served: TestBroker, raw: Raw) -> str:
    """One whose coordinator serves."""
    name = f"group-{next(_numbers)}"
    assert raw.ask(FindCoordinatorRequest(coordinator_keys=[name]), 4).coordinators[0].error_code == 0
    fetched(raw, name, "no-topic")
    return name


def producer_of(group: str) -> int:
    """A group's own: tests share a broker, and come in any order."""
    return int(group.rpartition("-")[2])


def commit(group: str, topic: str, offset: int = 42, **fields: Any) -> TxnOffsetCommitRequest:
    partitions = fields.pop("partitions", [0])
    epoch = fields.pop("epoch", 0)
    metadata, topic_id = fields.pop("metadata", ""), fields.pop("topic_id", bytes(16))
    asked = [TxnOffsetCommitRequestPartition(index, offset, committed_metadata=metadata) for index in partitions]
    topics = [TxnOffsetCommitRequestTopic(topic, topic_id, asked)]
    return TxnOffsetCommitRequest("x", group, producer_of(group), epoch, topics=topics, **fields)


def told(answer: Any) -> dict[tuple[str, int], int]:
    return {(t.name, p.partition_index): p.error_code for t in answer.topics for p in t.partitions}


def fetched(raw: Raw, group: str, topic: str) -> tuple[int, int]:
    """(offset, error) of partition 0, as far as it is stable."""
    topics = [OffsetFetchRequestTopics(topic, bytes(16), [0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)], require_stable=True)
    while (found := raw.ask(request, 9).groups[0]).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        pass
    partition = found.topics[0].partitions[0]
    return partition.committed_offset, partition.error_code


def end(raw: Raw, served: TestBroker, group: str, epoch: int, *, version: int = 0, committed: bool = True) -> None:
    topics = [WritableTxnMarkerTopic(OFFSETS_TOPIC, [index_of(served, group)])]
    marker = WritableTxnMarker(producer_of(group), epoch, committed, topics, 0, version)
    answer = raw.ask(WriteTxnMarkersRequest(markers=[marker]), 2)
    assert answer.markers[0].topics[0].partitions[0].error_code == 0


def index_of(served: TestBroker, group: str) -> int:
    return served.call(lambda broker: broker.groups.partition_for(group))


@pytest.mark.parametrize("version", range(6))
def test_the_offsets_count_when_the_transaction_is_committed(
    raw: Raw, served: TestBroker, topic: Callable[..., str], group: str, scripted: ScriptedCoordinator, version: int
) -> None:
    name, epoch = topic(), 3
    answer = told(raw.ask(commit(group, name, epoch=epoch), version))
    assert answer == {(name, 0): NONE}
    assert scripted.transactions() == [("x", version < 5, [(OFFSETS_TOPIC, [index_of(served, group)])])]
    assert fetched(raw, group, name) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert told(raw.ask(commit(group, name, 43, epoch=epoch), version)) == {(name, 0): NONE}
    assert len(scripted.asked) == 1, "its transaction is open there"
    end(raw, served, group, epoch + 1, version=2)
    assert fetched(raw, group, name) == (43, 0)


def test_topics_by_id(
    raw: Raw, served: TestBroker, topic: Callable[..., str], group: str, scripted: ScriptedCoordinator
) -> None:
    name = topic()
    found = served.call(lambda broker: broker.image.topics.by_name(name))
    assert found is not None
    request = commit(group, "", topic_id=found.id)
    other = TxnOffsetCommitRequestTopic("", b"\7" * 16, [TxnOffsetCommitRequestPartition(0, 1)])
    request.topics.append(other)
    answer = raw.ask(request, 6)
    errors = {each.topic_id: each.partitions[0].error_code for each in answer.topics}
    assert errors == {found.id: NONE, b"\7" * 16: ErrorCode.UNKNOWN_TOPIC_ID}


@pytest.mark.parametrize(
    ("said", "version", "heard"),
    [
        (ErrorCode.PRODUCER_FENCED, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NOT_COORDINATOR, 5, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 4, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.NETWORK_EXCEPTION, 5, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_what_the_coordinator_says_as_the_client_hears_it(
    raw: Raw,
    topic: Callable[..., str],
    group: str,
    scripted: ScriptedCoordinator,
    said: ErrorCode,
    version: int,
    heard: ErrorCode,
) -> None:
    name = topic()
    scripted.says = lambda *_: said
    request = commit(group, name)
    assert told(raw.ask(request, version)) == {(name, 0): heard}
    assert fetched(raw, group, name) == (-1, 0)


@pytest.mark.parametrize("is_waiting", [False, True])
def test_who_names_the_producer_of_another_transaction_fences_nobody(
    raw: Raw, served: TestBroker, topic: Callable[..., str], group: str, scripted: ScriptedCoordinator, is_waiting: bool
) -> None:
    """All groups of a partition of offsets meet there: whoever may commit to one of them could end the others'
    transactions, by an epoch that nobody has."""
    name = topic()
    scripted.says = lambda asked, *_: NONE if asked.transactional_id == "x" else ErrorCode.INVALID_PRODUCER_ID_MAPPING
    forged = commit(group, name, 666, epoch=32_767)
    forged.transactional_id = "another"
    if is_waiting:
        scripted.gate.clear()
        raw.send(commit(group, name), 5)
        assert scripted.came.acquire(timeout=PATIENCE_S)
    before = served.call(lambda broker: claims(broker, group))
    with Raw(served.port) as stranger:
        stranger.send(forged, 5)
        if is_waiting:
            until(lambda: served.call(lambda broker: claims(broker, group)) > before, "it is not looked at")
            scripted.gate.set()
        assert told(stranger.receive(28, 5)[1]) == {(name, 0): ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    answer = raw.receive(28, 5)[1] if is_waiting else raw.ask(commit(group, name), 5)
    assert told(answer) == {(name, 0): NONE}
    end(raw, served, group, 1, version=2)
    assert fetched(raw, group, name) == (42, 0)


def claims(broker: Broker, group: str) -> int:
    """How many wait for their coordinators to commit to a group's partition."""
    replica = broker.replicas.by_name[OFFSETS_TOPIC, broker.groups.partition_for(group)]
    guards = replica.log.producers.guards
    return 0 if guards is None else len(guards)


def test_each_partition_stands_alone(
    raw: Raw, topic: Callable[..., str], group: str, scripted: ScriptedCoordinator
) -> None:
    name = topic()
    request = commit(group, name, partitions=[0, 1])
    request.topics.append(TxnOffsetCommitRequestTopic("no-topic", bytes(16), [TxnOffsetCommitRequestPartition(0, 1)]))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert told(raw.ask(request, 5)) == {(name, 0): NONE, (name, 1): unknown, ("no-topic", 0): unknown}
    large = commit(group, name, metadata="x" * 5000)
    assert told(raw.ask(large, 5)) == {(name, 0): ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert len(scripted.asked) == 1
    assert told(raw.ask(commit(group, "no-topic"), 5)) == {("no-topic", 0): unknown}
    assert len(scripted.asked) == 1, "there is nothing to commit"


@pytest.mark.parametrize(
    ("resource", "error"),
    [
        (ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_who_may_not(
    raw: Raw,
    served: TestBroker,
    topic: Callable[..., str],
    group: str,
    scripted: ScriptedCoordinator,
    resource: ResourceType,
    error: ErrorCode,
) -> None:
    name = topic()
    wanted = {
        ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, resource, "x"),
        ResourceType.GROUP: (Operation.READ, resource, group),
        ResourceType.TOPIC: (Operation.READ, resource, name),
    }[resource]

    class AllBut(OpenAuthorizer):
        generation = UNCACHED

        def authorize(self, *asked: Any) -> bool:
            return bool(asked[2:] != wanted)

    def swap(broker: Broker, authorizer: OpenAuthorizer) -> None:
        broker.authorizer = authorizer

    served.call(lambda broker: swap(broker, AllBut()))
    try:
        assert told(raw.ask(commit(group, name), 5)) == {(name, 0): error}
    finally:
        served.call(lambda broker: swap(broker, OpenAuthorizer()))
    assert not scripted.asked


@pytest.mark.parametrize("version", ADDS)
def test_an_abort_while_the_coordinator_is_asked(
    raw: Raw, served: TestBroker, topic: Callable[..., str], group: str, scripted: ScriptedCoordinator, version: int
) -> None:
    """What it has said is about a transaction that is over: nothing waits for an end that never comes."""
    name, epoch = topic(), 3
    scripted.gate.clear()
    raw.send(commit(group, name, epoch=epoch), version)
    assert scripted.came.acquire(timeout=PATIENCE_S)
    with Raw(served.port) as other:
        end(other, served, group, epoch + (version > 4), version=2 if version > 4 else 0, committed=False)
    scripted.gate.set()
    assert told(raw.receive(28, version)[1]) == {(name, 0): ErrorCode.INVALID_TXN_STATE}
    assert fetched(raw, group, name) == (-1, 0)


def test_a_replaced_producer_is_refused_before_anybody_is_asked(
    raw: Raw, served: TestBroker, topic: Callable[..., str], group: str, scripted: ScriptedCoordinator
) -> None:
    name = topic()
    end(raw, served, group, 1000)
    late = told(raw.ask(commit(group, name, epoch=999), 5))
    assert late == {(name, 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert not scripted.asked
