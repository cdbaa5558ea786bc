"""Whole pipelines, as a person runs them: to the end, and until interrupted."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace
import headrace.testing
from headrace.client import admin
from headrace.client.cluster import Client

from .drivers import drive, finish, first_batch, kill, latest, make, send
from .expected import T0_S, iso, sessions_of, surge_of

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with headrace.testing.broker() as broker:
        yield broker.bootstrap


def test_surge_once(bootstrap: str, tmp_path: Path) -> None:
    make(bootstrap, "rides")
    events = [{"zone": f"z{n % 3}", "time": T0_S + 60 * n, "supply": n % 4 == 0} for n in range(200)]
    late = {"zone": "z0", "time": T0_S, "supply": True}
    in_time = {"zone": "z1", "time": T0_S + 60 * 170, "supply": True}
    send(bootstrap, "rides", [*events, in_time, late, b"no json", {"zone": "z0"}])
    arguments = ["surge", "--from", "rides", "--to", "surges", "--time-unit", "s", "--window", "10m"]
    arguments += ["--watermark", "1h", "--max-per-batch", "100", "--once"]
    picture = tmp_path / "surge.png"
    batches = finish(drive(bootstrap, tmp_path / "state", *arguments, "--plot", str(picture)))
    assert latest(bootstrap, "surges") == surge_of([*events, in_time], 600)
    assert sum(batch["rows"] for batch in batches) == 204
    assert [sum(batch[name] for batch in batches) for name in ("late", "unreadable")] == [1, 2]
    assert [batch["behind"] for batch in batches if batch["rows"]] == [104, 4, 0]
    assert picture.read_bytes().startswith(b"\x89PNG")
    with Client(bootstrap) as client:
        assert len(client.topic("surges").partitions) == 1
        (policy,) = (
            entry.value
            for entry in admin.describe_configs(client, admin.Resource.TOPIC, "surges")
            if entry.name == "cleanup.policy"
        )
    assert policy == "compact"
    written = headrace.scan("surges", bootstrap=bootstrap).num_rows
    assert [batch["rows"] for batch in finish(drive(bootstrap, tmp_path / "state", *arguments)) if batch["rows"]] == []
    assert headrace.scan("surges", bootstrap=bootstrap).num_rows == written, "a second run had nothing to do"


def test_sessions_once_with_late_events(bootstrap: str, tmp_path: Path) -> None:
    make(bootstrap, "clicks")

    def click(user: str, minutes: float, page: str = "/") -> dict[str, Any]:
        return {"user": user, "time": T0_S + minutes * 60, "page": page}

    ann = [click("ann", 0, "/a"), click("ann", 4, "/b")]
    bob = [click("bob", 20), click("bob", 27.5, "/between"), click("bob", 33)]
    cat = [click("cat", 34), click("cat", 32)]
    eve = [click("eve", 100), click("eve", 101)]
    late = [click("ann", 1), click("ann", 3), click("bob", 0)]
    # in batches of three; the watermark is 5 minutes behind: at 15 after the first, then 29, then 95
    send(bootstrap, "clicks", [*ann, bob[0], bob[2], *cat, bob[1], late[0], eve[0], *late[1:], eve[1]])
    arguments = ["sessions", "--from", "clicks", "--to", "visits", "--time-unit", "s", "--gap", "10m", "--watermark"]
    batches = finish(drive(bootstrap, tmp_path / "state", *arguments, "5m", "--max-per-batch", "3", "--once"))
    found = latest(bootstrap, "visits")
    assert found == sessions_of([*ann, *bob, *cat], 600), "eve's session may go on"
    assert found[f"bob|{iso(T0_S + 1200, 'milliseconds')}"]["events"] == 3, "one that came late made two sessions one"
    assert [batch["late"] for batch in batches if batch["rows"]] == [0, 0, 1, 2]
    assert sum(batch["rows"] for batch in batches) == 12


@pytest.mark.soak
def test_log_monitor_until_interrupted(bootstrap: str, tmp_path: Path) -> None:
    make(bootstrap, "logs")
    levels = ["INFO"] * 8 + ["error", "WARNING"]
    send(bootstrap, "logs", [{"svc": f"s{n % 2}", "time": iso(T0_S + n), "level": levels[n % 10]} for n in range(120)])
    arguments = ["log-monitor", "--from", "logs", "--to", "alerts", "--service-field", "svc", "--alert-lines", "30"]
    driver = drive(bootstrap, tmp_path, *arguments, "--alert-rate", "0.2", "--error-level", "error")
    try:
        assert first_batch(driver)["rows"] == 120
        # as a terminal does it: the driver and its JVM get the signal
        os.killpg(driver.pid, signal.SIGINT)
        finish(driver)
    finally:
        if driver.poll() is None:
            kill(driver)
    assert {key: (row["lines"], row["errors"], row["alert"]) for key, row in latest(bootstrap, "alerts").items()} == {
        f"s0|{iso(T0_S)}": (30, 6, True), f"s0|{iso(T0_S + 60)}": (30, 6, True),
        f"s1|{iso(T0_S)}": (30, 0, False), f"s1|{iso(T0_S + 60)}": (30, 0, False),
    }  # fmt: skip
