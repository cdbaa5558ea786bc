"""The loss of a leader in the demo: which one is killed, and what is told of it."""

from __future__ import annotations

import functools
import io
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient
from rich.console import Console

import headrace
import headrace.testing
from demo import __main__ as demo
from demo import flights, loss
from demo.broker import FLIGHTS, DemoError, create_topics
from demo.loss import LeaderLoss, Placed, places
from demo.replay import Replay, Year, prepare
from demo.table import Progress, Screen, SurgeReader

ROWS = 4_000
EVERY = frozenset({1, 2, 3})


def year(rows: int = ROWS) -> Year:
    return prepare(flights.load_flights().head(rows))


def kills(nodes: frozenset[int], kill: Callable[[int], object]) -> dict[int, Callable[[], None]]:
    def one(node: int) -> None:
        kill(node)

    return {node: functools.partial(one, node) for node in nodes}


@pytest.mark.slow
def test_a_replay_outlives_the_leader_of_its_busiest_partition() -> None:
    with headrace.testing.cluster() as cluster:
        create_topics(cluster.bootstrap, replicas=3)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        killed: list[int] = []

        def kill(node: int) -> None:
            killed.append(node)
            cluster.kill(node)
            threading.Thread(target=cluster.restart, args=(node,)).start()

        lost = LeaderLoss(FLIGHTS, kills(EVERY, kill), lambda: places(admin, FLIGHTS))
        records = year()
        replay = Replay(cluster.bootstrap, FLIGHTS, records, 0, lost)
        replay.start()
        replay.join()
        assert replay.failure == ""
        lost.wait()
        assert killed == [lost.node]
        assert lost.successor in EVERY - {lost.node}
        assert lost.still_s > 0 and lost.whole_after_s >= lost.led_after_s > 0
        found = headrace.scan(FLIGHTS, bootstrap=cluster.bootstrap)
        assert sorted(found["value"].to_pylist()) == sorted(records.values)
        busiest = pd.Series(found["partition"].to_pylist()).value_counts().index[0]
        assert lost.partition == busiest


def after(seconds: list[float]) -> Callable[[], float]:
    """A clock that shows one moment after the other, and stays at the last one."""
    return lambda: seconds.pop(0) if len(seconds) > 1 else seconds[0]


def test_the_gap_is_the_longest_one_of_that_partition_since_the_kill() -> None:
    seen = [{0: Placed(2, EVERY, EVERY)}, {}, {0: Placed(-1, EVERY, EVERY)}, {0: Placed(3, EVERY, frozenset({1, 3}))}]
    whole = threading.Event()

    def find() -> dict[int, Placed]:
        if seen:
            return seen.pop(0)
        return {0: Placed(3, EVERY, EVERY if whole.is_set() else frozenset({1, 3}))}

    now = [100.0]
    lost = LeaderLoss("t", kills(EVERY, lambda _: None), find, lambda: now[0])
    for partition in (0, 0, 1):
        lost.acknowledged(partition)
    assert lost.lines() == ("", "")
    lost.strike()
    assert lost.lines()[0] == "node 2, leader of t-0, was killed with SIGKILL"
    for at, partition in ((100.5, 0), (105.0, 1), (102.0, 0), (102.1, 0)):
        now[0] = at
        lost.acknowledged(partition)
    assert lost.still_s == 1.5
    now[0] = 103.0
    whole.set()
    lost.wait()
    assert lost.successor == 3
    assert lost.lines()[1].endswith("writes stood still 1.50 s, in sync after 3.0 s")


def test_a_node_that_does_not_come_back_is_said() -> None:
    seen = {0: Placed(2, EVERY, EVERY)}
    lost = LeaderLoss("t", kills(EVERY, lambda _: None), lambda: seen, after([0.0, 0.0, loss.IN_SYNC_PATIENCE_S + 1]))
    lost.acknowledged(0)
    lost.strike()
    with pytest.raises(DemoError, match="node 2 was not in sync again within 60 s"):
        lost.wait()


def test_a_partition_that_none_of_the_nodes_leads_is_said() -> None:
    lost = LeaderLoss("t", kills(EVERY, lambda _: None), lambda: {0: Placed(-1, EVERY, EVERY)})
    lost.acknowledged(0)
    with pytest.raises(DemoError, match="t-0 has no leader"):
        lost.strike()
    with pytest.raises(DemoError, match="over before a leader was killed"):
        lost.wait()


def test_the_screen_shows_the_loss_in_two_rows_that_fit() -> None:
    replay: Any = SimpleNamespace(delivered=200_000, now_ms=1_372_971_600_000, year=range(336_776))
    lost = LeaderLoss(FLIGHTS, {}, dict)
    screen = Screen(replay, Progress(None), SurgeReader("nowhere:9092", "surge", partitions=2), {}, lost)
    drawn = []
    for _ in range(2):
        out = io.StringIO()
        Console(width=80, file=out).print(screen.draw())
        drawn.append(out.getvalue())
        lost.node, lost.partition, lost.successor = 1, 3, 2
        lost.led_after_s, lost.still_s, lost.whole_after_s = 10.25, 12.125, 33.25
    before, behind = drawn
    assert len(before.splitlines()) == len(behind.splitlines()), "no row moves"
    assert "killed" not in before
    assert "node 1, leader of flights-3, was killed with SIGKILL" in behind
    assert "node 2 led after 10.25 s, writes stood still 12.12 s, in sync after 33.2 s" in behind
    assert "; node 1, leader of flights-3, was killed with SIGKILL; node 2 led after" in screen.line()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--brokers", "2"), "two brokers do not survive the loss of one"),
        (("--brokers", "3", "--bootstrap", "127.0.0.1:1"), "--bootstrap uses one that is up"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("demo.session.java_is_missing", lambda: False)
    done = CliRunner().invoke(demo.main, arguments)
    assert done.exit_code == 2
    assert said in done.output
