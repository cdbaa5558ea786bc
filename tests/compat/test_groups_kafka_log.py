"""A `__consumer_offsets` that Apache Kafka wrote: we read all of it, and would have written the same bytes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import confluent_kafka
import confluent_kafka.admin
import pytest
from peers.kafka import KafkaPeer, java, kafka_tool

from headrace.broker.coordinators.loading import read_piece
from headrace.broker.requests.pieces import at_once
from headrace.groups.consumer.records import ConsumerRecord, CurrentAssignment, Kind
from headrace.groups.modern.epochs import GroupEpoch
from headrace.groups.modern.topics import TopicInfo, Topics
from headrace.groups.records import OffsetRecord, decode, encode
from headrace.groups.settings import GroupSettings
from headrace.groups.shard import GroupShard
from headrace.log.read_results import Local
from headrace.machine.runtime import Marker
from headrace.machine.timed_steps import in_one_turn
from headrace.wire.batch import iter_headers, read_header
from headrace.wire.file_slice import FileSlice
from headrace.wire.messages.k09_offset_fetch import OffsetFetchRequestGroup
from headrace.wire.records import decode_batch
from headrace.wire.sharding import partition_of
from headrace.wire.uuids import ZERO

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

LIVELY = {"group.consumer.min.heartbeat.interval.ms": "200", "group.consumer.heartbeat.interval.ms": "200"}
"""Members hear soon of what others do."""


def consume(kafka: KafkaPeer, group: str, count: int, *, close: bool, instance: str | None = None) -> None:
    """Reads and commits with librdkafka's classic protocol."""
    settings = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **({"group.instance.id": instance} if instance else {}),
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["t"])
    deadline = time.monotonic() + 60
    while count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            count -= 1
    assert not count
    consumer.commit(asynchronous=False)
    if close or instance:
        consumer.close()


def transact(kafka: KafkaPeer, group: str, offset: int, *, commit: bool) -> None:
    """Commits an offset in a transaction, which is then committed or aborted."""
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": group}
    consumer = confluent_kafka.Consumer(settings)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": f"by-{group}", "linger.ms": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    positions = [confluent_kafka.TopicPartition("t", 0, offset)]
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 30)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)
    consumer.close()


def newer_group(kafka: KafkaPeer) -> None:
    """A member of a KIP-848 group, killed so that it stays in the log."""
    command = java(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server", kafka.bootstrap, "--topic", "t", "--group", "newer",
        "--consumer-property", "group.protocol=consumer",
        "--consumer-property", "auto.offset.reset=earliest",
        "--consumer-property", "auto.commit.interval.ms=100",
    )  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    for _ in range(10):
        process.stdout.readline()
    reader = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "newer"})
    deadline = time.monotonic() + 60
    while reader.committed([confluent_kafka.TopicPartition("t", 0)], 30)[0].offset != 10:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    reader.close()
    process.kill()
    process.wait()


def members_come_and_go(kafka: KafkaPeer) -> None:
    """A KIP-848 group in which one member gives partitions up for another, which leaves again, and one with a regex."""

    def member(group: str, *topics: str) -> confluent_kafka.Consumer:
        settings = {"bootstrap.servers": kafka.bootstrap, "group.id": group, "group.protocol": "consumer"}
        consumer = confluent_kafka.Consumer(settings)
        consumer.subscribe(list(topics))
        return consumer

    def until(counts: list[int], *members: confluent_kafka.Consumer) -> None:
        deadline = time.monotonic() + 60
        while [len(each.assignment()) for each in members] != counts:
            assert time.monotonic() < deadline
            for each in members:
                each.poll(0.1)

    stays = member("moving", "t", "p")
    until([5], stays)
    comes = member("moving", "t", "p")
    until([3, 2], stays, comes)
    comes.close()
    until([5], stays)
    stays.close()
    pattern = member("patterns", "^p.*")
    until([4], pattern)
    pattern.close()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The log directory that Kafka left."""
    with KafkaPeer(tmp_path_factory.mktemp("kafka"), LIVELY) as kafka:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([confluent_kafka.admin.NewTopic("t", 1, 1)])["t"].result(60)
        admin.create_topics([confluent_kafka.admin.NewTopic("p", 4, 1)])["p"].result(60)
        producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap})
        for number in range(10):
            producer.produce("t", str(number))
        producer.flush(30)
        consume(kafka, "left", 5, close=True)
        consume(kafka, "static", 6, close=True, instance="one")
        kafka_tool(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            *("--bootstrap-server", kafka.bootstrap, "--reset-offsets", "--group", "simple"),
            *("--topic", "t:0", "--to-offset", "3", "--execute"),
        )
        transact(kafka, "transacted", 4, commit=True)
        transact(kafka, "aborted", 5, commit=False)
        members_come_and_go(kafka)
        newer_group(kafka)
        kafka.stop()
        yield kafka.data


def records_of(data: Path) -> Iterator[tuple[int, bytes, bytes | None]]:
    """(partition, key, value) of every record of a group coordinator."""
    for directory in sorted(data.glob("__consumer_offsets-*")):
        for segment in sorted(directory.glob("*.log")):
            buffer = segment.read_bytes()
            for at, header in iter_headers(buffer):
                if header.is_control:
                    continue
                for record in decode_batch(buffer, at):
                    value = None if record.value is None else bytes(record.value)
                    yield int(directory.name.rpartition("-")[2]), bytes(record.key or b""), value


class Segment:
    """One segment file, read as the coordinator reads a log."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        self.reader = self
        self.log_start_offset = 0
        self.end_offset = max((header.next_offset for _, header in iter_headers(self.data)), default=0)

    def read(self, offset: int, *, max_bytes: int, max_offset: int, min_one: bool) -> Local:
        assert min_one and max_offset == self.end_offset
        at = next(at for at, header in iter_headers(self.data) if header.next_offset > offset)
        size = max(max_bytes, read_header(self.data, at).size)
        part = self.data[at : at + size]
        file = SimpleNamespace(read=lambda position, count: part[position : position + count])
        return Local(FileSlice(file, 0, len(part)), len(part))


def test_every_record_is_written_as_kafka_writes_it(data: Path) -> None:
    seen = set()
    for partition, key, value in records_of(data):
        record = decode(key, value)
        assert record is not None
        assert partition == partition_of(record.group_id, 50)
        again = encode(record)
        if isinstance(record, ConsumerRecord) and of_several_topics(record):
            # Kafka has them in the order of a hash table.
            assert decode(*again) == record
            again = again[0], value if sorted(again[1] or b"") == sorted(value or b"") else again[1]
        assert again == (key, value)
        seen.add(type(record).__name__)
    assert seen == {"OffsetRecord", "GroupRecord", "ConsumerRecord"}


def of_several_topics(record: ConsumerRecord) -> bool:
    value = record.value
    if isinstance(value, CurrentAssignment):
        return len(value.assigned) > 1 or len(value.revoking) > 1
    return isinstance(value, Mapping) and len(value) > 1


def test_its_groups_stand_up_again(data: Path) -> None:
    shard = GroupShard(GroupSettings(), lambda: "id")
    segments = [Segment(each / "00000000000000000000.log") for each in sorted(data.glob("__consumer_offsets-*"))]

    for segment in segments:
        offset = 0
        while offset < segment.end_offset:
            piece = read_piece(segment, offset, shard.decode)  # type: ignore[arg-type]
            for entry in piece.entries:
                if isinstance(entry, Marker):
                    shard.apply_marker(entry.producer_id, entry.committed)
                else:
                    shard.apply(entry.record, entry.log_offset, entry.producer_id)
            offset = piece.next_offset
    in_one_turn(shard.starting(0), 0)
    assert not shard.state.open_transactions.latest
    states = {group.group_id: (group.group_state, group.group_type) for group in shard.list_groups((), ())}
    assert states == {
        "left": ("Empty", "classic"),
        "newer": ("Stable", "consumer"),
        "moving": ("Empty", "consumer"),
        "patterns": ("Empty", "consumer"),
        "simple": ("Empty", "classic"),
        "static": ("Stable", "classic"),
        "aborted": ("Empty", "classic"),
        "transacted": ("Empty", "classic"),
    }
    described = shard.describe_group("static")
    assert [member.group_instance_id for member in described.members] == ["one"]
    positions = {}
    for group in states:
        request = OffsetFetchRequestGroup(group_id=group, topics=None)
        found = at_once(shard.fetching(request, require_stable=True))
        positions[group] = [p.committed_offset for topic in found.topics for p in topic.partitions]
    found_of = {group: offsets for group, offsets in positions.items() if offsets}
    assert found_of == {"left": [5], "newer": [10], "simple": [3], "static": [6], "transacted": [4]}


def test_every_kind_of_record_is_there(data: Path) -> None:
    """What Kafka writes of consumer groups, removed or not: partition metadata alone are of older releases."""
    seen = set()
    for _, key, value in records_of(data):
        record = decode(key, value)
        if isinstance(record, ConsumerRecord):
            seen.add((record.kind, value is None))
    for kind in Kind:
        assert (kind, False) in seen or kind is Kind.PARTITION_METADATA
    removed = {kind for kind, is_removed in seen if is_removed}
    assert removed >= {Kind.MEMBER, Kind.TARGET, Kind.CURRENT, Kind.REGEX}


def test_the_hash_of_its_topics_is_ours(data: Path) -> None:
    """Otherwise each group would rebalance once when a broker of the other kind coordinates it."""
    topic_ids, hashes = {}, set()
    for _, key, value in records_of(data):
        record = decode(key, value)
        if isinstance(record, OffsetRecord) and record.offset is not None and record.offset.topic_id != ZERO:
            topic_ids[record.topic] = record.offset.topic_id
        if isinstance(record, ConsumerRecord) and record.group_id == "newer" and isinstance(record.value, GroupEpoch):
            hashes.add(record.value.metadata_hash)
    assert hashes == {Topics([TopicInfo("t", topic_ids["t"], 1)]).hash(["t"])}
