"""The broker for tests: quick, real, and gone afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import headrace.testing
from headrace.client import admin, reading
from headrace.client.errors import BrokerError, ClientError
from headrace.client.producer import Producer
from headrace.config import ConfigError
from headrace.testing import SettingValue

pytest_plugins = ["pytester"]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_it_serves_and_leaves_nothing_behind() -> None:
    with headrace.testing.broker():
        pass
    threads, files = threading.active_count(), descriptors()
    with headrace.testing.broker() as b:
        with b.client() as client:
            admin.create_topic(client, "t", partitions=1)
            with Producer(client) as producer:
                producer.send("t", b"v")
            assert reading.latest_offsets(client, "t") == {0: 1}
        data = b.data
        assert data.is_dir()
        port = b.port
    assert not data.exists()
    assert (threading.active_count(), descriptors()) == (threads, files)
    with pytest.raises(OSError):
        __import__("socket").create_connection(("127.0.0.1", port), timeout=1).close()


def test_a_defect_fails_the_test_that_met_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def meets_a_defect() -> None:
        with headrace.testing.broker() as b, b.client(timeout_s=2) as client:
            admin.create_topic(client, "t", partitions=1)
            monkeypatch.setattr("headrace.broker.partitions.replica_manager.ReplicaManager.find", fails)
            with pytest.raises(ClientError):
                reading.earliest_offsets(client, "t")

    def fails(*_: object) -> None:
        raise RuntimeError("planted")

    with pytest.raises(headrace.testing.DefectError) as raised:
        meets_a_defect()
    assert str(raised.value.__cause__) == "planted"


def test_it_is_ready_at_once() -> None:
    took = []
    for _ in range(3):
        started = time.monotonic()
        with headrace.testing.broker():
            took.append(time.monotonic() - started)
    assert min(took) < 3, "nothing sleeps; how quick it is, the bench says"


def test_two_at_a_time() -> None:
    with headrace.testing.broker() as one, headrace.testing.broker() as two:
        assert one.port != two.port
        with one.client() as client:
            admin.create_topic(client, "only-here", partitions=1)
        with two.client() as client:
            assert client.topics() == []


def test_settings_are_those_of_a_properties_file() -> None:
    with headrace.testing.broker({"num.partitions": "3", "auto.create.topics.enable": "false"}) as b:
        with b.client() as client:
            admin.create_topic(client, "t")
            assert len(client.topic("t").partitions) == 3
        assert b.call(lambda inside: inside.config.num_partitions) == 3
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        with headrace.testing.broker({"num.partitions": "many"}):
            pass


def test_settings_may_be_what_they_mean() -> None:
    given: dict[str, SettingValue] = {
        "num.partitions": 3,
        "auto.create.topics.enable": False,
        "log.cleanup.policy": ["compact", "delete"],
    }
    with headrace.testing.broker(given) as b:
        config = b.call(lambda inside: inside.config)
        assert (config.num_partitions, config.auto_create_topics_enable) == (3, False)
        assert config["log.cleanup.policy"] == ("compact", "delete")
    with pytest.raises(TypeError, match=r"num\.partitions"):
        with headrace.testing.broker({"num.partitions": None}):  # type: ignore[dict-item]
            pass


FORKS = """
import os, sys
import headrace.testing
from headrace.client import admin, reading
from headrace.client.producer import Producer

with headrace.testing.broker() as b:
    with b.client() as client:
        admin.create_topic(client, "before", partitions=1)
    pid = os.fork()
    if pid == 0:
        {leave}
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == {status}
    assert b.data.is_dir(), "the data of the parent is gone"
    with b.client() as client:
        admin.create_topic(client, "after", partitions=1)
        with Producer(client) as producer:
            producer.send("after", b"v")
        assert reading.latest_offsets(client, "after") == {{0: 1}}
assert not b.data.exists()
print("the parent is well")
"""


@pytest.mark.parametrize(("leave", "status"), [("sys.exit(0)", 0), ("raise ValueError", 1)])
def test_a_fork_that_leaves_the_block_takes_nothing_with_it(leave: str, status: int) -> None:
    """As in a test that forks, and whose child exits or fails: the child inherits the block, and not the broker."""
    code = FORKS.format(leave=leave, status=status)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["the parent is well"], done.stderr


def test_a_directory_of_ones_own_stays(tmp_path: Path) -> None:
    with headrace.testing.broker(data=tmp_path / "data") as b, b.client() as client:
        admin.create_topic(client, "t", partitions=1)
        with Producer(client) as producer:
            producer.send("t", b"v")
        with pytest.raises(Exception, match="data"):
            with headrace.testing.broker(data=tmp_path / "data"):
                pass
    with headrace.testing.broker(data=tmp_path / "data") as b, b.client() as client:
        assert reading.latest_offsets(client, "t") == {0: 1}
        with pytest.raises(BrokerError):
            admin.create_topic(client, "t")


def test_the_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from headrace.client import admin

        def test_one(headrace_broker):
            with headrace_broker.client() as client:
                assert client.topics() == []
                admin.create_topic(client, "t", partitions=1)

        def test_another_starts_empty(headrace_broker, headrace_shared_broker):
            assert headrace_broker.port != headrace_shared_broker.port
            with headrace_broker.client() as client:
                assert client.topics() == []
        """
    )
    plugins = ["-p", "headrace.testing.plugin"] if not _plugin_is_installed() else []
    done = pytester.runpytest_subprocess("-p", "no:randomly", *plugins)
    done.assert_outcomes(passed=2)


def _plugin_is_installed() -> bool:
    from importlib.metadata import entry_points

    return any(point.value == "headrace.testing.plugin" for point in entry_points(group="pytest11"))


def test_loading_the_plugin_loads_no_broker() -> None:
    code = "import sys, headrace.testing.plugin; print([name for name in sys.modules if name.startswith('headrace.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['headrace.version', 'headrace.testing', 'headrace.testing.plugin']"
