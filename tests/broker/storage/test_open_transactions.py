"""A directory in which a transaction is open is not taken over, and says which transaction that is."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from broker.raw import Raw, create_topic, fetch

from headrace.broker.storage.open_transactions import NAMED_MAX
from headrace.broker.storage.storage_format import StorageError
from headrace.config import BrokerConfig, topic_config
from headrace.env.posix import PosixEnvironment
from headrace.log.manager import LogManager
from headrace.log.recovery import NO_TOPIC_ID
from headrace.testing.running import broker as running_broker
from headrace.wire.batch import iter_headers
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
    assert not log.append(batch, leader_epoch=0, now_ms=NOW_MS, origin="coordinator").error
    logs.shutdown()


def transactional(producer_id: int = PRODUCER) -> bytes:
    records = [Record(0, NOW_MS, b"k", b"v", [])]
    return build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def abort() -> bytes:
    """The marker that ends it, as a transaction coordinator writes it."""
    record = Record(0, NOW_MS, struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 3), [])
    return build_batch([record], producer_id=PRODUCER, producer_epoch=0, transactional=True, control=True)


def test_an_open_transaction_is_refused_by_name_and_nothing_is_touched(tmp_path: Path) -> None:
    left(tmp_path, "orders", "__transaction_state")
    write(tmp_path, "orders", transactional())
    metadata = tmp_path / "__cluster_metadata-0" / f"{0:020}.log"
    before = metadata.read_bytes()
    with pytest.raises(StorageError) as refused, running_broker(data=tmp_path):
        pass
    assert "orders-0 has an open transaction of producer 7 (from offset 0)" in str(refused.value)
    assert "\n" not in str(refused.value)
    # Apache Kafka may go on with it as it was: cleanly stopped, and no record of ours in its metadata.
    assert (tmp_path / CLEAN).exists()
    assert metadata.read_bytes() == before


def test_an_open_transaction_is_refused_after_a_crash_too(tmp_path: Path) -> None:
    left(tmp_path, "orders", "__transaction_state")
    write(tmp_path, "orders", transactional())
    (tmp_path / CLEAN).unlink()
    for _ in range(2):
        with pytest.raises(StorageError, match=r"orders-0 has an open transaction of producer 7 \(from offset 0\)"):
            with running_broker(data=tmp_path):
                pass


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


def test_many_open_transactions_are_named_in_part(tmp_path: Path) -> None:
    left(tmp_path, "orders", "__transaction_state")
    for producer_id in range(NAMED_MAX + 2):
        write(tmp_path, "orders", transactional(producer_id))
    with pytest.raises(StorageError) as refused, running_broker(data=tmp_path):
        pass
    assert str(refused.value).count("open transaction of producer") == NAMED_MAX


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
