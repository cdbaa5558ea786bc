"""A directory in which Apache Kafka wrote transactions, committed and aborted: ours serves it as Kafka does.

Kafka's own answers are kept before it stops; then ours starts on the same files. Neither starts on what the other
holds.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka as kafka_python
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer, java, kafka_tool
from peers.link import Link

from headrace.wire.batch import CorruptBatch, iter_headers
from headrace.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.k02_list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.k61_describe_producers import DescribeProducersRequest, TopicRequest

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

TOPIC = "transacted"
SMALL, ROLLING = 0, 1
"""A partition of small records in one segment, and one of large records that rolled several times."""
SEGMENT_BYTES = 1 << 20
LARGE = 300_000
T0 = 1_700_000_000_000
PATIENCE_S = 60.0
UNCOMMITTED, COMMITTED = 0, 1
ISOLATION = {UNCOMMITTED: "read_uncommitted", COMMITTED: "read_committed"}
START_PATIENCE_S = 60.0


class Script:
    """Writes transactions step by step, and knows what each kind of reader must see."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producers: dict[str, confluent_kafka.Producer] = {}
        self._number = 0
        self.seen: dict[tuple[int, int], list[bytes]] = {
            (isolation, partition): [] for isolation in ISOLATION for partition in (SMALL, ROLLING)
        }

    def producer(self, name: str) -> confluent_kafka.Producer:
        """One producer a name; "plain" has no transactions."""
        if name not in self._producers:
            settings = {"bootstrap.servers": self._bootstrap, "linger.ms": 0, "batch.num.messages": 2}
            if name != "plain":
                settings["transactional.id"] = name
            self._producers[name] = confluent_kafka.Producer(settings)
            if name != "plain":
                self._producers[name].init_transactions(PATIENCE_S)
        return self._producers[name]

    def write(self, name: str, fate: int) -> None:
        """Three records to each partition, which only a reader of isolation `fate` and below sees, all of them stored
        when this returns."""
        producer = self.producer(name)
        for _ in range(3):
            self._number += 1
            for partition in (SMALL, ROLLING):
                value = f"{name}-{self._number}-".encode()
                producer.produce(
                    TOPIC, value + b"x" * LARGE * (partition == ROLLING), partition=partition,
                    timestamp=T0 + self._number * 1000,
                )  # fmt: skip
                for isolation in range(fate + 1):
                    self.seen[isolation, partition].append(value)
        assert producer.flush(PATIENCE_S) == 0


def write_transactions(bootstrap: str) -> Script:
    """Commits, aborts and plain records, two producers and more in between each other; no transaction stays open."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"segment.bytes": str(SEGMENT_BYTES), "retention.ms": "-1"}
    admin.create_topics([NewTopic(TOPIC, 2, 1, config=config)])[TOPIC].result(PATIENCE_S)
    script = Script(bootstrap)
    one, other = script.producer("one"), script.producer("other")
    one.begin_transaction()
    script.write("one", COMMITTED)
    one.commit_transaction(PATIENCE_S)
    one.begin_transaction()
    script.write("one", UNCOMMITTED)
    one.abort_transaction(PATIENCE_S)
    # two at a time, plain records among them: the one that begins first is aborted last
    one.begin_transaction()
    script.write("one", UNCOMMITTED)
    other.begin_transaction()
    script.write("other", UNCOMMITTED)
    script.write("plain", COMMITTED)
    other.abort_transaction(PATIENCE_S)
    other.begin_transaction()
    script.write("other", COMMITTED)
    script.write("one", UNCOMMITTED)
    other.commit_transaction(PATIENCE_S)
    one.abort_transaction(PATIENCE_S)
    one.begin_transaction()
    script.write("one", COMMITTED)
    one.commit_transaction(PATIENCE_S)
    return script


def fetches(port: int, topic_id: bytes) -> list[Any]:
    """Fetch from every offset in both isolation levels, several versions, small answers and whole ones."""
    found = []
    with Link(port) as link:
        for partition in (SMALL, ROLLING):
            end = list_offset(link, partition, -1, UNCOMMITTED)[1]
            for isolation, version, size in (
                (COMMITTED, 4, 1 << 24), (COMMITTED, 11, 1), (COMMITTED, 12, 1 << 24), (COMMITTED, 17, 400_000),
                (UNCOMMITTED, 12, 1 << 24),
            ):  # fmt: skip
                for offset in range(end + 1):
                    found.append(fetch(link, topic_id, partition, offset, isolation, version, size))
    return found


def fetch(link: Link, topic_id: bytes, partition: int, offset: int, isolation: int, version: int, size: int) -> Any:
    part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=size)
    topic = FetchTopic(topic=TOPIC, topic_id=topic_id, partitions=[part])
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1 << 24, isolation_level=isolation, session_epoch=-1, topics=[topic]
    )
    answer = link.ask(request, version).responses[0].partitions[0]
    aborted = answer.aborted_transactions
    records = bytes(answer.records or b"")
    return {
        "asked": (partition, offset, isolation, version, size),
        "error": answer.error_code,
        "high_watermark": answer.high_watermark,
        "last_stable_offset": answer.last_stable_offset,
        "log_start_offset": answer.log_start_offset,
        "aborted": None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted],
        "records": (len(records), hashlib.sha256(records).hexdigest()),
        "next_offset": end_of_whole_batches(records),
    }


def end_of_whole_batches(records: bytes) -> int:
    """Up to where a reader gets: an answer may end inside a batch."""
    end = 0
    with contextlib.suppress(CorruptBatch):
        for _, header in iter_headers(records):
            end = header.next_offset
    return end


def list_offset(link: Link, partition: int, timestamp: int, isolation: int) -> tuple[int, int, int]:
    part = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    topic = ListOffsetsTopic(name=TOPIC, partitions=[part])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[topic])
    answer = link.ask(request, 7).topics[0].partitions[0]
    return answer.error_code, answer.offset, answer.timestamp


def await_markers(port: int) -> None:
    """Until no transaction is open: Kafka answers a commit before it has written the markers."""
    patience = time.monotonic() + PATIENCE_S
    with Link(port) as link:
        for partition in (SMALL, ROLLING):
            while list_offset(link, partition, -1, COMMITTED) != list_offset(link, partition, -1, UNCOMMITTED):
                assert time.monotonic() < patience, "a transaction stays open"
                time.sleep(0.01)


def offsets(port: int) -> list[Any]:
    """ListOffsets of both isolation levels, by special timestamps and by time."""
    with Link(port) as link:
        return [
            (partition, timestamp, isolation, list_offset(link, partition, timestamp, isolation))
            for partition in (SMALL, ROLLING)
            for timestamp in (-1, -2, -3, *range(T0, T0 + 26_000, 1000))
            for isolation in ISOLATION
        ]


def producers(port: int) -> list[Any]:
    """What DescribeProducers says of each partition, but for the epoch of the coordinator, which is gone with it."""
    request = DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[SMALL, ROLLING])])
    with Link(port) as link:
        parts = link.ask(request, 0).topics[0].partitions
    return [
        (part.partition_index, part.error_code, sorted(
            (p.producer_id, p.producer_epoch, p.last_sequence, p.current_txn_start_offset)
            for p in part.active_producers
        ))
        for part in parts
    ]  # fmt: skip


def topic_id_of(port: int) -> bytes:
    with Link(port) as link:
        topic_id: bytes = link.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12).topics[0].topic_id
    return topic_id


@dataclass
class Adopted:
    """The directory under our broker, and what Kafka said of it."""

    ours: HeadracePeer
    kafka: KafkaPeer
    script: Script
    topic_id: bytes
    fetches: list[Any]
    offsets: list[Any]
    producers: list[Any]
    refusal: str
    """What ours said when it was started on the directory that Kafka held."""


@pytest.fixture(scope="module")
def adopted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adopted]:
    directory = tmp_path_factory.mktemp("transacted") / "node"
    kafka = KafkaPeer(directory, {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"})
    ours = HeadracePeer(directory, properties=kafka.write_properties(), port=kafka.port)
    ours.settings = {}
    with kafka:
        script = write_transactions(kafka.bootstrap)
        await_markers(kafka.port)
        topic_id = topic_id_of(kafka.port)
        said = fetches(kafka.port, topic_id), offsets(kafka.port), producers(kafka.port)
        # at other addresses, which it binds before it looks at a directory
        elsewhere = ["--set", "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0"]
        command = [*ours.command(), *elsewhere]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=START_PATIENCE_S, cwd=directory
        )
        assert done.returncode != 0
    with ours:
        yield Adopted(ours, kafka, script, topic_id, *said, done.stderr + done.stdout)


def test_ours_does_not_start_on_what_kafka_holds(adopted: Adopted) -> None:
    last = adopted.refusal.strip().splitlines()[-1]
    assert last.startswith(f"headrace: log directory {adopted.kafka.data} is in use by another broker"), adopted.refusal


def test_kafka_does_not_start_on_what_ours_holds(tmp_path: Path) -> None:
    """It is a second log directory that both name: a combined Kafka looks for locks only after its controller is up."""
    ours_own, kafkas_own, both = (tmp_path / name for name in ("ours", "kafkas", "both"))
    settings = {"log.dirs": f"{ours_own},{both}", "metadata.log.dir": str(ours_own)}
    with HeadracePeer(tmp_path / "node", settings) as ours:
        assert (both / "meta.properties").exists()
        kafkas_own.mkdir()
        formatted = (ours_own / "meta.properties").read_text()
        mine = re.sub("(?m)^directory.id=.*", f"directory.id={'b' * 21}A", formatted)
        (kafkas_own / "meta.properties").write_text(mine)
        shutil.copy(ours_own / "bootstrap.checkpoint", kafkas_own)
        settings = {"log.dirs": f"{kafkas_own},{both}", "metadata.log.dir": str(kafkas_own)}
        properties = KafkaPeer(tmp_path, settings).write_properties()
        done = subprocess.run(
            java("kafka.Kafka", str(properties)), check=False, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert ours.stop() == 0
    assert done.returncode != 0
    assert f"Failed to acquire lock on file .lock in {both}" in done.stdout + done.stderr, done.stdout + done.stderr


def test_there_is_something_to_see(adopted: Adopted) -> None:
    """Kafka's answers name the aborted transactions, and the rolling partition did roll with some in its indexes."""
    assert max(len(each["aborted"] or ()) for each in adopted.fetches) == 3
    indexes = list((adopted.kafka.data / f"{TOPIC}-{ROLLING}").glob("*.txnindex"))
    assert sum(path.stat().st_size > 0 for path in indexes) > 1


def test_fetches_are_answered_as_kafka_did(adopted: Adopted) -> None:
    assert fetches(adopted.ours.port, adopted.topic_id) == adopted.fetches


def test_offsets_are_listed_as_kafka_did(adopted: Adopted) -> None:
    assert offsets(adopted.ours.port) == adopted.offsets


def test_producers_are_described_as_kafka_did(adopted: Adopted) -> None:
    assert producers(adopted.ours.port) == adopted.producers


def test_rebuilt_indexes_say_the_same(adopted: Adopted, tmp_path: Path) -> None:
    """A start that trusts no checkpoint and finds no transaction index makes the same bytes and answers again."""
    copy = KafkaPeer(tmp_path / "node", adopted.kafka.settings)
    shutil.copytree(adopted.kafka.data, copy.data)
    wanted = {}
    for path in copy.data.glob(f"{TOPIC}-*/*.txnindex"):
        wanted[path] = path.read_bytes()
        path.unlink()
    for path in (*copy.data.glob(f"{TOPIC}-*/*.snapshot"), *copy.data.glob("*-checkpoint")):
        if path.is_file():
            path.unlink()
    (copy.data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    ours = HeadracePeer(copy.directory, properties=copy.write_properties(), port=copy.port)
    ours.settings = {}
    with ours:
        assert fetches(ours.port, adopted.topic_id) == adopted.fetches
    assert {path: path.read_bytes() if path.exists() else b"" for path in wanted} == wanted


@pytest.mark.parametrize("isolation", ISOLATION)
def test_librdkafka_reads_it(adopted: Adopted, isolation: int) -> None:
    for partition in (SMALL, ROLLING):
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": adopted.ours.bootstrap, "group.id": "reader", "enable.auto.commit": False,
                "isolation.level": ISOLATION[isolation], "enable.partition.eof": True,
            }
        )  # fmt: skip
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, partition, 0)])
        values = []
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            if (error := message.error()) is not None:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
                break
            values.append((message.value() or b"").rstrip(b"x"))
        consumer.close()
        assert values == adopted.script.seen[isolation, partition]


@pytest.mark.parametrize("isolation", ISOLATION)
def test_kafka_python_reads_it(adopted: Adopted, isolation: int) -> None:
    consumer = kafka_python.KafkaConsumer(
        bootstrap_servers=adopted.ours.bootstrap, isolation_level=ISOLATION[isolation], auto_offset_reset="earliest",
        enable_auto_commit=False,
    )  # fmt: skip
    for partition in (SMALL, ROLLING):
        where = kafka_python.TopicPartition(TOPIC, partition)
        consumer.assign([where])
        consumer.seek_to_beginning(where)
        wanted = adopted.script.seen[isolation, partition]
        values = [next(consumer).value.rstrip(b"x") for _ in wanted]
        assert values == wanted
    consumer.close()


@pytest.mark.parametrize("isolation", ISOLATION)
async def test_aiokafka_reads_it(adopted: Adopted, isolation: int) -> None:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=adopted.ours.bootstrap, isolation_level=ISOLATION[isolation], auto_offset_reset="earliest",
        enable_auto_commit=False,
    )  # fmt: skip
    await consumer.start()
    try:
        for partition in (SMALL, ROLLING):
            consumer.assign([aiokafka.TopicPartition(TOPIC, partition)])
            wanted = adopted.script.seen[isolation, partition]
            assert [(await consumer.getone()).value.rstrip(b"x") for _ in wanted] == wanted
    finally:
        await consumer.stop()


@pytest.mark.parametrize("isolation", ISOLATION)
def test_java_reads_it(adopted: Adopted, isolation: int) -> None:
    wanted = adopted.script.seen[isolation, SMALL]
    said = kafka_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", adopted.ours.bootstrap,
        "--topic", TOPIC, "--partition", str(SMALL), "--offset", "earliest", "--max-messages", str(len(wanted)),
        "--isolation-level", ISOLATION[isolation],
    ).stdout  # fmt: skip
    assert said.split() == [value.decode() for value in wanted]
