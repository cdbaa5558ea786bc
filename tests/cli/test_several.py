"""The commands of a cluster against three brokers of this process."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from peers.settling import settle_ports
from peers.waiting import until

import headrace.testing
from headrace.testing.running_cluster import TestCluster

PATIENT = {
    "broker.session.timeout.ms": "10000",
    "replica.lag.time.max.ms": "10000",
    "controller.quorum.fetch.timeout.ms": "3000",
}
"""On a busy machine no broker is taken for silent: what a command shows here is what the test has done. A killed one is
found dead at once all the same."""


@pytest.fixture(scope="module")
def three() -> Iterator[TestCluster]:
    with headrace.testing.cluster(settings=PATIENT) as running:
        yield running


@pytest.fixture
def bootstrap(three: TestCluster) -> str:
    """What `run` of the conftest is to talk to."""
    return three.bootstrap


@pytest.fixture
def settle(three: TestCluster) -> Callable[[], None]:
    """A broker answers what another one has decided before it has applied it."""
    return lambda: settle_ports(*(node.port for node in three.nodes.values() if node.is_running and not node.is_paused))


@pytest.fixture
def line(run: Callable[..., Result]) -> Callable[..., str]:
    """Runs what is to fail, and returns the one line that says why."""

    def line(*arguments: str, code: int = 1) -> str:
        (said,) = run(*arguments, code=code).stderr.splitlines()
        return str(said)

    return line


def replicas(run_json: Any, topic: str) -> list[list[int]]:
    (described,) = run_json("topic", "describe", topic)
    return [each["replicas"] for each in described["partitions"]]


def test_a_topic_says_where_it_is(run: Any, run_json: Any) -> None:
    run("topic", "create", "told", "-p", "2", "--replication-factor", "2")
    (described,) = run_json("topic", "describe", "told")
    for each in described["partitions"]:
        assert len(each["replicas"]) == len(each["isr"]) == 2 and each["leader"] in each["replicas"]
        assert (each["offline"], each["elr"], each["last_known_elr"]) == ([], [], [])
    heading = run("topic", "describe", "told").stdout.splitlines()[1]
    assert " ".join(heading.split()) == "PARTITION LEADER REPLICAS IN-SYNC OFFLINE ELIGIBLE EARLIEST LATEST SIZE"


def test_a_healthy_cluster(run: Any, run_json: Any) -> None:
    run("topic", "create", "well", "-p", "3")
    found = run_json("cluster", "health")
    assert found["healthy"] and found["problems"] == [] and found["offline"] == [] and len(found["brokers"]) == 3
    assert sum(each["leaders"] for each in found["brokers"]) == found["partitions"]
    assert len(found["quorum"]["replicas"]) == 3
    shown = run("cluster", "health").stdout
    assert "healthy" in shown.splitlines()[0] and "0 under-replicated" in shown and "quorum: leader" in shown


def test_the_quorum(run: Any, run_json: Any, three: TestCluster) -> None:
    until(lambda: run_json("quorum", "describe")["leader"] == three.controller())
    found = run_json("quorum", "describe")
    assert [each["id"] for each in found["replicas"] if each["voter"]] == [1, 2, 3]
    assert all(each["lag"] >= 0 and each["last_fetch_ms"] > 0 for each in found["replicas"])
    shown = run("quorum", "describe").stdout.splitlines()
    assert f"quorum: leader {found['leader']}, epoch {found['epoch']}" in shown[0]
    assert Counter(row.split()[1] for row in shown[2:5]) == {"leader": 1, "voter": 2}


def test_replicas_are_added_dropped_and_spread(run: Any, run_json: Any, tmp_path: Path) -> None:
    run("topic", "create", "grown", "-p", "3", "--replication-factor", "1")
    run("produce", "grown", stdin="a\nb\nc\n")
    before = replicas(run_json, "grown")
    plan = run("partition", "reassign", "grown", "-r", "2")
    assert "nothing has changed yet" in plan.stderr and replicas(run_json, "grown") == before
    undo = tmp_path / "undo.json"
    done = run("partition", "reassign", "grown", "-r", "2", "--undo", str(undo), "--execute")
    assert "moved 3 partitions" in done.stdout and "NEW-REPLICAS" in done.stdout, "the plan comes first"
    after = replicas(run_json, "grown")
    assert [(each[0], len(set(each))) for each in after] == [(each[0], 2) for each in before]
    assert run("consume", "grown").stdout.split() == ["a", "b", "c"]
    run("partition", "reassign", "grown", "--brokers", "1,2,3", "--execute")
    assert Counter(each for part in replicas(run_json, "grown") for each in part) == {1: 2, 2: 2, 3: 2}
    assert {each[0] for each in replicas(run_json, "grown")} == {1, 2, 3}
    assert "nothing to move" in run("partition", "reassign", "grown", "--brokers", "1,2,3", "--execute").stdout
    run("partition", "reassign", "--file", str(undo), "--execute")
    assert replicas(run_json, "grown") == before
    assert run_json("partition", "reassign", "grown", "-r", "1") == {
        "executed": False,
        "throttle": None,
        "partitions": [],
    }


def test_one_partition_moves(run: Any, run_json: Any, line: Any) -> None:
    run("topic", "create", "one", "-p", "2", "-r", "1")
    (old,) = replicas(run_json, "one")[1]
    new = old % 3 + 1
    planned = run_json("partition", "move", "one:1", "--to", f"{new}")
    assert planned == {
        "executed": False,
        "throttle": None,
        "partitions": [{"topic": "one", "partition": 1, "from": [old], "to": [new]}],
    }
    run("partition", "move", "one:1", "--to", f"{new}", "--execute")
    assert replicas(run_json, "one")[1] == [new]
    assert "not one partition" in line("partition", "move", "one", "--to", "1", code=2)
    assert "different broker ids" in line("partition", "move", "one:0", "--to", "1,1", code=2)
    assert "broker 9 is not up" in line("partition", "move", "one:0", "--to", "9", code=4)
    assert "no partition 7" in line("partition", "move", "one:7", "--to", "1", code=4)
    assert "--to and --cancel" in line("partition", "move", "one:0", code=2)
    assert "is being moved" in line("partition", "move", "one:0", "--cancel", code=4)


def test_a_file_of_kafkas(run: Any, run_json: Any, line: Any, tmp_path: Path) -> None:
    run("topic", "create", "filed", "-p", "1", "-r", "1")
    file = tmp_path / "moves.json"

    def said(value: object, code: int = 1) -> str:
        file.write_text(value if isinstance(value, str) else json.dumps(value))
        return str(line("partition", "reassign", "--file", str(file), "--execute", code=code))

    part = {"topic": "filed", "partition": 0, "replicas": [3, 1], "log_dirs": ["any", "any"]}
    assert "is not JSON" in said("{")
    assert 'no list "partitions"' in said({"topics": []})
    assert "entry 1 is not" in said({"partitions": [{**part, "replicas": []}]})
    assert "entry 1 is not" in said({"partitions": [{**part, "partition": True}]})
    assert "entry 1 names log directories" in said({"partitions": [{**part, "log_dirs": ["/a", "any"]}]})
    assert "entry 1 names log directories" in said({"partitions": [{**part, "log_dirs": 7}]})
    assert "is listed twice" in said({"partitions": [part, part]})
    assert "no partition 4" in said({"partitions": [{**part, "partition": 4}]}, code=4)
    assert "broker 8 is not up" in said({"partitions": [{**part, "replicas": [8]}]}, code=4)
    assert "none.json" in line("partition", "reassign", "--file", str(tmp_path / "none.json"), code=4)
    assert "--file says everything" in line("partition", "reassign", "x", "--file", str(file), code=2)
    assert "name topics" in line("partition", "reassign", "--brokers", "1", code=2)
    assert "no target" in line("partition", "reassign", "filed", code=2)
    assert "4 replicas need 4 brokers" in line("partition", "reassign", "filed", "-r", "4")
    file.write_text(json.dumps({"version": 1, "partitions": [part]}))
    run("partition", "reassign", "--file", str(file), "--execute")
    assert replicas(run_json, "filed") == [[3, 1]]


def test_preferred_leaders(run: Any, run_json: Any) -> None:
    run("topic", "create", "led", "-p", "1")
    run("partition", "move", "led:0", "--to", "1,2,3", "--execute")
    run("partition", "elect", "preferred", "led", "--execute")
    run("partition", "move", "led:0", "--to", "2,3,1", "--execute")
    planned = run_json("partition", "elect", "preferred", "led")["partitions"]
    assert planned == [{"topic": "led", "partition": 0, "from": 1, "replicas": [2, 3, 1], "to": None}]
    assert "elected leaders of 1 partition" in run("partition", "elect", "preferred", "led", "--execute").stdout
    assert run_json("topic", "describe", "led")[0]["partitions"][0]["leader"] == 2
    assert "no partition needs" in run("partition", "elect", "preferred", "led", "--execute").stdout
    assert "no partition needs an unclean" in run("partition", "elect", "unclean").stdout


def test_replication_is_throttled(run_json: Any, run: Any, line: Any) -> None:
    run("topic", "create", "slow", "-p", "1")
    planned = run_json("partition", "throttle", "slow", "--rate", "2MiB")
    rates = dict.fromkeys(("leader.replication.throttled.rate", "follower.replication.throttled.rate"), "2097152")
    lists = dict.fromkeys(("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"), "*")
    assert planned == {
        "executed": False,
        "changes": [
            *({"kind": "broker", "name": f"{broker}", "settings": rates} for broker in (1, 2, 3)),
            {"kind": "topic", "name": "slow", "settings": lists},
        ],
    }
    run("partition", "throttle", "slow", "--rate", "2MiB", "--execute")

    def cleared() -> Any:
        return run_json("partition", "throttle", "slow", "--clear")["changes"]

    none = [{**change, "settings": dict.fromkeys(change["settings"])} for change in planned["changes"]]
    until(lambda: cleared() == none)
    assert "nothing has changed yet" in run("partition", "throttle", "slow", "--clear").stderr
    run("partition", "throttle", "slow", "--clear", "--execute")
    until(lambda: not cleared())
    assert "nothing is limited" in run("partition", "throttle", "slow", "--clear", "--execute").stdout
    assert "name the topics" in line("partition", "throttle", "--rate", "1", code=4)
    assert "--rate and --clear" in line("partition", "throttle", code=2)
    assert "is not a rate" in line("partition", "throttle", "slow", "--rate", "fast", code=2)


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_move_that_is_left_alone_is_called_off(
    run: Any, run_json: Any, line: Any, three: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("topic", "create", "back", "-p", "1", "-r", "1")
    old = three.controller()
    new = next(each for each in (2, 3) if each != old)  # not 1, which commands ask first
    run("partition", "move", "back:0", "--to", f"{old}", "--execute")
    three.pause(new)  # so that the move does not end
    try:
        with monkeypatch.context() as patch:
            patch.setattr("headrace.cli.moving._wait", interrupted)
            left = run("partition", "move", "back:0", "--to", f"{new}", "--execute", code=130)
            assert "the moves continue; `headrace partition reassign --cancel`" in left.stderr
        assert "is already being moved" in line("partition", "reassign", "back", "-r", "2")
        assert run_json("partition", "reassign", "--cancel")["partitions"][0]["to"] == [old]
        assert "cancelled 1 partition" in run("partition", "reassign", "back", "--cancel", "--execute").stdout
        assert "no such partition is being moved" in line("partition", "reassign", "back", "--cancel", code=4)
    finally:
        three.resume(new)
    until(lambda: _all_up(three))


def limits(run_json: Any, topic: str) -> dict[str, dict[str, str | None]]:
    """What `partition throttle --clear` would take away, by broker or topic."""
    changes = run_json("partition", "throttle", topic, "--clear")["changes"]
    return {change["name"]: change["settings"] for change in changes}


def test_a_move_is_limited_until_it_ends(
    run: Any, run_json: Any, line: Any, three: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 4 MiB at a byte a second a fetch or two come at once, and then nothing."""
    run("topic", "create", "tamed", "-p", "1", "-r", "1")
    run("produce", "tamed", stdin=(b"x" * 65_535 + b"\n") * 64)
    ((old,),) = replicas(run_json, "tamed")
    new = next(each for each in three.nodes if each != old)
    move = ("partition", "reassign", "tamed", "--brokers", f"{new}", "--throttle")
    assert run_json(*move, "3MiB")["throttle"] == 3 << 20
    assert "each broker copies at most 3.0 MiB a second" in run(*move, "3MiB").stdout
    assert not limits(run_json, "tamed"), "a plan sets nothing"
    with monkeypatch.context() as patch:
        patch.setattr("headrace.cli.moving._wait", interrupted)
        left = run(*move, "1", "--execute", code=130)
    assert "the limits remain; `headrace partition throttle tamed --clear --execute` removes them" in left.stderr
    until(lambda: limits(run_json, "tamed").keys() == {f"{old}", f"{new}", "tamed"})
    described = {each["name"]: each["value"] for each in run_json("config", "describe", "topic", "tamed")}
    assert described["leader.replication.throttled.replicas"] == f"0:{old}"
    assert described["follower.replication.throttled.replicas"] == f"0:{new}"
    assert "--cancel goes with topics" in line("partition", "reassign", "tamed", "--cancel", "--throttle", "1", code=2)
    assert replicas(run_json, "tamed") != [[new]], "a byte a second"
    run("partition", "reassign", "tamed", "--cancel", "--execute")
    until(lambda: not limits(run_json, "tamed"))
    run(*move, "100MiB", "--execute")
    assert replicas(run_json, "tamed") == [[new]]
    until(lambda: not limits(run_json, "tamed"))


def _all_up(three: TestCluster) -> bool:
    images = [node.inside.image for node in three.nodes.values()]
    return all(
        not any(b.fenced for b in image.brokers.values())
        and all(len(p.isr) == len(p.replicas) for topic in image.topics for p in topic.partitions)
        for image in images
    )


def test_a_broker_is_drained_stopped_and_forgotten(run: Any, run_json: Any, line: Any, three: TestCluster) -> None:
    run("topic", "create", "drained", "-p", "3")
    gone = next(each for each in three.nodes if each != three.controller())
    assert "cannot be drained: 3 replicas need 3 brokers" in line("broker", "drain", f"{gone}")
    large = [each["topic"] for each in run_json("topic", "list", "--internal") if each["replicas"] > 2]
    run("partition", "reassign", *large, "-r", "2", "--execute")
    assert all(gone not in each["to"] for each in run_json("broker", "drain", f"{gone}")["partitions"])
    assert "nothing has changed yet" in run("broker", "drain", f"{gone}").stderr
    run("broker", "drain", f"{gone}", "--execute")
    assert "nothing to move" in run("broker", "drain", f"{gone}", "--execute").stdout
    assert next(b for b in run_json("cluster", "health")["brokers"] if b["id"] == gone)["replicas"] == 0
    assert "is up; stop it first" in line("broker", "unregister", f"{gone}", "-y")
    three.stop(gone)
    ill = run_json("cluster", "health", code=1)
    assert not ill["healthy"] and ill["problems"] == [f"broker {gone} is down"]
    assert "Add --yes" in line("broker", "unregister", f"{gone}", code=2)
    assert f"unregistered broker {gone}" in run("broker", "unregister", f"{gone}", "-y").stdout
    until(lambda: len(run_json("cluster", "describe")["brokers"]) == 2)
    assert "BROKER_ID_NOT_REGISTERED" in line("broker", "unregister", f"{gone}", "-y", code=4)
    assert "the cluster has no broker 9" in line("broker", "drain", "9", code=4)
    three.restart(gone)
    until(lambda: _all_up(three))


def test_what_a_dead_broker_leaves(run: Any, run_json: Any, three: TestCluster) -> None:
    """A topic with one replica there is offline, one with several is under-replicated; and health says so."""
    dead = next(each for each in three.nodes if each != three.controller())
    run("topic", "create", "lost", "-p", "1", "-r", "1")
    run("partition", "move", "lost:0", "--to", f"{dead}", "--execute")
    run("topic", "create", "ill", "-p", "1", "--set", "min.insync.replicas=3")
    three.kill(dead)
    alive = [node.inside for id_, node in three.nodes.items() if id_ != dead]
    until(lambda: all(node.image.brokers[dead].fenced for node in alive))
    found = run_json("cluster", "health", code=1)
    assert {"topic": "lost", "partition": 0} in found["offline"]
    assert {"topic": "ill", "partition": 0} in found["under_replicated"]
    assert {"topic": "ill", "partition": 0} in found["under_min_isr"]
    assert any("without a leader: " in each for each in found["problems"])
    (described,) = run_json("topic", "describe", "ill")
    assert described["partitions"][0]["offline"] == described["partitions"][0]["elr"] == [dead]
    planned = run_json("partition", "elect", "unclean")["partitions"]
    assert ("lost", None) in [(each["topic"], each["from"]) for each in planned]
    refused = run("partition", "elect", "unclean", "lost", "--execute", code=1).stderr
    assert "topic lost partition 0" in refused
    three.restart(dead)
    until(lambda: _all_up(three))
