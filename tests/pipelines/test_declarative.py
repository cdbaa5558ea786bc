"""The declarative pipelines of examples/, run by `spark-pipelines` as a person does: to their end, and once more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peers.class_archive import java_options

import headrace
import headrace.testing

from .drivers import kill, latest, make, send
from .expected import T0_S, iso, surge_of

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(900)]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "declarative"
PATIENCE_S = 420


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with headrace.testing.broker() as broker:
        yield broker.bootstrap


def copy_of(name: str, directory: Path) -> Path:
    """An example with a storage of its own."""
    place = directory / name
    shutil.copytree(EXAMPLES / name, place)
    spec = place / "spark-pipeline.yml"
    text = spec.read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("storage: "))
    spec.write_text(text.replace(line, f"storage: {(directory / 'storage').as_uri()}"))
    return place


def run(place: Path, bootstrap: str) -> None:
    command = [str(Path(sys.executable).with_name("spark-pipelines")), "run"]
    environment = {
        **os.environ, "HEADRACE_BOOTSTRAP": bootstrap, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": java_options(),
    }  # fmt: skip
    driver = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=place, env=environment,
        start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = driver.communicate(timeout=PATIENCE_S)
    finally:
        # Java starts Python, which starts Java: all of them
        if driver.poll() is None:
            kill(driver)
    assert driver.returncode == 0, said[-6000:]


@pytest.mark.soak
def test_surge_twice(bootstrap: str, tmp_path: Path) -> None:
    make(bootstrap, "rides", "surges")
    events = [{"zone": f"z{n % 3}", "time": iso(T0_S + 60 * n), "supply": n % 4 == 0} for n in range(40)]
    place = copy_of("surge", tmp_path)
    send(bootstrap, "rides", [*events[:25], b"no json"])
    run(place, bootstrap)
    counted = [{**event, "time": T0_S + 60 * n} for n, event in enumerate(events)]
    # the watermark is 10 minutes behind the latest ride, at minute 24
    assert latest(bootstrap, "surges") == closed(surge_of(counted, 300), 14)
    send(bootstrap, "rides", events[25:])
    run(place, bootstrap)
    assert latest(bootstrap, "surges") == closed(surge_of(counted, 300), 29), "it went on from its checkpoint"
    assert headrace.scan("surges", bootstrap=bootstrap).num_rows == len(closed(surge_of(counted, 300), 29))


def closed(windows: dict[str, Any], minutes: int) -> dict[str, Any]:
    """The windows of five minutes that end by then."""
    return {key: row for key, row in windows.items() if row["start"] <= iso(T0_S + 60 * (minutes - 5))}


def test_log_monitor(bootstrap: str, tmp_path: Path) -> None:
    make(bootstrap, "logs", "error-rates", "alerts")
    levels = ["INFO"] * 8 + ["error", "WARNING"]
    lines = [{"service": f"s{n % 2}", "time": iso(T0_S + n), "level": levels[n % 10]} for n in range(240)]
    send(bootstrap, "logs", lines)
    run(copy_of("log-monitor", tmp_path), bootstrap)
    rates = latest(bootstrap, "error-rates")
    assert {key: (row["lines"], row["errors"], row["alert"]) for key, row in rates.items()} == {
        f"s{n}|{iso(T0_S + 60 * minute)}": (30, (6, 0)[n], n == 0) for n in range(2) for minute in range(2)
    }
    assert latest(bootstrap, "alerts") == {key: row for key, row in rates.items() if row["alert"]}
