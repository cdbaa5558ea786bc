"""A broker's life: how it starts and ends, failing and full disks, compaction, the controller listener."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from broker.raw import Raw, batch, create_topic, fetch, produce

from headrace.broker.coordinators.coordinator import Coordinator
from headrace.broker.coordinators.door import LedPartition
from headrace.env.posix import PosixFile
from headrace.log.manager import CheckpointError, LogDirLocked
from headrace.machine.runtime import ShardRuntime
from headrace.testing.running import broker as running_broker
from headrace.wire.batch import iter_headers
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k03_metadata import MetadataRequest
from headrace.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from headrace.wire.messages.k18_api_versions import ApiVersionsRequest
from headrace.wire.messages.k60_describe_cluster import DescribeClusterRequest


def append(raw: Raw, topic: str, *values: bytes, partition: int = 0) -> Any:
    return raw.ask(produce(topic, batch(*values), partition=partition), 9).responses[0].partition_responses[0]


def offsets(raw: Raw, topic: str, partition: int = 0) -> list[int]:
    answer = raw.ask(fetch(topic, 0, (partition,), max_wait_ms=0), 11).responses[0].partitions[0]
    assert answer.error_code == 0
    return [header.base_offset for _, header in iter_headers(bytes(answer.records))]


def test_what_was_written_is_there_after_a_clean_stop(tmp_path: Path) -> None:
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        create_topic(served.port, "kept", 3)
        for i in range(5):
            assert append(raw, "kept", b"%d" % i, partition=1).base_offset == i
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        assert offsets(raw, "kept", 1) == [0, 1, 2, 3, 4]
        assert append(raw, "kept", b"next", partition=1).base_offset == 5


def test_a_damaged_end_after_a_clean_stop_is_named_and_takes_only_its_partition(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        create_topic(served.port, "kept", 2)
        for partition in range(2):
            for i in range(3):
                append(raw, "kept", b"%d" % i, partition=partition)
    file = tmp_path / "kept-0/00000000000000000000.log"
    size = file.stat().st_size
    with file.open("r+b") as damaged:
        damaged.seek(size * 2 // 3 + 8)  # the length of the last of three
        damaged.write(b"\0\1")
    asked = [fetch("kept", 0, (partition,), max_wait_ms=0) for partition in range(2)]
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        refused, answered = (raw.ask(each, 11).responses[0].partitions[0] for each in asked)
        assert (refused.error_code, refused.high_watermark) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert (answered.error_code, answered.high_watermark) == (ErrorCode.NONE, 3)
    (line,) = [line.message for line in caplog.records if "kept-0" in line.message]
    assert line.startswith(
        f'log cannot be opened partition=kept-0 why="{file} is damaged at byte {size * 2 // 3} (offset 2): '
    )

    (tmp_path / "recovery-point-offset-checkpoint").unlink()  # nothing says that it was safe: it is cut
    caplog.clear()
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        assert offsets(raw, "kept") == [0, 1]
        assert append(raw, "kept", b"new").base_offset == 2
    (line,) = [line.message for line in caplog.records if "kept-0" in line.message]
    assert line.startswith(f"log cut partition=kept-0 offset=2 bytes={size // 3} file={file} why=")


def test_a_second_broker_on_a_directory_is_refused(tmp_path: Path) -> None:
    with running_broker(data=tmp_path), pytest.raises(LogDirLocked), running_broker(data=tmp_path):
        pass
    with running_broker(data=tmp_path):
        pass


def test_a_taken_port_is_said_and_nothing_stays_locked(tmp_path: Path) -> None:
    with running_broker() as first:
        taken = {"listeners": f"PLAINTEXT://127.0.0.1:{first.port}"}
        with pytest.raises(OSError, match="in use"), running_broker(taken, data=tmp_path):
            pass
    with running_broker(data=tmp_path):
        pass


def test_a_start_that_fails_late_lets_go_of_the_metadata_directory_too(tmp_path: Path) -> None:
    apart = {"metadata.log.dir": str(tmp_path / "metadata")}
    data = tmp_path / "data"
    with running_broker(apart, data=data) as served:
        create_topic(served.port, "t")
    (data / "recovery-point-offset-checkpoint").write_text("nonsense")
    with pytest.raises(CheckpointError):
        with running_broker(apart, data=data):
            pass
    (data / "recovery-point-offset-checkpoint").unlink()
    with running_broker(apart, data=data):
        pass


def test_a_process_serves_until_sigterm(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headrace.cli", "serve", "--data", str(tmp_path), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        port = int(line.rstrip().rpartition(":")[2])
        create_topic(port, "t")
        with Raw(port) as raw:
            assert append(raw, "t", b"x").base_offset == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_process_that_cannot_start_says_why_in_one_line(tmp_path: Path) -> None:
    with running_broker(data=tmp_path):
        command = [sys.executable, "-m", "headrace.cli", "serve", "--data", str(tmp_path), "--listen", "127.0.0.1:0"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr
    assert "in use" in ended.stderr.strip().splitlines()[-1]


def test_the_controller_listener_serves_its_own_list() -> None:
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "advertised.listeners": "PLAINTEXT://127.0.0.1:0",
    }
    ask = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    with running_broker(settings) as served:
        ports = served.call(lambda broker: {opened.name: opened.port for opened in broker.listeners})
        keys = {}
        for name, port in ports.items():
            with Raw(port) as raw:
                keys[name] = {api.api_key for api in raw.ask(ask, 4).api_keys}
        assert {0, 3, 11, 18} <= keys["PLAINTEXT"]
        assert {18, 19, 55, 60} <= keys["CONTROLLER"]
        assert not keys["CONTROLLER"] & {0, 3, 11}
        with Raw(ports["CONTROLLER"]) as raw:
            raw.send(MetadataRequest(), 8)
            assert raw.is_closed()
        with Raw(ports["CONTROLLER"]) as raw:
            assert raw.ask(DescribeClusterRequest(), 1).error_code in (0, ErrorCode.MISMATCHED_ENDPOINT_TYPE)


class FailingWrites:
    """Makes appends to files below a path fail with one errno, while it is on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, below: str, number: int) -> None:
        self.on = False
        real = PosixFile.append

        def append_or_fail(file: PosixFile, parts: Any) -> int:
            if self.on and file.path.startswith(below):
                raise OSError(number, os.strerror(number), file.path)
            return real(file, parts)

        monkeypatch.setattr(PosixFile, "append", append_or_fail)


def test_a_full_disk_refuses_writes_and_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = FailingWrites(monkeypatch, str(tmp_path / "t-0"), errno.ENOSPC)
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        create_topic(served.port, "t")
        assert append(raw, "t", b"before").base_offset == 0
        full.on = True
        for _ in range(3):
            assert append(raw, "t", b"lost").error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert offsets(raw, "t") == [0]
        full.on = False
        assert append(raw, "t", b"after").base_offset == 1
        assert offsets(raw, "t") == [0, 1]


def test_a_failed_directory_takes_only_its_own_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "one", tmp_path / "two"
    settings = {"log.dirs": f"{first},{second}"}
    with running_broker(settings, data=tmp_path) as served, Raw(served.port) as raw:
        create_topic(served.port, "t", 4)
        homes = served.call(
            lambda broker: {i: broker.replicas.by_name["t", i].log.directory.rpartition("/")[0] for i in range(4)}
        )
        assert set(homes.values()) == {str(first), str(second)}
        broken = FailingWrites(monkeypatch, str(second), errno.EIO)
        broken.on = True
        dead = [i for i, home in homes.items() if home == str(second)]
        alive = [i for i, home in homes.items() if home == str(first)]
        assert append(raw, "t", b"x", partition=dead[0]).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        for partition in dead:
            assert append(raw, "t", b"x", partition=partition).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            answer = raw.ask(fetch("t", 0, (partition,)), 11).responses[0].partitions[0]
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        for partition in alive:
            assert append(raw, "t", b"x", partition=partition).error_code == 0


@pytest.mark.parametrize("flush", ["none", "before-reply"])
def test_a_directory_fails_in_the_middle_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: str) -> None:
    """What came together is answered in its order: the batches of the directory that works are in, no other is."""
    first, second = tmp_path / "one", tmp_path / "two"
    settings = {"log.dirs": f"{first},{second}", "acks.flush": flush}
    with running_broker(settings, data=tmp_path) as served, Raw(served.port) as raw, Raw(served.port) as other:
        create_topic(served.port, "t", 6)
        homes = served.call(
            lambda broker: {i: broker.replicas.by_name["t", i].log.directory.rpartition("/")[0] for i in range(6)}
        )
        alive = [i for i, home in homes.items() if home == str(first)]
        dead = [i for i, home in homes.items() if home == str(second)]
        logs = served.call(lambda broker: {i: broker.replicas.by_name["t", i].log for i in range(6)})
        # One write fails; those that follow in the same directory would not.
        FailingWrites(monkeypatch, str(second / f"t-{dead[0]}"), errno.EIO).on = True
        order = [alive[0], dead[0], alive[1], dead[1], alive[0], dead[0], alive[1]]
        raw.socket.sendall(b"".join(raw.frame(produce("t", batch(b"x"), partition=i), 9) for i in order))
        answers = []
        for number in range(len(order)):
            correlation_id, response = raw.receive(0, 9)
            assert correlation_id == number + 1
            answers.append(response.responses[0].partition_responses[0])
        assert [answer.index for answer in answers] == order
        lost = (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        expected = [(0, 0), lost, (0, 0), lost, (0, 1), lost, (0, 1)]
        assert [(answer.error_code, answer.base_offset) for answer in answers] == expected
        assert [logs[i].end_offset for i in dead] == [0] * len(dead)
        for connection, offset in ((other, 2), (raw, 3)):
            assert append(connection, "t", b"x", partition=alive[0]).base_offset == offset
            assert append(connection, "t", b"x", partition=dead[1]).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_waiting_fetches_hear_of_a_deleted_topic(tmp_path: Path) -> None:
    from headrace.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState

    with running_broker() as served, Raw(served.port) as raw, Raw(served.port) as admin:
        create_topic(served.port, "doomed")
        raw.send(fetch("doomed", 0, max_wait_ms=8000), 11)
        time.sleep(0.1)
        before = time.monotonic()
        deleted = admin.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="doomed")], timeout_ms=5000), 6)
        assert deleted.responses[0].error_code == 0
        answer = raw.receive(1, 11)[1].responses[0].partitions[0]
        assert time.monotonic() - before < 6
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert append(admin, "doomed", b"x").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.slow
def test_a_compacted_topic_is_compacted_in_the_background(tmp_path: Path) -> None:
    from headrace.wire.records import Record, build_batch

    with running_broker({"log.cleaner.backoff.ms": "100"}, data=tmp_path) as served, Raw(served.port) as raw:
        configs = {"cleanup_policy": "compact", "segment_bytes": "1048576", "min_cleanable_dirty_ratio": "0.01"}
        create_topic(served.port, "latest", 1, **configs)
        now_ms = int(time.time() * 1000)
        for i in range(30):
            records = [Record(0, now_ms, b"key", b"%d" % i * 50_000)]
            answer = raw.ask(produce("latest", build_batch(records)), 9).responses[0].partition_responses[0]
            assert answer.error_code == 0
        deadline = time.monotonic() + 60
        while offsets(raw, "latest")[0] < 10:
            assert time.monotonic() < deadline, offsets(raw, "latest")
            time.sleep(0.1)
        answer = raw.ask(fetch("latest", 29), 11).responses[0].partitions[0]
        assert [header.base_offset for _, header in iter_headers(bytes(answer.records))] == [29]


def test_cold_data_is_read_ahead_on_a_worker(tmp_path: Path) -> None:
    """What is not in the page cache is read there by a worker before it is sent, whole and in order."""
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        create_topic(served.port, "cold", max_message_bytes="2000000")
        values = [os.urandom(900_000) for _ in range(8)] + [os.urandom(5_000) for _ in range(8)]
        for value in values:
            assert append(raw, "cold", value).error_code == 0
        segment = tmp_path / "cold-0" / "00000000000000000000.log"
        with segment.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        request = fetch("cold", 0, partition_max_bytes=1 << 24, max_bytes=1 << 24)
        records = bytes(raw.ask(request, 11).responses[0].partitions[0].records)
        assert records == segment.read_bytes()
        assert served.call(lambda broker: broker.metrics.counter("fetch.cold_reads").value) > 0


def test_where_cold_data_lies_is_looked_up_on_a_worker(tmp_path: Path) -> None:
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        create_topic(served.port, "cold")
        for _ in range(40):
            assert append(raw, "cold", os.urandom(20_000)).error_code == 0
    segment = tmp_path / "cold-0" / "00000000000000000000.log"
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        assert raw.ask(fetch("cold", 0, partition_max_bytes=1), 11).responses[0].partitions[0].error_code == 0
        with segment.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        answer = raw.ask(fetch("cold", 30, max_wait_ms=1000), 11).responses[0].partitions[0]
        assert [header.base_offset for _, header in iter_headers(bytes(answer.records))] == list(range(30, 40))
        assert served.call(lambda broker: broker.metrics.counter("fetch.cold_lookups").value) > 0


def test_groups_are_loaded_once_after_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[int] = []
    load = Coordinator._load

    async def counted(self: Coordinator[Any], runtime: ShardRuntime[Any], led: LedPartition) -> None:
        loads.append(runtime.index)
        await load(self, runtime, led)

    monkeypatch.setattr(Coordinator, "_load", counted)
    offsets_asked = [OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(0, 1)])]
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        create_topic(served.port, "t")
        raw.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        deadline = time.monotonic() + 60
        while True:
            answer = raw.ask(OffsetCommitRequest(group_id="g", topics=offsets_asked), 8)
            if not answer.topics[0].partitions[0].error_code:
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    loads.clear()
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        raw.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
        time.sleep(0.1)
    assert loads == [0]
