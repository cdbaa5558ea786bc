"""A `__transaction_state` that Apache Kafka wrote: we read all of it, and would have written the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest
from peers.kafka import KafkaPeer, kafka_tool
from peers.transactions import state_of

from headrace.client.cluster import Client
from headrace.transactions.asks import TransactionSettings
from headrace.transactions.records import decode, encode
from headrace.transactions.shard import TransactionShard
from headrace.transactions.states import FOLLOWS
from headrace.transactions.transaction import Transaction
from headrace.wire.batch import iter_headers
from headrace.wire.errors import ErrorCode
from headrace.wire.records import decode_batch
from headrace.wire.sharding import partition_of

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


def transact(kafka: KafkaPeer) -> None:
    """One transaction of librdkafka (transaction.version 0) that is committed, one aborted, one fenced."""
    settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": "old", "linger.ms": 0}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(30)
    for commit in (True, False, None):
        producer.begin_transaction()
        for partition in (0, 1, 2):
            producer.produce("t", "record", partition=partition)
        producer.flush(30)
        if commit is not None:
            producer.commit_transaction(30) if commit else producer.abort_transaction(30)
    confluent_kafka.Producer(settings).init_transactions(30)


def transact_with_raises(kafka: KafkaPeer) -> None:
    """Transactions of the Java client (transaction.version 2)."""
    kafka_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", "u", "--num-records", "300", "--record-size", "100", "--throughput", "1000"),
        *("--transactional-id", "new", "--transaction-duration-ms", "50"),
        *("--producer-props", f"bootstrap.servers={kafka.bootstrap}"),
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The log directory that Kafka left."""
    with KafkaPeer(tmp_path_factory.mktemp("kafka")) as kafka:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.bootstrap})
        topics = [confluent_kafka.admin.NewTopic("t", 3, 1), confluent_kafka.admin.NewTopic("u", 1, 1)]
        for made in admin.create_topics(topics).values():
            made.result(60)
        transact(kafka)
        transact_with_raises(kafka)
        with Client(kafka.bootstrap) as client:
            assert [state_of(client, each) for each in ("old", "new")] == ["Empty", "CompleteCommit"]
        kafka.stop()
        yield kafka.data


def records_of(data: Path) -> Iterator[tuple[int, bytes, bytes | None]]:
    """(partition, key, value) of every record of the transaction coordinator."""
    for directory in sorted(data.glob("__transaction_state-*")):
        for segment in sorted(directory.glob("*.log")):
            buffer = segment.read_bytes()
            for at, _ in iter_headers(buffer):
                for record in decode_batch(buffer, at):
                    value = None if record.value is None else bytes(record.value)
                    yield int(directory.name.rpartition("-")[2]), bytes(record.key or b""), value


def test_every_record_is_written_as_kafka_writes_it(data: Path) -> None:
    versions, states = set(), set()
    latest: dict[str, Transaction] = {}
    for partition, key, value in records_of(data):
        record = decode(key, value)
        assert isinstance(record, Transaction) and value is not None
        assert partition == partition_of(record.transactional_id, 50)
        ours = encode(record, value_version=1)
        if len(record.partitions) <= 1:
            assert ours == (key, value)
        else:
            # Kafka names partitions in the order of a hash table.
            assert decode(*ours) == record and len(ours[1] or b"") == len(value)
        before = latest.get(record.transactional_id)
        assert before is None or before.state in FOLLOWS[record.state]
        latest[record.transactional_id] = record
        versions.add(record.version)
        states.add(record.state.label)
    assert versions == {0, 2}
    assert states == {"Empty", "Ongoing", "PrepareCommit", "CompleteCommit", "PrepareAbort", "CompleteAbort"}


def test_its_transactions_stand_up_again(data: Path) -> None:
    shard = TransactionShard(TransactionSettings(), lambda: 2, lambda: None)
    for _, key, value in records_of(data):
        record = shard.decode(key, value)
        assert record is not None
        shard.apply(record, 0)
    assert shard.transaction_count == 2
    assert [shard.describe(each).state for each in ("old", "new")] == ["Empty", "CompleteCommit"]
    assert shard.describe("none").error == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
