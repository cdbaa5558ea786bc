"""`headrace log` on files that a broker wrote, on damaged ones, and on made-up ones."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from peers.kafka import KafkaPeer

import headrace.testing
from headrace.broker.storage.storage_format import StorageError
from headrace.cli import main
from headrace.cli.log import verifying
from headrace.client import admin, groups, reading
from headrace.client.cluster import Client
from headrace.client.membership import Member
from headrace.client.producer import Producer
from headrace.metadata.damage import metadata_remedy
from headrace.wire.records import Compression, Record, build_batch

EVENTS = {"segment.bytes": "1048576", "index.interval.bytes": "64", "retention.ms": "-1"}


def log(*arguments: str | Path | int, code: int = 0) -> Result:
    done = CliRunner().invoke(main, ["log", *map(str, arguments)])
    assert done.exit_code == code, (arguments, done.exit_code, done.output, done.exception)
    return done


def dump(*arguments: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log("dump", *arguments, "--json").stdout.splitlines()]


def fill(client: Client) -> None:
    """What the directory under test holds."""
    admin.create_topic(client, "events", partitions=1, configs=EVENTS)
    with Producer(client, compression=Compression.ZSTD) as producer:
        producer.send("events", b"v", key=b"k", headers=[("h", b"\xff")], timestamp_ms=1_700_000_000_000)
        producer.flush()
        producer.send("events", None, key=b"k", timestamp_ms=1_700_000_000_000)
    with Producer(client) as producer:
        for number in range(1500):
            producer.send_batch("events", 0, build_batch([Record(0, 1_700_000_000_001 + number, None, b"x" * 1000)]))
    member = Member(client, "readers", ["events"])
    member.poll()
    groups.commit_offsets(client, "readers", {("events", 0): 7}, member=member.membership)


@pytest.fixture(scope="session", params=["headrace", pytest.param("kafka", marks=pytest.mark.jvm)])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log directory with a topic, a group and its metadata, its broker stopped."""
    directory = tmp_path_factory.mktemp("written")
    if request.param == "kafka":
        with KafkaPeer(directory, {"offsets.topic.num.partitions": "1"}) as kafka, Client(kafka.bootstrap) as client:
            fill(client)
        return kafka.data
    with headrace.testing.broker(data=directory / "data") as ours, ours.client() as client:
        fill(client)
    return directory / "data"


@pytest.fixture
def data(written: Path, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return Path(shutil.copytree(written, tmp_path / "data"))


def test_segments_by_batch_and_by_record(written: Path) -> None:
    batches = dump(written / "events-0")
    assert {entry["kind"] for entry in batches} == {"batch"}
    assert len(batches) == 1502
    assert all(entry["crc_ok"] for entry in batches)
    assert [entry["base_offset"] for entry in batches] == list(range(1502))
    assert (batches[0]["compression"], batches[2]["compression"]) == ("zstd", "none")
    assert len({entry["file"] for entry in batches}) == 2
    first, record = dump(written / "events-0", "-r", "-n", "2")[:2]
    assert first["producer_id"] >= 0
    assert {name: record[name] for name in ("offset", "timestamp", "key", "value", "headers")} == {
        "offset": 0,
        "timestamp": 1_700_000_000_000,
        "key": "k",
        "value": "v",
        "headers": {"h": "base64:/w=="},
    }
    assert [entry["base_offset"] for entry in dump(written / "events-0", "--from", "1500")] == [1500, 1501]
    assert "batch base_offset=0" in log("dump", written / "events-0", "-n", "1").stdout


def test_indexes_point_at_batches(written: Path) -> None:
    for index in sorted((written / "events-0").glob("*.index")):
        batches = {entry["position"]: entry for entry in dump(index.with_suffix(".log"))}
        entries = dump(index)
        assert len(entries) > 100
        for entry in entries:
            batch = batches[entry["position"]]
            assert batch["base_offset"] <= entry["offset"] <= batch["last_offset"]
    for index in sorted((written / "events-0").glob("*.timeindex")):
        times = dump(index)
        assert len(times) > 100
        assert times == sorted(times, key=lambda entry: (entry["timestamp"], entry["offset"]))


def test_producers_of_a_snapshot(written: Path) -> None:
    (snapshot, *_) = sorted((written / "events-0").glob("*.snapshot"), reverse=True)
    entries = dump(snapshot)
    assert {entry["epoch"] for entry in entries} == {0}
    assert max(entry["last_offset"] for entry in entries) == int(snapshot.stem) - 1


def test_metadata_records_and_snapshots(written: Path) -> None:
    records = dump(written / "__cluster_metadata-0")
    topic = next(entry for entry in records if entry.get("type") == "TopicRecord" and entry["name"] == "events")
    partition = next(entry for entry in records if entry.get("topic_id") == topic["topic_id"] and "leader" in entry)
    assert (partition["type"], partition["partition_id"]) == ("PartitionRecord", 0)
    assert "LEADER_CHANGE" in {entry.get("control_type") for entry in records}
    bootstrap = dump(written / "bootstrap.checkpoint")
    assert {"SNAPSHOT_HEADER", "SNAPSHOT_FOOTER"} <= {entry.get("control_type") for entry in bootstrap}
    assert "metadata.version" in {entry.get("name") for entry in bootstrap}


def test_group_records(written: Path) -> None:
    records = dump(written / "__consumer_offsets-0")
    (commit,) = [entry for entry in records if entry.get("type") == "OffsetCommit"]
    assert (commit["group"], commit["topic"], commit["partition"], commit["value"]["offset"]) == (
        "readers", "events", 0, 7,
    )  # fmt: skip
    members = [entry["value"]["members"] for entry in records if entry.get("type") == "GroupMetadata"]
    (member,) = next(found for found in members if found)
    assert member["subscription"] == {"topics": ["events"]}
    assert member["assignment"] == {"partitions": ["events-0"]}
    assert "type=OffsetCommit" in log("dump", written / "__consumer_offsets-0").stdout


def test_small_files(written: Path) -> None:
    points = {
        (entry["topic"], entry["partition"]): entry["offset"]
        for entry in dump(written / "recovery-point-offset-checkpoint")
    }
    assert points["events", 0] == 1502
    assert dump(written / "events-0" / "leader-epoch-checkpoint")[0]["start_offset"] == 0
    assert "cluster.id=" in log("dump", written / "meta.properties").stdout
    assert "topic_id" in log("dump", written / "events-0" / "partition.metadata").stdout
    assert len(dump(written)) > 4


def test_what_is_no_file_of_ours(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("hello")
    assert "not a file" in log("dump", other, code=1).stderr
    assert "no file here" in log("dump", tmp_path, code=4).stderr
    for command in ("dump", "verify"):
        (line,) = log(command, tmp_path / "nothing", code=4).stderr.splitlines()
        assert line.endswith("nothing: No such file or directory")
    log("verify", tmp_path, code=4)
    log("verify", other, code=4)
    for name, content, words in (
        ("00000000000000000000.log", b"x" * 100, "magic"),
        ("00000000000000000000.index", b"x" * 7, "multiple of 8"),
        ("nonsense.index", b"", "does not begin with an offset"),
        ("leader-epoch-checkpoint", b"1\n", "version 0"),
        ("00000000000000000000.snapshot", b"\0\1\0", "not a producer snapshot"),
    ):
        (tmp_path / name).write_bytes(content)
        failed = log("dump", tmp_path / name, code=1)
        assert words in failed.stderr
        assert "Traceback" not in failed.output


def test_a_good_directory_verifies(written: Path) -> None:
    reports = json.loads(log("verify", written, "--json").stdout)
    assert all(report["ok"] for report in reports)
    (events,) = [report for report in reports if report["directory"].endswith("events-0")]
    assert (events["start"], events["end"], events["batches"], events["segments"]) == (0, 1502, 1502, 2)
    assert "events-0: ok" in log("verify", written).stdout


def corrupt(file: Path, position: int, change: Callable[[bytes], bytes], size: int = 1) -> None:
    data = bytearray(file.read_bytes())
    data[position : position + size] = change(bytes(data[position : position + size]))
    file.write_bytes(data)


def test_damage_is_found_and_cut(data: Path) -> None:
    partition = data / "events-0"
    segment = min(partition.glob("*.log"))
    target = dump(segment)[500]
    corrupt(segment, target["position"] + 90, lambda byte: bytes([byte[0] ^ 1]))
    failed = log("verify", partition, code=1)
    assert f"{segment.name} position {target['position']}, offset 500: wrong checksum" in failed.stdout
    assert f"--truncate-at 500 on {partition}" in failed.stderr
    assert "--yes" in log("verify", partition, "--truncate-at", "500", code=2).stderr
    done = log("verify", partition, "--truncate-at", "500", "-y")
    assert "ends at offset 500" in done.stderr
    assert "events-0: ok" in done.stdout
    assert [file.name for file in sorted(partition.glob("*.log"))] == [segment.name]
    points = {entry["topic"]: entry["offset"] for entry in dump(data / "recovery-point-offset-checkpoint")}
    assert points["events"] == 500
    assert not (data / ".kafka_cleanshutdown").exists()
    log("verify", data, "--truncate-at", "1", "-y", code=2)
    with headrace.testing.broker(served_by(data), data=data) as b, b.client() as client:
        assert reading.latest_offsets(client, "events") == {0: 500}
        with Producer(client) as producer:
            producer.send("events", b"more")
        assert reading.latest_offsets(client, "events") == {0: 501}


def test_a_cut_of_the_metadata_log_is_noted(data: Path) -> None:
    """A node that was cut does not vote before it has what it lacks again: one that votes alone does not start."""
    metadata = data / "__cluster_metadata-0"
    segment = max(metadata.glob("*.log"))
    target = [entry for entry in dump(segment) if entry["kind"] == "batch"][-1]
    assert "ok" in log("verify", metadata).stdout
    corrupt(segment, target["position"] + 70, lambda byte: bytes([byte[0] ^ 1]))
    failed = log("verify", metadata, code=1)
    assert "wrong checksum" in failed.stdout
    assert metadata_remedy(str(metadata), target["base_offset"]) in failed.stderr
    note, point = data / "metadata-incomplete", data / "metadata-recovery-point"
    assert not note.exists()
    log("verify", metadata, "--truncate-at", target["base_offset"], "-y")
    assert "does not vote" in note.read_text()
    for each in [each for each in (note, point) if each.exists()]:  # Kafka's directory has no point yet
        with pytest.raises(StorageError, match=f"no other node votes.*remove {point} and {note}"):
            with headrace.testing.broker(served_by(data), data=data):
                raise AssertionError("it serves what is left of its metadata")
        each.unlink()
    with headrace.testing.broker(served_by(data), data=data):
        assert point.exists()


def test_nothing_is_cut_under_a_running_broker(tmp_path: Path) -> None:
    with headrace.testing.broker(data=tmp_path / "data") as broker, broker.client() as client:
        admin.create_topic(client, "t", partitions=1)
        with Producer(client) as producer:
            producer.send("t", b"kept")
        # the lock holds against other processes
        command = [sys.executable, "-m", "headrace.cli", "log", "verify", str(tmp_path / "data" / "t-0")]
        refused = subprocess.run([*command, "--truncate-at", "0", "-y"], capture_output=True, text=True, check=False)
        assert refused.returncode == 1
        assert refused.stderr.endswith(f"a broker runs on {tmp_path / 'data'}; stop it first\n")
        assert reading.latest_offsets(client, "t") == {0: 1}
    log("verify", tmp_path / "data" / "t-0", "--truncate-at", "0", "-y")


def test_a_folder_is_known_by_its_own_name_wherever_one_stands(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data / "events-0")
    assert "events-0: ok" in log("verify", ".").stdout
    log("verify", ".", "--truncate-at", "500", "-y")
    points = {entry["topic"]: entry["offset"] for entry in dump(data / "recovery-point-offset-checkpoint")}
    assert points["events"] == 500
    monkeypatch.chdir(data / "__cluster_metadata-0")
    log("verify", ".", "--truncate-at", "0", "-y")
    assert (data / "metadata-incomplete").exists(), "it is the metadata log"


def served_by(data: Path) -> dict[str, str]:
    """Settings with which our broker takes over a directory: its node, whoever wrote it."""
    properties = dict(line.split("=", 1) for line in (data / "meta.properties").read_text().splitlines() if "=" in line)
    return {"node.id": properties["node.id"]}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-10]), "no whole batch"),
        (lambda file: corrupt(file, 0, lambda _: struct.pack(">q", 5), 8), "again"),
        (lambda file: corrupt(file, 16, lambda _: b"\1"), "no whole batch"),
    ],
)
def test_kinds_of_damage(data: Path, spoil: Callable[[Path], object], words: str) -> None:
    spoil(max((data / "events-0").glob("*.log")))
    assert words in log("verify", data / "events-0", code=1).stdout


def test_an_index_that_lies(data: Path) -> None:
    index = min((data / "events-0").glob("*.index"))
    corrupt(index, 4, lambda _: struct.pack(">i", 3), 4)
    assert "is not at position 3" in log("verify", data / "events-0", code=1).stdout
    corrupt(index, 8, lambda _: struct.pack(">i", 0), 4)
    log("verify", data / "events-0", code=1)


def test_a_count_that_lies_under_a_true_checksum(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    batch = bytearray(build_batch([Record(0, 1, None, b"a"), Record(1, 1, None, b"b")]))
    batch[57:61] = (3).to_bytes(4, "big")
    from crc32c import crc32c

    batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    (partition / "00000000000000000000.log").write_bytes(batch)
    assert "a wrong record count" in log("verify", partition, code=1).stdout


def test_cutting_below_the_log_is_refused(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    (partition / "00000000000000000010.log").write_bytes(build_batch([Record(0, 1, None, b"a")], base_offset=10))
    with pytest.raises(verifying.TruncateError, match="begins above"):
        verifying.truncate(partition, 9)
    assert verifying.truncate(partition, 11) == 11
    assert verifying.truncate(partition, 10) == 10
    assert (partition / "00000000000000000010.log").stat().st_size == 0


@pytest.mark.jvm
def test_kafka_takes_a_directory_that_was_cut(tmp_path: Path) -> None:
    settings = {"offsets.topic.num.partitions": "1"}
    with KafkaPeer(tmp_path, settings) as kafka, Client(kafka.bootstrap) as client:
        fill(client)
    done = log("verify", kafka.data / "events-0", "--truncate-at", "700", "-y")
    assert "ends at offset 700" in done.stderr
    with KafkaPeer(tmp_path, settings) as kafka, Client(kafka.bootstrap) as client:
        assert reading.latest_offsets(client, "events") == {0: 700}
        with Producer(client) as producer:
            producer.send("events", b"more")
        assert reading.latest_offsets(client, "events") == {0: 701}
    log("verify", kafka.data)
