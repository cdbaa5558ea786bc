"""The commands of a cluster against two nodes of Apache Kafka."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from peers.cluster import HeadraceCluster

from headrace.cli import main

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


def test_the_commands_of_a_cluster(tmp_path: Path) -> None:
    with HeadraceCluster(tmp_path, {"default.replication.factor": "1"}, size=2, kafkas={1, 2}) as kafka:

        def run(*arguments: str, code: int = 0) -> Result:
            done = CliRunner(env={"HEADRACE_BOOTSTRAP": kafka.bootstrap}).invoke(main, arguments)
            assert done.exit_code == code, (arguments, done.exit_code, done.output, done.exception)
            return done

        def run_json(*arguments: str, code: int = 0) -> Any:
            return json.loads(run(*arguments, "--json", code=code).stdout)

        def partition(topic: str) -> dict[str, Any]:
            (found,) = run_json("topic", "describe", topic)[0]["partitions"]
            assert isinstance(found, dict)
            return found

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
    last = time.monotonic() + 30
    while (found := run_json("quorum", "describe"))["high_watermark"] < 0:
        assert time.monotonic() < last
    assert [each["id"] for each in found["replicas"] if each["voter"]] == [1, 2]
    healthy = run_json("cluster", "health")
    assert healthy["healthy"] and [each["id"] for each in healthy["brokers"]] == [1, 2]
    assert "healthy" in run("cluster", "health").stdout
    assert "features: " in run("cluster", "describe").stdout
