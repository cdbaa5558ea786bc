"""Our metadata files beside Apache Kafka's: formats to the byte, its log and snapshots re-encoded to the byte."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker.controllers import controller_of, started
from peers.kafka import KafkaPeer, java, kafka_tool, metadata_shell

from headrace.broker.quorum.driver import QuorumDriver
from headrace.broker.quorum.metadata_start import deregister
from headrace.broker.quorum.port.local_controller import LocalController
from headrace.broker.storage.storage_format import FormatOptions, open_storage, parse_snapshot_name, snapshot_bytes
from headrace.config import BrokerConfig
from headrace.controller import placement
from headrace.controller.partitions import decide_create_partitions
from headrace.env.posix import PosixEnvironment
from headrace.env.posix_node import PosixNode
from headrace.machine import Decision
from headrace.metadata import bootstrap, levels
from headrace.metadata.framing import decode_record, encode_record, record_version
from headrace.metadata.image import ClusterImage
from headrace.metadata.meta_properties import decode_meta_properties
from headrace.metadata.replay import Replay
from headrace.metadata.snapshot import image_records, partition_record
from headrace.raft import control
from headrace.raft.control import VoterEndpoint
from headrace.wire.batch import iter_headers
from headrace.wire.messages import metadata_records as mr
from headrace.wire.messages.k37_create_partitions import CreatePartitionsTopic
from headrace.wire.records import decode_batch

pytestmark = pytest.mark.jvm

CLUSTER = "dB0nRrLVQ-STq7Jo1r3ZAA"
DUMP = ("org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files")


def without_times(data: bytes) -> bytes:
    """A log or snapshot with checksums, timestamps and the time in a snapshot's header blanked."""
    out = bytearray(data)
    for at, header in iter_headers(data):
        out[at + 17 : at + 21] = bytes(4)
        out[at + 27 : at + 43] = bytes(16)
        first = decode_batch(data, at)[0]
        if header.is_control and first.key == control.control_key(control.ControlType.SNAPSHOT_HEADER):
            assert first.value is not None
            inside = data.index(first.value, at + 61)
            out[inside + 2 : inside + 10] = bytes(8)
    return bytes(out)


@pytest.mark.parametrize("dynamic", [True, False], ids=["standalone", "static voters"])
def test_a_fresh_format_is_kafkas_to_the_byte(tmp_path: Path, dynamic: bool) -> None:
    theirs, ours, properties = tmp_path / "theirs", tmp_path / "ours", tmp_path / "server.properties"
    quorum = "bootstrap.servers=" if dynamic else "voters=1@"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
        f"controller.quorum.{quorum}127.0.0.1:9093\nlog.dirs={theirs}\n"
    )
    flags = ("--standalone",) if dynamic else ()
    kafka_tool("kafka.tools.StorageTool", "format", *flags, "-t", CLUSTER, "-c", str(properties))
    written = decode_meta_properties((theirs / "meta.properties").read_bytes())
    env = PosixEnvironment()
    options = FormatOptions(CLUSTER, 1, VoterEndpoint("CONTROLLER", "127.0.0.1", 9093), dynamic=dynamic)
    open_storage(env.disk, [str(ours)], str(ours), options, lambda: written.directory_id, env.clock.now_ms())
    files = sorted(path.relative_to(theirs) for path in theirs.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(ours) for path in ours.rglob("*") if path.is_file())
    for name in files:
        their, our = (theirs / name).read_bytes(), (ours / name).read_bytes()
        if name.name == "meta.properties":
            assert our.splitlines()[2:] == their.splitlines()[2:]
        else:
            assert without_times(our) == without_times(their), name


@pytest.fixture(scope="module")
def kafka_wrote(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which Apache Kafka made, altered and deleted topics, and took snapshots on the way."""
    home = tmp_path_factory.mktemp("kafka")
    settings = {"metadata.log.max.record.bytes.between.snapshots": "1500"}
    with KafkaPeer(home, settings) as peer:
        admin: Any = pytest.importorskip("confluent_kafka.admin")
        client = admin.AdminClient({"bootstrap.servers": peer.bootstrap})
        topics = [admin.NewTopic(f"t.{i}", i + 1, 1, config={"retention.ms": "100000"}) for i in range(8)]
        done = [*client.create_topics(topics).values()]
        [future.result() for future in done]
        [future.result() for future in client.delete_topics(["t.3"]).values()]
        [future.result() for future in client.create_partitions([admin.NewPartitions("t.1", 5)]).values()]
        user = ("--entity-type", "users", "--entity-name", "u", "--add-config", "producer_byte_rate=1024")
        kafka_tool("kafka.admin.ConfigCommand", "--bootstrap-server", peer.bootstrap, "--alter", *user)
    return peer.data


def replayed(data: bytes, end: int, *, check: bool) -> ClusterImage:
    replay, level = Replay(ClusterImage()), 0
    for at, header in iter_headers(data):
        if header.base_offset >= end:
            break
        for record in decode_batch(data, at):
            assert record.value is not None
            if header.is_control:
                assert record.key is not None
                message = control.decode_control(record.key, record.value)
                assert message is not None
                assert control.encode_control(message) == (record.key, record.value)
                continue
            decoded = decode_record(record.value)
            if isinstance(decoded, mr.FeatureLevelRecord) and decoded.name == "metadata.version":
                level = decoded.feature_level
            if check:
                assert encode_record(decoded, record_version(decoded, level)) == record.value, decoded
            replay.apply(decoded)
        replay.advance(
            offset=header.last_offset, epoch=header.partition_leader_epoch, timestamp_ms=header.max_timestamp
        )
    return replay.finish()


def canonical(value: bytes) -> bytes:
    """Kafka writes the features and listeners of a node in the order of a hash table."""
    record = decode_record(value)
    if isinstance(record, mr.RegisterBrokerRecord | mr.RegisterControllerRecord):
        record.features.sort(key=lambda feature: feature.name)
        record.end_points.sort(key=lambda endpoint: endpoint.name)
    return encode_record(record, record_version(record, 30))


def test_kafkas_records_and_snapshots_are_ours_to_the_byte(kafka_wrote: Path) -> None:
    directory = kafka_wrote / "__cluster_metadata-0"
    log = (directory / f"{0:020d}.log").read_bytes()
    snapshots = [name for path in directory.glob("*.checkpoint") if (name := parse_snapshot_name(path.name))]
    assert snapshots
    for end, epoch in snapshots:
        data = (directory / f"{end:020d}-{epoch:010d}.checkpoint").read_bytes()
        image = replayed(log, end, check=True)
        assert (image.offset, image.epoch) == (end - 1, epoch)
        theirs = [
            record.value or b""
            for at, header in iter_headers(data)
            if not header.is_control
            for record in decode_batch(data, at)
        ]
        level = image.features.metadata_version
        ours = [encode_record(record, record_version(record, level)) for record in image_records(image)]
        assert sorted(map(canonical, ours)) == sorted(map(canonical, theirs))
        header = decode_batch(data, 0)[0]
        assert header.value is not None
        assert int.from_bytes(header.value[2:10], "big") == image.timestamp_ms


def settings_of(directory: Path) -> BrokerConfig:
    return BrokerConfig.load(
        {
            "log.dirs": str(directory),
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "process.roles": "broker,controller",
        }
    )


@pytest.fixture
async def node() -> AsyncIterator[PosixNode]:
    node = PosixNode()
    yield node
    await node.close()


async def served(node: PosixNode, directory: Path) -> tuple[QuorumDriver, LocalController]:
    config = settings_of(directory)
    quorum, _ = await started(node, config)
    return quorum, controller_of(node, config, quorum)


async def test_kafka_starts_on_ours_after_ours_started_on_kafkas(
    node: PosixNode, kafka_wrote: Path, tmp_path: Path
) -> None:
    home = tmp_path / "copy"
    shutil.copytree(kafka_wrote.parent, home)
    data = home / kafka_wrote.name
    quorum, controller = await served(node, data)
    partitions = {topic.name: len(topic.partitions) for topic in quorum.image.topics}
    assert partitions == {"t.0": 1, "t.1": 5, "t.2": 3, "t.4": 5, "t.5": 6, "t.6": 7, "t.7": 8}
    assert all(p.leader == 1 and p.isr == (1,) for topic in quorum.image.topics for p in topic.partitions)
    assert quorum.image.configs.topic_overrides("t.5") == {"retention.ms": "100000"}
    assert quorum.kraft_version == 0
    topic_id = bytes(15) + b"\x21"
    directory_id = quorum.image.brokers[1].directories[0]
    new = [
        mr.TopicRecord(name="ours", topic_id=topic_id),
        mr.PartitionRecord(
            partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0,
            directories=[directory_id],
        ),
    ]  # fmt: skip
    await quorum.submit(lambda _: Decision(None, new))
    await quorum.snapshot()
    await deregister(controller, 1)
    await quorum.close()
    with KafkaPeer(home) as peer:
        described = kafka_tool(
            "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", peer.bootstrap, "--describe"
        ).stdout
        leaders = re.findall(r"Topic: (\S+)\s+Partition: (\d+)\s+Leader: (\d+)", described)
        assert len(leaders) == sum(partitions.values()) + 1
        assert {leader for _, _, leader in leaders} == {"1"}
        assert ("ours", "0", "1") in leaders
    again, _ = await served(node, data)
    assert again.image.topics.by_name("ours") is not None
    assert [key for key, _ in again.image.kept.quotas] != []
    await again.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "release", ["3.3-IV3", *(pytest.param(each, marks=pytest.mark.soak) for each in ("3.6-IV2", "3.9-IV0", "4.0-IV3"))]
)
async def test_an_older_level_is_kept_by_both(node: PosixNode, tmp_path: Path, release: str) -> None:
    """Kafka makes a topic at an older metadata.version, ours adds partitions and another topic, Kafka goes on."""
    peer = KafkaPeer(tmp_path)
    properties = peer.write_properties()
    kafka_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER, "-r", release, "-c", str(properties))

    def topics(*arguments: str) -> str:
        command = ("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", peer.bootstrap)
        return str(kafka_tool(*command, *arguments).stdout)

    with peer:
        topics("--create", "--topic", "theirs", "--partitions", "2")
    quorum, controller = await served(node, peer.data)
    level = quorum.image.features.metadata_version
    assert levels.metadata_version_name(level) == release
    await quorum.submit(lambda image: decide_create_partitions(image, [CreatePartitionsTopic("theirs", 4, None)]))
    topic_id = bytes(15) + b"\x21"
    placed = placement.new_partition(quorum.image, 0, [1])
    assert placed is not None
    records = [mr.TopicRecord(name="ours", topic_id=topic_id), partition_record(topic_id, placed, level)]
    await quorum.submit(lambda _: Decision(None, records))
    await quorum.snapshot()
    await deregister(controller, 1)
    await quorum.close()
    with peer:
        described = topics("--describe")
        assert re.findall(r"Topic: theirs\s+Partition: (\d+)\s+Leader: 1", described) == ["0", "1", "2", "3"]
        assert re.findall(r"Topic: ours\s+Partition: (\d+)\s+Leader: 1", described) == ["0"]
        topics("--create", "--topic", "again")
    last, _ = await served(node, peer.data)
    assert [topic.name for topic in last.image.topics] == ["again", "ours", "theirs"]
    assert all(p.leader == 1 for topic in last.image.topics for p in topic.partitions)
    await last.close()


ABILITIES = (
    levels.supports_migration,
    levels.supports_transactions,
    levels.supports_controller_registration,
    levels.supports_directories,
    levels.supports_eligible_leaders,
    levels.supports_cordoned_directories,
)
"""In the order in which `EveryLevel.java` says them."""


@pytest.fixture(scope="module")
def every_level(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[str]]]:
    """Log directories that Kafka formatted, one a level and named after it, and what it says of each level."""
    home = tmp_path_factory.mktemp("levels")
    program = Path(__file__).parents[1] / "peers" / "EveryLevel.java"
    command = java(str(program), str(home), CLUSTER)
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=120).stdout
    return home, [line.split() for line in said.splitlines()]


def test_what_a_level_allows_is_what_it_allows_in_kafka(every_level: tuple[Path, list[list[str]]]) -> None:
    assert {int(number): name for number, name, *_ in every_level[1]} == levels.METADATA_VERSION_NAMES
    kinds = (mr.RegisterBrokerRecord(), mr.PartitionRecord(), mr.PartitionChangeRecord())
    for number, name, *said in every_level[1]:
        ours = [record_version(record, int(number)) for record in kinds]
        ours += [int(able(int(number))) for able in ABILITIES]
        assert ours == [int(word) for word in said], name


async def test_every_level_that_kafka_formats_is_read_kept_and_read_by_kafka(
    node: PosixNode,
    every_level: tuple[Path, list[list[str]]],
) -> None:
    """Ours registers, makes a topic and takes a snapshot at each; Kafka's tool reads the logs and snapshots again."""
    home, said = every_level
    files: list[Path] = []
    expected: list[str] = []
    for number, name, broker_version, partition_version, *_ in said:
        level, directory = int(number), home / name
        defaults = bootstrap.default_levels(level)
        fresh = [encode_record(record, 0) for record in bootstrap.bootstrap_records(defaults)]
        ours = snapshot_bytes([control.snapshot_header(0)], fresh, epoch=0, now_ms=0)
        assert without_times(ours) == without_times((directory / "bootstrap.checkpoint").read_bytes()), name
        quorum, _ = await served(node, directory)
        assert dict(quorum.image.features.levels) == defaults, name
        placed = placement.new_partition(quorum.image, 0, [1])
        assert placed is not None
        topic_id = bytes(15) + b"\x21"
        records = [mr.TopicRecord(name=f"at.{name}", topic_id=topic_id), partition_record(topic_id, placed, level)]
        decision: Decision[None] = Decision(None, records)
        await quorum.submit(lambda _, decision=decision: decision)  # type: ignore[misc]  # a lambda has no types
        metadata = directory / "__cluster_metadata-0"
        # what a snapshot covers goes
        log = shutil.copytree(metadata, home / "logs" / name / metadata.name) / f"{0:020d}.log"
        await quorum.snapshot()
        await quorum.close()
        files += [log, max(metadata.glob("*.checkpoint"))]
        kinds = [("REGISTER_BROKER", broker_version), ("TOPIC", "0"), ("PARTITION", partition_version)]
        expected += [f"{name} {kind}_RECORD {version}" for kind, version in kinds]
    dumped = kafka_tool(*DUMP, ",".join(map(str, files))).stdout
    found: dict[str, list[str]] = {"log": [], "checkpoint": []}
    name = suffix = ""
    for line in dumped.splitlines():
        if line.startswith("Dumping "):
            path = Path(line.removeprefix("Dumping "))
            name, suffix = path.parts[-3], path.suffix[1:]
        if match := re.search(r'"type":"(REGISTER_BROKER|TOPIC|PARTITION)_RECORD","version":(\d+)', line):
            found[suffix].append(f"{name} {match[1]}_RECORD {match[2]}")
    assert found["log"] == expected
    assert sorted(found["checkpoint"]) == sorted(expected)
    assert "corrupt" not in dumped.lower()
    for number, name, *_ in said:
        again, _ = await served(node, home / name)
        assert again.image.features.metadata_version == int(number)
        assert [topic.name for topic in again.image.topics] == [f"at.{name}"]
        await again.close()


async def test_kafkas_tools_read_our_log_and_snapshot(node: PosixNode, tmp_path: Path) -> None:
    quorum, _ = await served(node, tmp_path / "data")
    records: list[Any] = [mr.TopicRecord(name="mine", topic_id=bytes(15) + b"\x21")]
    records += [mr.ConfigRecord(resource_type=2, resource_name="mine", name="retention.ms", value="1")]
    await quorum.submit(lambda _: Decision(None, records))
    log = tmp_path / "data" / "__cluster_metadata-0" / f"{0:020d}.log"
    dumped = kafka_tool(*DUMP, str(log)).stdout
    assert '"type":"TOPIC_RECORD","version":0,"data":{"name":"mine"' in dumped
    assert 'LeaderChange: {"version":0,"leaderId":1' in dumped
    await quorum.snapshot()
    path = max((tmp_path / "data" / "__cluster_metadata-0").glob("*.checkpoint"))
    assert '"name":"mine"' in kafka_tool(*DUMP, str(path)).stdout
    assert "mine" in metadata_shell(path, "ls /image/topics/byName").replace("topics/byName", "")
    await quorum.close()
