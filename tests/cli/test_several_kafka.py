"""The commands of a cluster against nodes of Apache Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from cli.conftest import CHANGES_NOTHING, WRONG_USAGE
from click.testing import CliRunner, Result
from peers.cluster import HeadraceCluster
from peers.settling import settle_ports
from peers.waiting import until

from headrace.cli import main

pytestmark = [pytest.mark.jvm, pytest.mark.slow]
SOON_FENCED = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


class Commands:
    """Ours, on brokers of Apache Kafka: what a command wrote is in force on those that run when it returns."""

    def __init__(self, kafka: HeadraceCluster) -> None:
        self._env = {"HEADRACE_BOOTSTRAP": kafka.bootstrap}
        self._kafka = kafka

    def run(self, *arguments: str, code: int = 0) -> Result:
        done = CliRunner(env=self._env).invoke(main, arguments)
        assert done.exit_code == code, (arguments, done.exit_code, done.output, done.exception)
        if code != WRONG_USAGE and CHANGES_NOTHING.isdisjoint(arguments):
            settle_ports(*(peer.port for peer in self._kafka.nodes.values() if peer.process is not None))
        return done

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def partition(self, topic: str) -> dict[str, Any]:
        (found,) = self.json("topic", "describe", topic)[0]["partitions"]
        assert isinstance(found, dict)
        return found

    def registered(self) -> list[int]:
        """The brokers that the cluster knows."""
        return [each["id"] for each in self.json("cluster", "describe")["brokers"]]

    def answering(self) -> list[int]:
        """The brokers that are up, of a cluster that is not healthy."""
        return [each["id"] for each in self.json("cluster", "health", code=1)["brokers"] if each["answers"]]


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_broker_that_dies(tmp_path: Path) -> None:
    """A move that does not end is called off, an unclean leader is elected, and the dead broker is struck off."""
    everybody = {1, 2, 3, 101}
    with HeadraceCluster(tmp_path, SOON_FENCED, size=3, kafkas=everybody, controllers=1) as kafka:
        commands = Commands(kafka)
        commands.run("topic", "create", "t", "-p", "1", "-r", "2", "--set", "min.insync.replicas=1")
        producer = ck.Producer({"bootstrap.servers": kafka.bootstrap})
        for _ in range(2000):
            producer.produce("t", b"x" * 1000)
        assert producer.flush(30) == 0
        leader, follower = commands.partition("t")["replicas"]
        (third,) = {1, 2, 3} - {leader, follower}
        move = [sys.executable, "-m", "headrace.cli", "partition", "move", "t:0", "--to", f"{leader},{third}"]
        moving = subprocess.Popen([*move, "--throttle", "1000", "--execute", "-b", kafka.bootstrap])
        until(lambda: len(commands.partition("t")["replicas"]) == 3, "the move begins")
        moving.kill()
        moving.wait()
        commands.run("partition", "reassign", "--cancel", "--execute")
        assert commands.partition("t")["replicas"] == [leader, follower]
        assert commands.json("partition", "throttle", "--clear")["changes"] == [], "its limits went with it"

        kafka.nodes[follower].kill()
        until(lambda: commands.partition("t")["isr"] == [leader], "the follower is out of sync")
        assert commands.run("cluster", "health", code=1)
        producer.produce("t", b"the follower does not have it")
        assert producer.flush(30) == 0
        kafka.nodes[leader].kill()
        until(lambda: commands.partition("t")["leader"] is None, "nobody leads")
        kafka.nodes[follower].start()
        until(lambda: follower in commands.answering(), "it comes back")
        (needs,) = commands.json("partition", "elect", "unclean", "t")["partitions"]
        assert (needs["partition"], needs["from"]) == (0, None)
        commands.run("partition", "elect", "unclean", "t", "--execute")
        assert commands.partition("t")["leader"] == follower

        commands.run("broker", "drain", str(leader), "--execute")
        assert sorted(commands.partition("t")["replicas"]) == sorted([follower, third])
        commands.run("broker", "unregister", str(leader), "-y")
        until(lambda: leader not in commands.registered(), "it is struck off")


@pytest.mark.soak
def test_who_votes(tmp_path: Path) -> None:
    """A controller of Apache Kafka's is a voter no more, and one again."""
    with HeadraceCluster(tmp_path, {}, size=3, kafkas={1, 2, 3}, dynamic=True) as kafka:
        commands = Commands(kafka)

        def voters() -> list[int]:
            return [each["id"] for each in commands.json("quorum", "describe")["replicas"] if each["voter"]]

        until(lambda: voters() == [1, 2, 3], "all vote")
        leader = commands.json("quorum", "describe")["leader"]
        other = next(node for node in (1, 2, 3) if node != leader)
        file = kafka.nodes[other].file
        assert file is not None
        commands.run("quorum", "remove", str(other), "-y")
        assert other not in voters()
        assert "is no voter" in commands.run("quorum", "remove", str(other), "-y", code=1).stderr
        commands.run("quorum", "add", "-c", str(file))
        until(lambda: voters() == [1, 2, 3], "all vote again")


def test_the_commands_of_a_cluster(tmp_path: Path) -> None:
    with HeadraceCluster(tmp_path, {"default.replication.factor": "1"}, size=2, kafkas={1, 2}) as kafka:
        commands = Commands(kafka)
        run, run_json, partition = commands.run, commands.json, commands.partition
        _reads(run, run_json)
        run("topic", "create", "moved", "-p", "1", "-r", "1", "--set", "min.insync.replicas=1")
        (old,) = partition("moved")["replicas"]
        new = 3 - old
        run("partition", "throttle", "moved", "--rate", "10MiB", "--execute")
        assert len(run_json("partition", "throttle", "--clear")["changes"]) == 3
        run("partition", "move", "moved:0", "--to", f"{new},{old}", "--execute")
        run("partition", "throttle", "--clear", "--execute")
        assert "nothing is limited" in run("partition", "throttle", "--clear").stdout
        found = partition("moved")
        assert (found["replicas"], found["elr"], found["offline"]) == ([new, old], [], [])
        assert sorted(found["isr"]) == [1, 2]
        if found["leader"] != new:
            assert run_json("partition", "elect", "preferred", "moved", "--execute")["partitions"][0]["to"] == new
        run("broker", "drain", f"{old}", code=1)
        run("partition", "reassign", "moved", "-r", "1", "--execute")
        assert partition("moved")["replicas"] == [new]
        run("partition", "reassign", "moved", "--brokers", f"{old}", "--execute")
        assert partition("moved")["replicas"] == [old]
        run("broker", "drain", f"{old}", "--execute")
        assert partition("moved")["replicas"] == [new]
        run("partition", "reassign", "--cancel", code=4)
        assert "BROKER_ID_NOT_REGISTERED" in run("broker", "unregister", "9", "-y", code=4).stderr


def _reads(run: Any, run_json: Any) -> None:
    last = time.monotonic() + 60
    while (found := run_json("quorum", "describe"))["high_watermark"] < 0:
        assert time.monotonic() < last
    assert [each["id"] for each in found["replicas"] if each["voter"]] == [1, 2]
    healthy = run_json("cluster", "health")
    assert healthy["healthy"] and [each["id"] for each in healthy["brokers"]] == [1, 2]
    assert "healthy" in run("cluster", "health").stdout
    assert "features: " in run("cluster", "describe").stdout
