"""Small files of a partition that cannot be read take at most that partition with them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from broker.raw import Raw, batch, create_topic, fetch, produce

from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode

GARBAGE = [b"garbage\n", b"\0" * 30, b"\xff\xfe\xfd"]


def write(raw: Raw, topic: str, partition: int) -> Any:
    return raw.ask(produce(topic, batch(b"v"), partition=partition), 9).responses[0].partition_responses[0]


def stopped(tmp_path: Path, *, clean: bool) -> Path:
    """The data of a broker with a topic of three partitions, each with one record."""
    data = tmp_path / "data"
    with running_broker(data=data) as served, Raw(served.port) as raw:
        create_topic(served.port, "t", 3)
        for partition in range(3):
            assert write(raw, "t", partition).base_offset == 0
    if not clean:
        (data / ".kafka_cleanshutdown").unlink()
    return data


@pytest.mark.parametrize("content", GARBAGE)
@pytest.mark.parametrize("clean", [True, False])
def test_damaged_leader_epochs_are_rebuilt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, clean: bool, content: bytes
) -> None:
    data = stopped(tmp_path, clean=clean)
    path = data / "t-0" / "leader-epoch-checkpoint"
    before = path.read_bytes()
    path.write_bytes(content)
    with running_broker(data=data) as served, Raw(served.port) as raw:
        assert write(raw, "t", 0).base_offset == 1
        answers = raw.ask(fetch("t", 0, (0, 1, 2)), 11).responses[0].partitions
        assert [answer.error_code for answer in answers] == [0, 0, 0]
    assert path.read_text().splitlines()[2] == before.decode().splitlines()[2]
    assert any("leader-epoch-checkpoint" in line.message for line in caplog.records)


@pytest.mark.parametrize("content", GARBAGE[:1] + GARBAGE[2:])
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_partition_metadata_takes_its_partition_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, clean: bool, content: bytes
) -> None:
    data = stopped(tmp_path, clean=clean)
    path = data / "t-0" / "partition.metadata"
    path.write_bytes(content)
    with running_broker(data=data) as served, Raw(served.port) as raw:
        for _ in range(2):
            answers = raw.ask(fetch("t", 0, (0, 1, 2), max_wait_ms=0), 11).responses[0].partitions
            assert [answer.error_code for answer in answers] == [ErrorCode.KAFKA_STORAGE_ERROR, 0, 0]
            assert write(raw, "t", 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert write(raw, "t", 1).base_offset == 1
        create_topic(served.port, "new", 2)
        assert write(raw, "new", 1).base_offset == 0
    (line,) = {line.message for line in caplog.records if "log cannot be opened partition=t-0 " in line.message}
    assert str(path) in line
    path.unlink()
    with running_broker(data=data) as served, Raw(served.port) as raw:
        assert write(raw, "t", 0).base_offset == 1, "the remedy that the line names"


def test_a_copy_whose_metadata_is_damaged_fails_no_directory(tmp_path: Path) -> None:
    homes = [tmp_path / "data", tmp_path / "other"]
    data = stopped(tmp_path, clean=True)
    settings = {"log.dirs": f"{homes[0]},{homes[1]}"}
    with running_broker(settings, data=data):
        pass
    copy = homes[1] / f"t-0.{'0' * 32}-future"
    shutil.copytree(homes[0] / "t-0", copy)
    (copy / "partition.metadata").write_bytes(b"garbage")
    with running_broker(settings, data=data) as served, Raw(served.port) as raw:
        assert write(raw, "t", 0).base_offset == 1
        create_topic(served.port, "new", 4)
        assert [write(raw, "new", partition).error_code for partition in range(4)] == [0] * 4
        assert served.call(lambda broker: len(broker.logs.online())) == 2
