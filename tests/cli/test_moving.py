"""How a command follows what brokers copy."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import click
import pytest

from headrace.cli import moving
from headrace.cli.moving import Copied, Planned
from headrace.client.describe import LogDir, ReplicaDir
from headrace.client.errors import BrokerError

PLAN = {("a", 0): Planned((1, 2), (3, 4)), ("a", 1): Planned((1,), (1, 3))}


def directory(broker: int, **sizes: int) -> LogDir:
    """The log directory of a broker, with a size for `a0`, `a1`, ..."""
    replicas = tuple(ReplicaDir(name[0], int(name[1:]), size, 0, False) for name, size in sizes.items())
    return LogDir(broker, "/data", 0, -1, -1, replicas)


def test_bytes_of_replicas_that_come() -> None:
    copied = Copied(PLAN)
    assert copied.brokers == {1, 2, 3, 4}
    both = set(PLAN)
    assert copied.measure([directory(1, a0=90, a1=50), directory(2, a0=100)], both) == (0, 2 * 100 + 50)
    found = [directory(1, a0=100, a1=60), directory(2, a0=100), directory(3, a0=30, a1=70), directory(4, a0=5)]
    assert copied.measure(found, both) == (30 + 5 + 60, 2 * 100 + 60), "a replica has at most what there is to copy"


def test_a_move_that_has_ended_has_copied_all() -> None:
    copied = Copied(PLAN)
    copied.measure([directory(2, a0=100), directory(1, a1=50)], set(PLAN))
    assert copied.measure([directory(3, a0=80, a1=10), directory(1, a1=50)], {("a", 1)}) == (200 + 10, 250)
    assert Copied(PLAN).measure([], set()) == (0, 0), "what ended before the first look counts as nothing"


def test_a_future_replica_in_the_next_directory_is_none_that_comes() -> None:
    future = LogDir(3, "/other", 0, -1, -1, (ReplicaDir("a", 0, 999, 0, True),))
    assert Copied(PLAN).measure([directory(2, a0=100), future], set(PLAN)) == (0, 200)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_bar_counts_bytes_and_outlives_a_dying_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    left = [set(PLAN), set(PLAN), {("a", 1)}, set()]
    found: list[list[LogDir] | None] = [[directory(2, a0=100), directory(1, a1=50), directory(3, a0=60)], None]
    found.append([directory(1, a1=50), directory(3, a1=25)])

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += 2.0

    def describe_log_dirs(_: Any, topics: Iterable[str], *, brokers: Iterable[int]) -> list[LogDir]:
        assert (set(topics), set(brokers)) == ({"a"}, {1, 2, 3})
        if (answer := found.pop(0)) is None:
            raise BrokerError(-1, "log directories of broker 3")
        return answer

    monkeypatch.setattr("headrace.client.moves.list_moves", lambda *_: left.pop(0))
    monkeypatch.setattr("headrace.client.describe.describe_log_dirs", describe_log_dirs)
    monkeypatch.setattr(moving, "brokers_up", lambda _: dict.fromkeys((1, 2, 3)))
    monkeypatch.setattr(moving, "time", SimpleNamespace(monotonic=lambda: now_s, sleep=sleep))
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    moving._wait(None, PLAN, "moving")  # type: ignore[arg-type]  # nobody is asked
    assert not left and not found
    drawn = [line.strip() for line in terminal.getvalue().split("\r\x1b[K") if line]
    assert drawn == ["moving, 1 of 2 partitions done, [#####################...] 225/250 bytes (56/s)"]


@pytest.mark.parametrize("text", ["fast", "0", "10MB", "-1", "1.5MiB"])
def test_a_rate_that_is_none(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a rate such as"):
        moving.parse_rate(click.Context(click.Command("x")), click.Option(["--throttle"]), text)
