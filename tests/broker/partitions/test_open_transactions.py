"""A directory in which a transaction is open is taken over: it keeps readers back until it ends."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from broker.raw import Raw, create_topic, fetch

from headrace.config import BrokerConfig, topic_config
from headrace.env.posix import PosixEnvironment
from headrace.log.manager import LogManager
from headrace.log.recovery import NO_TOPIC_ID
from headrace.testing.running import broker as running_broker
from headrace.wire.batch import iter_headers
from headrace.wire.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from headrace.wire.records import Record, build_batch

NOW_MS = 1_700_000_000_000
PRODUCER = 7
CLEAN = ".kafka_cleanshutdown"


def left(data: Path, *topics: str) -> None:
    """A directory that was cleanly stopped, with `topics` of one partition."""
    with running_broker(data=data) as served:
        for topic in topics:
            create_topic(served.port, topic)


def write(data: Path, topic: str, batch: bytes) -> None:
    """Appends to a stopped directory, as the leader that replicated it would have, and closes it cleanly."""
    config = BrokerConfig({"log.dirs": str(data)})
    logs = LogManager(PosixEnvironment(), config)
    logs.lock()
    logs.load()
    log = logs.get_or_create(topic, 0, NO_TOPIC_ID, topic_config(config, {}))
    assert not log.writer.append(batch, leader_epoch=0, now_ms=NOW_MS, origin="coordinator").error
    logs.shutdown()


def transactional(producer_id: int = PRODUCER) -> bytes:
    records = [Record(0, NOW_MS, b"k", b"v", [])]
    return build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def abort() -> bytes:
    """The marker that ends it, as a transaction coordinator writes it."""
    record = Record(0, NOW_MS, struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 3), [])
    return build_batch([record], producer_id=PRODUCER, producer_epoch=0, transactional=True, control=True)


@pytest.mark.parametrize("snapshots", [True, False])
@pytest.mark.parametrize("clean", [True, False])
def test_an_open_transaction_goes_on(tmp_path: Path, clean: bool, snapshots: bool) -> None:
    """From the snapshot of its producers, and after a crash from the batches too."""
    left(tmp_path, "orders", "__transaction_state")
    write(tmp_path, "orders", transactional(8))
    write(tmp_path, "orders", transactional())
    if not clean:
        (tmp_path / CLEAN).unlink()
    if not snapshots and not clean:
        for path in (tmp_path / "orders-0").glob("*.snapshot"):
            path.unlink()
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        stable_offset(raw, 0)
        end(raw, 8)
        stable_offset(raw, 1)
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        stable_offset(raw, 1)
        end(raw, PRODUCER)
        stable_offset(raw, 4)


def stable_offset(raw: Raw, expected: int) -> None:
    """Up to where readers of committed records come, and what they hear."""
    offset = 0
    while True:
        answer = raw.ask(fetch("orders", offset, max_wait_ms=0, isolation_level=1), 11).responses[0].partitions[0]
        if answer.error_code:
            continue  # its log is being opened
        assert answer.last_stable_offset == expected
        headers = [header for _, header in iter_headers(bytes(answer.records or b""))]
        if not headers:
            break
        offset = headers[-1].next_offset
    assert offset == expected


def end(raw: Raw, producer_id: int) -> None:
    marker = WritableTxnMarker(producer_id, 0, False, [WritableTxnMarkerTopic("orders", [0])], 0)
    answer = raw.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize("clean", [True, False])
def test_a_transaction_that_has_ended_is_no_obstacle(tmp_path: Path, clean: bool) -> None:
    left(tmp_path, "orders", "__transaction_state")
    write(tmp_path, "orders", transactional())
    write(tmp_path, "orders", abort())
    if not clean:
        (tmp_path / CLEAN).unlink()
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        answer = raw.ask(fetch("orders", 0, max_wait_ms=0), 11).responses[0].partitions[0]
        assert [header.base_offset for _, header in iter_headers(bytes(answer.records))] == [0, 1]
        assert answer.last_stable_offset == 2


def test_without_a_coordinator_it_is_said_when_the_log_is_opened(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`__transaction_state` is gone, and nobody could end it, under Kafka either: the directory is served."""
    left(tmp_path, "orders")
    write(tmp_path, "orders", transactional())
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        answer = raw.ask(fetch("orders", 0, max_wait_ms=0), 11).responses[0].partitions[0]
        assert answer.last_stable_offset == 0
    told = "an open transaction without a coordinator keeps read_committed back partition=orders-0 offset=0"
    assert told in caplog.text
