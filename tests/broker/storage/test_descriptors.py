"""A broker that many connections leave without descriptors: it goes on, and takes connections again when some end."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from broker.raw import Raw, batch, create_topic_on, produce
from peers.waiting import until

from headrace.env.posix import PosixDisk
from headrace.log.log import Log
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode

LIMIT = 160
PATIENCE_S = 60


class Process:
    """A broker in a process of its own, with so many descriptors."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None and process.stderr is not None
        self.process = process
        self.port = int(process.stdout.readline().rstrip().rpartition(":")[2])
        self.said: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        self.said.extend(self.process.stderr)


@contextmanager
def few_descriptors(data: Path, **settings: str) -> Iterator[Process]:
    command = [sys.executable, "-m", "headrace.cli", "serve", "--data", str(data), "--listen", "127.0.0.1:0"]
    for name, value in settings.items():
        command += ["--set", f"{name.replace('_', '.')}={value}"]

    limited = ["sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", *command]
    with subprocess.Popen(limited, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield Process(process)
        finally:
            process.terminate()
            assert process.wait(PATIENCE_S) == 0


def knock(port: int) -> socket.socket:
    """A connection that need not be accepted."""
    connection = socket.socket()
    connection.setblocking(False)
    connection.connect_ex(("127.0.0.1", port))
    return connection


def write(raw: Raw, topic: str, partition: int = 0) -> int:
    answer = raw.ask(produce(topic, batch(b"x"), partition=partition), 9).responses[0].partition_responses[0]
    error: int = answer.error_code
    return error


@pytest.mark.slow
def test_connections_leave_descriptors_for_topics_and_checkpoints(tmp_path: Path) -> None:
    often = {"log_flush_offset_checkpoint_interval_ms": "1000"}
    with few_descriptors(tmp_path, **often) as broker, ExitStack() as held:
        raw = held.enter_context(Raw(broker.port))
        create_topic_on(raw, "one", flush_messages="1")
        assert write(raw, "one") == 0
        crowd: list[socket.socket] = []

        def one_more_is_refused() -> bool:
            crowd.append(held.enter_context(knock(broker.port)))
            return any("accepts no connections" in line for line in broker.said)

        until(one_more_is_refused)
        assert len(crowd) < 2 * LIMIT
        create_topic_on(raw, "two", 60)
        assert [write(raw, "two", partition) for partition in range(60)] == [0] * 60
        assert write(raw, "one") == 0
        checkpoint = tmp_path / "recovery-point-offset-checkpoint"
        until(lambda: checkpoint.exists() and "one 0 2" in checkpoint.read_text().splitlines())
        for each in crowd:
            each.close()
        with Raw(broker.port, timeout_s=PATIENCE_S) as later:
            assert write(later, "one") == 0
    said = [line for line in broker.said if "accepts no connections" in line]
    assert len(said) == 1 and "limit of open files" in said[0], broker.said
    assert not any("failed" in line or "Traceback" in line for line in broker.said), broker.said


def test_a_topic_that_finds_no_descriptor_is_served_when_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    write_file, short = PosixDisk.write_file, [True]

    def fails(disk: PosixDisk, path: str, data: bytes) -> None:
        if short and path.endswith("partition.metadata"):
            raise OSError(errno.EMFILE, "Too many open files", path)
        write_file(disk, path, data)

    with running_broker() as served, Raw(served.port) as raw:
        create_topic_on(raw, "kept")
        monkeypatch.setattr(PosixDisk, "write_file", fails)
        create_topic_on(raw, "new", 3)
        assert write(raw, "new", 1) == ErrorCode.KAFKA_STORAGE_ERROR
        assert write(raw, "kept") == 0
        short.clear()
        until(lambda: [write(raw, "new", partition) for partition in range(3)] == [0] * 3)


def test_a_sync_that_finds_no_descriptor_answers_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    flush, short = Log.flush, [True]

    def fails(log: Log, up_to: int | None = None) -> int:
        if short and log.topic_partition[0] == "t":
            raise OSError(errno.EMFILE, "Too many open files")
        return flush(log, up_to)

    with running_broker({"acks.flush": "before-reply"}) as served, Raw(served.port) as raw:
        create_topic_on(raw, "t")
        monkeypatch.setattr(Log, "flush", fails)
        assert write(raw, "t") == ErrorCode.KAFKA_STORAGE_ERROR
        short.clear()
        assert write(raw, "t") == 0
