"""The last stable offset of a partition that is led here: appends tell its machine of transactions."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator

import pytest
from broker.raw import Raw, create_topic

from headrace.broker.broker import Broker
from headrace.broker.partitions.replica import Replica
from headrace.log.append_results import AppendResult
from headrace.metadata.image import Partition
from headrace.replicas.partition import PartitionState
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.messages.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.records import Record, build_batch

NOW_MS = 1_700_000_000_000
PATIENCE_S = 60
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def served() -> Iterator[TestBroker]:
    with running_broker() as running:
        create_topic(running.port, "t")
        ready = threading.Event()
        running.call(lambda broker: broker.replicas.when_ready(("t", 0), ready.set, for_appends=True))
        assert ready.wait(PATIENCE_S)
        yield running


def replica_of(broker: Broker) -> Replica:
    return broker.replicas.by_name["t", 0]


def append(served: TestBroker, batch: bytes) -> None:
    """What a transaction coordinator or a leader elsewhere would bring."""

    def appended(broker: Broker) -> AppendResult:
        return broker.replicas.appender.append_many(replica_of(broker), (batch,), NOW_MS, "coordinator")[0]

    assert not served.call(appended).error


def write(served: TestBroker, producer_id: int, sequence: int = 0) -> None:
    record = Record(0, NOW_MS, b"k", b"v", [])
    append(
        served,
        build_batch([record], producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True),
    )


def abort(served: TestBroker, producer_id: int) -> None:
    record = Record(0, NOW_MS, struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 3), [])
    append(served, build_batch([record], producer_id=producer_id, producer_epoch=0, transactional=True, control=True))


def stable(served: TestBroker) -> tuple[int, int]:
    """(high watermark, last stable offset), as clients are told them; the machine says the same."""
    told: list[int] = []
    with Raw(served.port) as raw:
        for isolation_level in (0, 1):
            asked = ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=-1)])
            request = ListOffsetsRequest(replica_id=-1, topics=[asked], isolation_level=isolation_level)
            told.append(raw.ask(request, 7).topics[0].partitions[0].offset)

    def known(broker: Broker) -> tuple[PartitionState, int]:
        replica = replica_of(broker)
        return replica.state, replica.log.last_stable_offset(replica.high_watermark)

    state, by_log = served.call(known)
    assert told == [state.high_watermark, state.last_stable_offset] and by_log == told[1]
    return told[0], told[1]


def test_an_append_tells_of_the_transactions_that_it_begins_and_ends(served: TestBroker) -> None:
    assert stable(served) == (0, 0)
    write(served, 1)
    write(served, 2)
    write(served, 1, 1)
    assert stable(served) == (3, 0)
    abort(served, 1)
    assert stable(served) == (4, 1)
    abort(served, 2)
    assert stable(served) == (5, 5)
    write(served, 3)
    assert stable(served) == (6, 5)


def test_the_log_forgets_the_ends_of_transactions_though_nobody_reads(served: TestBroker) -> None:
    for producer_id in range(20):
        write(served, producer_id)
        abort(served, producer_id)
    write(served, 20)
    assert served.call(lambda broker: len(replica_of(broker).log.producers.unstable)) <= 2


def test_a_marker_that_another_replica_lacks_ends_nothing(served: TestBroker) -> None:
    def lead(isr: tuple[int, ...], partition_epoch: int) -> None:
        def change(broker: Broker) -> None:
            epoch = replica_of(broker).leader_epoch
            replica_of(broker).become_leader(Partition(0, (1, 2), (bytes(16),) * 2, isr, 1, epoch, partition_epoch))

        served.call(change)

    write(served, 1)
    lead((1, 2), 10)
    abort(served, 1)
    assert stable(served) == (1, 0)
    lead((1,), 11)
    assert stable(served) == (2, 2)


def test_records_of_an_open_transaction_may_be_deleted(served: TestBroker) -> None:
    """What is left of it is not stable; what is gone keeps nobody below the start of the log."""
    write(served, 1)
    write(served, 1, 1)
    write(served, 1, 2)
    asked = DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 2)])], timeout_ms=5000)
    with Raw(served.port) as raw:
        assert raw.ask(asked, 2).topics[0].partitions[0].error_code == 0
    assert stable(served) == (3, 2)
    write(served, 2)
    assert stable(served) == (4, 2)
    abort(served, 1)
    assert stable(served) == (5, 3)
    abort(served, 2)
    assert stable(served) == (6, 6)


def test_retention_past_an_open_transaction_moves_the_stable_offset_at_once(served: TestBroker) -> None:
    """What is gone of a transaction keeps nobody back, though nothing is appended, and a parked fetch hears of it."""
    write(served, 1)
    woken: list[int] = []

    class Waiter:
        def moved(self, replica: Replica, byte_count: int) -> None:
            woken.append(replica.state.last_stable_offset)

    def expire(broker: Broker) -> tuple[int, int]:
        replica, retention = replica_of(broker), broker.logs.retention
        later_ms = broker.node.clock.now_ms() + 10 * DAY_MS
        waiter = Waiter()
        replica.fetch_waiters[waiter] = None
        retention.start()
        look = retention.work(later_ms)
        assert look is not None
        take_out = look()
        assert take_out is not None
        rename = take_out()
        del replica.fetch_waiters[waiter]
        if rename is not None:
            rename()
        return replica.log.log_start_offset, replica.state.log_start

    assert served.call(expire) == (1, 1)
    assert stable(served) == (1, 1)
    assert woken == [1]
