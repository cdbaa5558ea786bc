"""One data directory under Apache Kafka, then under ours, then under Kafka again; and the other way round.

Each broker writes topics with all four compressions, keys, headers, tombstones, an idempotent producer, committed
offsets and altered settings; each must serve everything that the other wrote, to the byte.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer, kafka_tool, metadata_shell
from peers.link import Link
from peers.settling import settle_ports

from headrace.wire.batch import iter_headers
from headrace.wire.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GROUP = "round-trip-group"
RECORDS = 200
CLEANED = "cleaned"
CLEANER = {"log.cleaner.backoff.ms": "200"}
PATIENCE_S = 60.0
COORDINATOR_COMES = (
    KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE,
)  # fmt: skip
# The offset and the leader epoch may differ between a batch as written and as served; nothing else may.
Headers = list[tuple[str, str | bytes | None]]
Row = tuple[bytes | None, bytes | None, Headers | None]


@dataclass
class World:
    """What has been written, by whoever wrote it."""

    records: dict[tuple[str, int], list[Row]] = field(default_factory=dict)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    settings: dict[str, str] = field(default_factory=dict)
    cleaned: dict[bytes, bytes | None] = field(default_factory=dict)

    def topics(self) -> set[str]:
        return {topic for topic, _ in self.records} | ({CLEANED} if self.cleaned else set())


@contextmanager
def kafka_on(directory: Path, peer: KafkaPeer) -> Iterator[str]:
    """Apache Kafka on the directory, stopped cleanly at the end."""
    peer.start()
    try:
        yield peer.bootstrap
    finally:
        peer.stop()


@contextmanager
def ours_on(directory: Path, peer: KafkaPeer) -> Iterator[str]:
    """`headrace serve` with Kafka's own file on the directory, stopped cleanly at the end."""
    ours = HeadracePeer(directory, {}, properties=peer.write_properties(), port=peer.port)
    ours.settings = {}
    ours.start()
    try:
        yield ours.bootstrap
    finally:
        assert ours.stop() == 0


def wait(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(PATIENCE_S)


def create(bootstrap: str, world: World, *topics: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wait(admin.create_topics(list(topics)))
    for topic in topics:
        for partition in range(topic.num_partitions):
            world.records[topic.topic, partition] = []


def write(bootstrap: str, world: World, topic: str, rows: list[Row], partitions: int = 1, **settings: Any) -> None:
    """Rows in turn over the partitions, as one producer."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20, **settings})
    for number, (key, value, headers) in enumerate(rows):
        producer.produce(topic, value, key, partition=number % partitions, headers=headers)
        world.records[topic, number % partitions].append((key, value, headers))
    assert producer.flush(PATIENCE_S) == 0


def rows_of(stage: str, count: int = RECORDS) -> list[Row]:
    return [
        (b"key-%d" % (number % 7), f"{stage}-{number}-".encode() + b"x" * 50, [("stage", stage.encode()), ("n", b"")])
        for number in range(count)
    ]


def commit(bootstrap: str, world: World, topic: str, partition: int, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
            break
        except KafkaException as error:  # the coordinator's topic is being made
            assert error.args[0].retriable() or error.args[0].code() in COORDINATOR_COMES, error
            assert time.monotonic() < deadline, error
            time.sleep(0.1)
    consumer.close()
    world.committed[topic, partition] = offset


def alter(bootstrap: str, world: World, topic: str, value: str) -> None:
    entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wait(admin.incremental_alter_configs([resource]))
    world.settings[topic] = value


def first_stage(bootstrap: str, world: World) -> None:
    """Everything that a broker can hold, from nothing."""
    compacted = NewTopic("table", 1, 1, config={"cleanup.policy": "compact"})
    codecs = [NewTopic(f"codec-{codec}", 2, 1) for codec in CODECS]
    create(bootstrap, world, *codecs, compacted, NewTopic("doomed", 1, 1))
    for codec in CODECS:
        idempotent = codec == "lz4"
        write(
            bootstrap, world, f"codec-{codec}", rows_of("first"), 2,
            **{"compression.type": codec, "enable.idempotence": idempotent},
        )  # fmt: skip
    write(bootstrap, world, "table", [(b"a", b"1", None), (b"b", b"1", None), (b"a", None, None), (b"c", b"1", None)])
    commit(bootstrap, world, "codec-none", 0, 33)
    commit(bootstrap, world, "codec-gzip", 1, 7)
    alter(bootstrap, world, "codec-zstd", "123456789")
    compact(bootstrap, world, "first")


def second_stage(bootstrap: str, world: World) -> None:
    """More of it, over what the other broker wrote; a topic made, another deleted."""
    create(bootstrap, world, NewTopic("made-second", 3, 1))
    write(bootstrap, world, "made-second", rows_of("second"), 3)
    for codec in CODECS:
        write(
            bootstrap, world, f"codec-{codec}", rows_of("second"), 2,
            **{"compression.type": codec, "enable.idempotence": codec == "lz4"},
        )  # fmt: skip
    write(bootstrap, world, "table", [(b"b", None, None), (b"d", b"2", None)])
    commit(bootstrap, world, "codec-none", 0, 44)
    commit(bootstrap, world, "made-second", 2, 5)
    alter(bootstrap, world, "codec-snappy", "987654321")
    compact(bootstrap, world, "second")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wait(admin.delete_topics(["doomed"]))
    world.deleted.add("doomed")
    del world.records["doomed", 0]


def compact(bootstrap: str, world: World, stage: str) -> None:
    """Writes the same keys over and over, each record in a segment of its own, and waits until the cleaner has left the
    last of each key. One key ends in a tombstone, and one is in the active segment, which stays."""
    if not world.cleaned:
        config = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.001"}
        admin = AdminClient({"bootstrap.servers": bootstrap})
        wait(admin.create_topics([NewTopic(CLEANED, 1, 1, config=config)]))
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    start_ms = int(time.time() * 1000) - 3_600_000 + len(world.cleaned) * 100_000
    keys = [b"always", f"gone-{stage}".encode(), b"changed"] * 4
    for number, key in enumerate([*keys, f"end-{stage}".encode()]):
        value = None if number == 10 else f"{stage}-{number}".encode()
        producer.produce(CLEANED, value, key, timestamp=start_ms + number * 5_000)
        assert producer.flush(PATIENCE_S) == 0
        world.cleaned[key] = value
    deadline = time.monotonic() + PATIENCE_S
    while len(found := read_cleaned(bootstrap)) > len(world.cleaned):
        assert time.monotonic() < deadline, found
    assert dict(found) == world.cleaned


def read_cleaned(bootstrap: str) -> list[tuple[bytes, bytes | None]]:
    """All that is left of the compacted topic, in order."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    consumer.assign([TopicPartition(CLEANED, 0, 0)])
    rows: list[tuple[bytes, bytes | None]] = []
    while True:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        rows.append((message.key() or b"", message.value()))
    consumer.close()
    return rows


def verify(bootstrap: str, world: World) -> None:
    """All that was written is served, through librdkafka."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = {name for name in admin.list_topics(timeout=PATIENCE_S).topics if not name.startswith("__")}
    assert listed == world.topics()
    for (topic, partition), expected in world.records.items():
        assert read(bootstrap, topic, partition, len(expected)) == expected, f"{topic}-{partition}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    wanted = [TopicPartition(topic, partition) for topic, partition in world.committed]
    found = {(each.topic, each.partition): each.offset for each in consumer.committed(wanted, PATIENCE_S)}
    assert found == world.committed
    consumer.close()
    if world.cleaned:
        left = read_cleaned(bootstrap)
        assert len(left) == len(world.cleaned) and dict(left) == world.cleaned
    for topic, value in world.settings.items():
        resource = ConfigResource(ResourceType.TOPIC, topic)
        configs = admin.describe_configs([resource])[resource].result(PATIENCE_S)
        assert configs["retention.ms"].value == value


def read(bootstrap: str, topic: str, partition: int, count: int) -> list[Row]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0)])
    rows: list[Row] = []
    while len(rows) < count:
        messages = consumer.consume(count - len(rows), PATIENCE_S)
        assert messages, f"{topic}-{partition}: {len(rows)} of {count} records"
        for message in messages:
            assert message.error() is None, message.error()
            assert message.offset() == len(rows)
            headers = message.headers()
            assert not isinstance(headers, dict)
            rows.append((message.key(), message.value(), headers))
    consumer.close()
    return rows


def batches_on_disk(data: Path, world: World) -> dict[tuple[str, int], bytes]:
    """The record batches of each partition, as the files hold them."""
    found = {}
    for topic, partition in world.records:
        segments = sorted((data / f"{topic}-{partition}").glob("*.log"))
        assert segments, f"{topic}-{partition} has no segment"
        found[topic, partition] = b"".join(segment.read_bytes() for segment in segments)
    return found


def batches_served(port: int, topic: str, partition: int, size: int) -> bytes:
    """The record batches of a partition, as fetches bring them."""
    data = b""
    offset = 0
    with Link(port) as link:
        while len(data) < size:
            part = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
            request = FetchRequest(
                max_wait_ms=500, min_bytes=1, max_bytes=1 << 24, topics=[FetchTopic(topic=topic, partitions=[part])]
            )
            found = link.ask(request, 12).responses[0].partitions[0]
            assert found.error_code == 0
            records = bytes(found.records or b"")
            assert records, f"{topic}-{partition} ends at {offset}"
            data += records
            *_, (_, last) = iter_headers(records)
            offset = last.next_offset
    return data


def served_to_the_byte(port: int, disk: dict[tuple[str, int], bytes]) -> None:
    for (topic, partition), expected in disk.items():
        assert batches_served(port, topic, partition, len(expected)) == expected, f"{topic}-{partition}"


def dump_log_segments_reads(data: Path) -> None:
    """Kafka's own DumpLogSegments reads every segment and index and finds nothing wrong."""
    files = sorted(
        itertools.chain(
            data.glob("*-[0-9]*/*.log"), data.glob("*-[0-9]*/*.index"), data.glob("*-[0-9]*/*.timeindex"),
            data.glob("*-[0-9]*/*.snapshot"),
        )
    )  # fmt: skip
    partitions = [path for path in files if path.parent.name != "__cluster_metadata-0"]
    kept = [str(path) for path in partitions if not path.parent.name.endswith("-delete")]
    assert kept
    said = kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(kept)
    )  # fmt: skip
    for trouble in ("Mismatches in", "out of order", "isvalid: false", "Exception", "Found timestamp mismatch"):
        assert trouble not in said.stdout, said.stdout
        assert trouble not in said.stderr, said.stderr
    metadata = next(data.glob("__cluster_metadata-0/*.log"))
    said = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", str(metadata))
    assert "TOPIC_RECORD" in said.stdout


def test_kafka_then_ours_then_kafka(tmp_path: Path) -> None:
    directory, peer, world = tmp_path / "node", KafkaPeer(tmp_path / "node", CLEANER), World()
    with kafka_on(directory, peer) as bootstrap:
        first_stage(bootstrap, world)
    disk = batches_on_disk(peer.data, world)
    with ours_on(directory, peer) as bootstrap:
        served_to_the_byte(peer.port, disk)
        verify(bootstrap, world)
        second_stage(bootstrap, world)
        verify(bootstrap, world)
    dump_log_segments_reads(peer.data)
    with kafka_on(directory, peer) as bootstrap:
        verify(bootstrap, world)
        described = kafka_tool(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", bootstrap,
            "--describe", "--group", GROUP,
        ).stdout  # fmt: skip
        assert "codec-none" in described
        write(bootstrap, world, "made-second", rows_of("third"), 3)
        verify(bootstrap, world)


@pytest.mark.soak
def test_ours_then_kafka_then_ours(tmp_path: Path) -> None:
    directory, peer, world = tmp_path / "node", KafkaPeer(tmp_path / "node", CLEANER), World()
    with ours_on(directory, peer) as bootstrap:
        first_stage(bootstrap, world)
        verify(bootstrap, world)
    dump_log_segments_reads(peer.data)
    metadata_shell_opens(peer.data)
    disk = batches_on_disk(peer.data, world)
    with kafka_on(directory, peer) as bootstrap:
        served_to_the_byte(peer.port, disk)
        verify(bootstrap, world)
        second_stage(bootstrap, world)
        settle_ports(peer.port)
        verify(bootstrap, world)
    disk = batches_on_disk(peer.data, world)
    with ours_on(directory, peer) as bootstrap:
        served_to_the_byte(peer.port, disk)
        verify(bootstrap, world)
        write(bootstrap, world, "made-second", rows_of("third"), 3)
        verify(bootstrap, world)


def metadata_shell_opens(data: Path) -> None:
    """Kafka's MetadataShell opens the newest snapshot of our metadata, or the one that formatting left."""
    folder = data / "__cluster_metadata-0"
    snapshots = sorted(folder.glob("*.checkpoint")) or [data / "bootstrap.checkpoint"]
    assert "features" in metadata_shell(snapshots[-1], "ls /image")
