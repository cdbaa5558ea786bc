"""What goes offline where files are missing: one log, or all in its directory where that is gone too."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from broker.raw import Raw, batch, create_topic, produce
from peers.waiting import until

from headrace.broker.broker import Broker
from headrace.log.directory import LogDirectory
from headrace.log.filenames import PROBE
from headrace.log.log import Log
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode


def home_of(served: TestBroker, topic: str) -> Path:
    return Path(served.call(lambda broker: broker.logs.logs[topic, 0].directory)).parent


def offline(served: TestBroker) -> set[str]:
    return served.call(lambda broker: {topic for topic, _ in broker.replicas.offline})


def put(raw: Raw, topic: str) -> ErrorCode:
    answer = raw.ask(produce(topic, batch(b"x" * 300_000), acks=1), 9)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def put_until_it_rolls(raw: Raw, topic: str) -> ErrorCode:
    return next((error for error in (put(raw, topic) for _ in range(8)) if error), ErrorCode.NONE)


def served_with(tmp_path: Path) -> Any:
    homes = tmp_path / "one", tmp_path / "two"
    return running_broker({"log.dirs": ",".join(map(str, homes))}, data=homes[0])


def test_a_log_that_lacks_files_goes_offline_alone(tmp_path: Path) -> None:
    with served_with(tmp_path) as served, Raw(served.port) as raw:
        for topic in ("a", "b", "c", "d"):
            create_topic(served.port, topic, segment_bytes=str(1 << 20))
            assert put(raw, topic) is ErrorCode.NONE
        folder = home_of(served, "a") / "a-0"
        folder.rename(folder.with_name("aside"))
        assert put_until_it_rolls(raw, "a") is ErrorCode.KAFKA_STORAGE_ERROR
        assert offline(served) == {"a"}
        until(lambda: not served.call(lambda broker: broker.replicas.failures._probed), "the directory is probed")
        assert offline(served) == {"a"}
        assert all(put_until_it_rolls(raw, topic) is ErrorCode.NONE for topic in ("b", "c", "d"))
        assert put(raw, "a") is ErrorCode.KAFKA_STORAGE_ERROR
        assert not (folder.parent / PROBE).exists()
        served.call(lambda broker: broker.logs.checkpoints.write_recovery_points())
        folder.with_name("aside").rename(folder)
    assert not (folder.parent / ".kafka_cleanshutdown").exists(), "the next start looks closely"
    with served_with(tmp_path) as served, Raw(served.port) as raw:
        assert put(raw, "a") is ErrorCode.NONE
        assert served.call(lambda broker: broker.logs.logs["a", 0].end_offset) > 1


def test_a_worker_finds_a_log_that_lacks_files(tmp_path: Path) -> None:
    with served_with(tmp_path) as served, Raw(served.port) as raw:
        for topic in ("a", "b"):
            create_topic(served.port, topic)
            assert put(raw, topic) is ErrorCode.NONE
        folder = home_of(served, "a") / "a-0"
        folder.rename(folder.with_name("aside"))

        def flush(broker: Broker) -> None:
            log = broker.logs.logs["a", 0]
            log.active.release()
            background, logs = broker.background, broker.logs
            background._submit(lambda: logs.guarded([log], Log.flush), background._done)

        served.call(flush)
        until(lambda: offline(served) == {"a"}, "the log alone is offline")
        assert put(raw, "b") is ErrorCode.NONE


def test_a_directory_that_is_gone_goes_offline_as_a_whole(tmp_path: Path) -> None:
    with served_with(tmp_path) as served, Raw(served.port) as raw:
        topics = ["a", "b", "c", "d"]
        for topic in topics:
            create_topic(served.port, topic, segment_bytes=str(1 << 20))
            assert put(raw, topic) is ErrorCode.NONE
        homes = {topic: home_of(served, topic) for topic in topics}
        failing = tmp_path / "two"  # the other one has the metadata
        lost = {topic for topic in topics if homes[topic] == failing}
        assert lost and lost != set(topics)
        failing.rename(tmp_path / "aside")
        failing.mkdir()  # as an unmounted file system leaves it
        victim = min(lost)
        assert put_until_it_rolls(raw, victim) is ErrorCode.KAFKA_STORAGE_ERROR
        until(lambda: offline(served) == lost, "all of the directory is offline")
        assert all(put(raw, topic) is ErrorCode.NONE for topic in set(topics) - lost)


def test_no_descriptor_takes_nothing_offline(tmp_path: Path) -> None:
    with served_with(tmp_path) as served, Raw(served.port) as raw:
        create_topic(served.port, "a")
        assert put(raw, "a") is ErrorCode.NONE
        for number in (errno.EMFILE, errno.ENFILE, errno.ENOENT):
            error = OSError(number, "injected")  # every file of the log is there

            def fail(broker: Broker, error: OSError = error) -> None:
                broker.replicas.failures.storage_failed(broker.replicas.by_name["a", 0], error)

            served.call(fail)
            assert put(raw, "a") is ErrorCode.NONE
        served.call(
            lambda broker: broker.replicas.failures.storage_failed(broker.replicas.by_name["a", 0], OSError(errno.EIO))
        )
        assert put(raw, "a") is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ENOSPC])
def test_a_probe_fails_where_the_disk_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    with served_with(tmp_path) as served:

        def probe(broker: Broker) -> OSError | None:
            home: LogDirectory = broker.logs.online()[0]
            assert home.probe() is None
            disk = broker.node.disk

            def fail(path: str, data: bytes) -> None:
                raise OSError(number, "injected", path)

            with monkeypatch.context() as patched:
                patched.setattr(type(disk), "write_file_atomically", lambda _self, path, data: fail(path, data))
                return home.probe()

        found = served.call(probe)
        assert (found is None) is (number == errno.ENOSPC)
