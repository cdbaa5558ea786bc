"""Pipelines whose drivers are killed, and stopped: the last value of every key is what plain Python finds."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace.testing

from .drivers import drive, finish, first_batch, kill, latest, make, send
from .expected import T0_S, sessions_of, surge_of, windows_of

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

EVENTS = 24_000
A_BATCH = "400"
"""Small, so that a kill comes in the middle of much that is left to do."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with headrace.testing.broker() as broker:
        yield broker.bootstrap


def rides() -> list[dict[str, Any]]:
    return [{"zone": f"z{n % 12}", "time": T0_S + n, "supply": n % 5 < 2} for n in range(EVENTS)]


def clicks() -> list[dict[str, Any]]:
    """Each of 20 users comes back every hour, for 37 clicks."""
    return [
        {"user": f"u{n // 37 % 20}", "time": T0_S + 5 * n, "page": f"/p{n * n % 7}"} for n in range(EVENTS)
    ]  # fmt: skip


def lines() -> list[dict[str, Any]]:
    """About one in twenty of each of 7 services is an error."""
    return [
        {"service": f"s{n % 7}", "time": T0_S + n, "level": "error" if n * n % 101 < 5 else "INFO"}
        for n in range(EVENTS)
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("surge", (signal.SIGKILL,)),
        pytest.param("sessions", (signal.SIGKILL,), marks=pytest.mark.soak),
        pytest.param("log-monitor", (signal.SIGTERM, signal.SIGKILL), marks=pytest.mark.soak),
    ],
)
def test_a_killed_driver_changes_no_result(
    bootstrap: str, tmp_path: Path, name: str, ends: tuple[signal.Signals, ...]
) -> None:
    """Runs that end at random moments, and a last one to the end."""
    source, sink = f"{name}-in", f"{name}-out"
    make(bootstrap, source, partitions=2)
    if name == "surge":
        events, wanted = rides(), surge_of(rides(), 300)
        options = ["--watermark", "1d"]
    elif name == "log-monitor":
        events, wanted = lines(), windows_of(lines(), 300)
        options = ["--watermark", "1d", "--window", "5m"]
        assert 0 < sum(window["alert"] for window in wanted.values()) < len(wanted)
    else:
        events, wanted = clicks(), sessions_of(clicks(), 600)
        options = ["--watermark", "10m", "--gap", "10m"]
    send(bootstrap, source, events, partitions=2)
    arguments = [name, "--from", source, "--to", sink, "--time-unit", "s", *options]
    for end in ends:
        driver = drive(bootstrap, tmp_path, *arguments, "--max-per-batch", A_BATCH, "--trigger", "0s")
        try:
            first_batch(driver)
            time.sleep(random.uniform(0.0, 2.0))
            if end == signal.SIGTERM:
                driver.terminate()
                finish(driver)
        finally:
            if driver.poll() is None:
                kill(driver)
    # far later, so that the watermark closes every session; its own stays open
    clock = {"zone": "clock", "user": "clock", "time": T0_S + 10 * EVENTS, "supply": False, "page": "/"}
    if name == "sessions":
        send(bootstrap, source, [clock])
    batches = finish(drive(bootstrap, tmp_path, *arguments, "--once"))
    assert 1000 < sum(batch["rows"] for batch in batches) < EVENTS, "each run goes on where the one before it was"
    assert sum(batch["late"] for batch in batches) == 0
    found = latest(bootstrap, sink)
    assert found.keys() == wanted.keys()
    assert found == wanted
