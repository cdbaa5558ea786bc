"""WriteTxnMarkers over the wire, and by Kafka's own tool."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from typing import Any

import pytest
from broker.raw import Raw
from peers.kafka import kafka_tool

from headrace.broker.broker import Broker
from headrace.broker.coordinators.group_coordinator import OFFSETS_TOPIC
from headrace.groups.records import Offset, OffsetRecord
from headrace.machine.outcome import Outcome
from headrace.testing.running import TestBroker
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
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
from headrace.wire.records import Record, build_batch

NOW_MS = 1_700_000_000_000
PATIENCE_S = 60
NONE, LATE = ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH


def begin(served: TestBroker, topic: str, producer_id: int = 7, epoch: int = 0, partition: int = 0) -> None:
    """What a leader elsewhere would have brought: a transaction that is open."""
    record = Record(0, NOW_MS, b"k", b"v", [])
    batch = build_batch([record], producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
    ready = threading.Event()
    served.call(lambda broker: broker.replicas.when_ready((topic, partition), ready.set, for_appends=True))
    assert ready.wait(PATIENCE_S)

    def append(broker: Broker) -> ErrorCode:
        replica = broker.replicas.by_name[topic, partition]
        return broker.replicas.appender.append_many(replica, (batch,), NOW_MS, "coordinator")[0].error

    assert served.call(append) is NONE


def end(raw: Raw, *markers: WritableTxnMarker, version: int = 2) -> dict[int, dict[tuple[str, int], int]]:
    """The errors by producer id and partition."""
    answer = raw.ask(WriteTxnMarkersRequest(markers=list(markers)), version)
    return {
        each.producer_id: {(t.name, p.partition_index): p.error_code for t in each.topics for p in t.partitions}
        for each in answer.markers
    }


def marker(
    topic: str, *partitions: int, producer_id: int = 7, epoch: int = 0, committed: bool = False, **fields: Any
) -> WritableTxnMarker:
    topics = [WritableTxnMarkerTopic(topic, list(partitions or (0,)))]
    fields.setdefault("coordinator_epoch", 0)
    return WritableTxnMarker(producer_id, epoch, committed, topics, **fields)


def stable_offset(raw: Raw, topic: str) -> int:
    asked = ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=-1)])
    request = ListOffsetsRequest(replica_id=-1, topics=[asked], isolation_level=1)
    offset: int = raw.ask(request, 7).topics[0].partitions[0].offset
    return offset


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_is_ended(served: TestBroker, raw: Raw, topic: Callable[..., str], version: int) -> None:
    name = topic()
    begin(served, name)
    assert stable_offset(raw, name) == 0
    assert end(raw, marker(name), version=version) == {7: {(name, 0): NONE}}
    assert stable_offset(raw, name) == 2


def test_the_transactions_version_says_which_epoch_is_late(
    served: TestBroker, raw: Raw, topic: Callable[..., str]
) -> None:
    name = topic()
    begin(served, name, epoch=3)
    assert end(raw, marker(name, epoch=3, transaction_version=2)) == {7: {(name, 0): LATE}}
    assert end(raw, marker(name, epoch=2)) == {7: {(name, 0): LATE}}
    assert end(raw, marker(name, epoch=4, transaction_version=2, coordinator_epoch=5)) == {7: {(name, 0): NONE}}
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert end(raw, marker(name, epoch=4, coordinator_epoch=4)) == {7: {(name, 0): fenced}}


def test_each_partition_of_each_marker_is_answered(served: TestBroker, raw: Raw, topic: Callable[..., str]) -> None:
    """KAFKA-17877: one unknown partition among them, and none at all, and the same producer twice."""
    name = topic(2)
    begin(served, name, 7)
    begin(served, name, 8, partition=1)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    asked = [marker(name, 0, 9), marker(name, 1, producer_id=8), marker("no-topic"), marker(name, producer_id=9)]
    assert end(raw, *asked) == {
        7: {(name, 0): NONE, (name, 9): unknown, ("no-topic", 0): unknown},
        8: {(name, 1): NONE},
        9: {(name, 0): NONE},
    }
    assert end(raw) == {}
    assert end(raw, WritableTxnMarker(7, 0, True, [], 0)) == {7: {}}


def test_offsets_count_when_it_is_answered(served: TestBroker, raw: Raw, topic: Callable[..., str]) -> None:
    """The group coordinator writes it (KAFKA-17507)."""
    name, group = topic(), "of-a-transaction"
    found = raw.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4).coordinators[0]
    assert found.error_code == 0

    def fetched() -> tuple[int, int]:
        topics = [OffsetFetchRequestTopics(name, bytes(16), [0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)], require_stable=True)
        while (of_group := raw.ask(request, 9).groups[0]).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            pass
        partition = of_group.topics[0].partitions[0]
        return partition.committed_offset, partition.error_code

    assert fetched() == (-1, 0)
    record = OffsetRecord(group, name, 0, Offset(42, committed_ms=NOW_MS))
    done = threading.Event()

    def answered(value: Any) -> None:
        assert value == "done"
        done.set()

    def commit(broker: Broker) -> int:
        answer = broker.groups.write(group, lambda *_: Outcome("done", [record], producer=(7, 3)), lambda e: e)
        answer.deliver_to(answered)
        return broker.groups.partition_for(group)

    index = served.call(commit)
    assert done.wait(PATIENCE_S)
    assert fetched() == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    asked = marker(OFFSETS_TOPIC, index, epoch=3, committed=True, transaction_version=2)
    assert end(raw, asked) == {7: {(OFFSETS_TOPIC, index): LATE}}
    assert fetched() == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    asked = marker(OFFSETS_TOPIC, index, epoch=4, committed=True, transaction_version=2)
    assert end(raw, asked) == {7: {(OFFSETS_TOPIC, index): NONE}}
    assert fetched() == (42, 0)


def test_a_group_coordinator_that_does_not_serve_is_no_leader(served: TestBroker, raw: Raw) -> None:
    assert raw.ask(FindCoordinatorRequest(coordinator_keys=["any"]), 4).coordinators[0].error_code == 0
    index = served.call(lambda broker: broker.groups.partition_for("any"))
    shard = served.call(lambda broker: broker.groups.runtime.shards.pop(index))
    try:
        refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert end(raw, marker(OFFSETS_TOPIC, index)) == {7: {(OFFSETS_TOPIC, index): refused}}
    finally:
        served.call(lambda broker: broker.groups.runtime.shards.setdefault(index, shard))


@pytest.mark.jvm
@pytest.mark.slow
def test_kafkas_tool_aborts_one_that_hangs(served: TestBroker, raw: Raw, topic: Callable[..., str]) -> None:
    name = topic()
    begin(served, name, 8)
    begin(served, name, 7, epoch=5)

    def abort(offset: int) -> subprocess.CompletedProcess[str]:
        server = ("--bootstrap-server", f"127.0.0.1:{served.port}")
        where = ("--topic", name, "--partition", "0", "--start-offset", str(offset))
        return kafka_tool("org.apache.kafka.tools.TransactionsCommand", *server, "abort", *where)

    abort(0)
    assert stable_offset(raw, name) == 1
    abort(1)
    assert stable_offset(raw, name) == 4
