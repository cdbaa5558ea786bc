"""The demo as a user runs it, on the first days of the year: a broker, the replay, Spark, the sink, the check."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace
from demo import check, flights
from demo.broker import FLIGHTS, SURGE

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
DAYS = 4
RUN_PATIENCE_S = 240.0
END_PATIENCE_S = 120.0


def start(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    """`python -m demo`, in a session of its own, its temporary files in `tmp_path`."""
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, "-m", "demo", "--days", str(DAYS), "--out", str(tmp_path / "out"), *arguments]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def answers(bootstrap: str) -> bool:
    host, _, port = bootstrap.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return False
    return True


def running_in_session(leader: int) -> list[str]:
    """The commands of the processes of a session that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().rpartition(")")
        except OSError:
            continue  # it ended meanwhile
        state, _parent, _group, session = rest.split()[:4]
        if int(session) == leader and state != "Z":
            found.append(name)
    return found


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + END_PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.1)


def test_the_first_days_from_end_to_end(tmp_path: Path) -> None:
    demo = start(tmp_path, "--speed", "0", "--keep")
    said, _ = demo.communicate(timeout=RUN_PATIENCE_S)
    kept = re.search(r"the broker is up on (\S+), its data and log in (\S+)\. Look around:", said)
    broker = re.search(r"^  kill (\d+) ", said, re.MULTILINE)
    try:
        assert demo.returncode == 0, said
        assert kept is not None and broker is not None, said

        table = flights.of_the_first(DAYS, flights.load_flights())
        wanted = check.expected(table, flights.load_weather())
        assert len(wanted) > 150
        equal = re.search(r"^([\d,]+) airport-hours in ([\d,]+) records, all equal to pandas", said, re.MULTILINE)
        assert equal is not None, said
        assert int(equal[1].replace(",", "")) == len(wanted)
        assert re.search(r"^0 records dropped as late, as should be 0$", said, re.MULTILINE), said
        live = re.findall(r"flights +([\d,]+) \(.*\), lag of the query ([\d,]+); surge .* lag \d+; 0 dropped", said)
        assert live and live[-1] == (f"{len(table):,}", "0"), said

        chart = re.search(r"the chart: (\S+), and to look into: (\S+)$", said, re.MULTILINE)
        assert chart is not None, said
        assert Path(chart[1]).read_bytes().startswith(b"\x89PNG")
        assert "<!doctype html>" in Path(chart[2]).read_text(encoding="utf-8")
        parts = re.findall(r"^ +(\d+\.\d) s  (\S.*)$", said, re.MULTILINE)
        assert [name.split()[0] for _, name in parts] == [
            "starting", "reading", "starting", "replaying", "checking", "drawing", "in",
        ]  # fmt: skip
        assert float(parts[-1][0]) >= max(float(seconds) for seconds, _ in parts[:-1])

        last: dict[bytes, bytes] = {}
        for row in headrace.scan(SURGE, bootstrap=kept[1]).to_pylist():
            last[row["key"]] = row["value"]
        assert check.differences(check.as_table(last), wanted) == []
        assert headrace.scan(FLIGHTS, bootstrap=kept[1]).num_rows == len(table)
        assert set(json.loads(next(iter(last.values())))) >= {"origin", "hour", "demand", "supply", "surge"}
    finally:
        if broker is not None:
            os.kill(int(broker[1]), signal.SIGTERM)
    until(lambda: not answers(kept[1]), "the broker goes")
    until((Path(kept[2]) / "data" / ".kafka_cleanshutdown").exists, "it shuts down cleanly")
    until(lambda: not running_in_session(demo.pid), "Spark has gone with the demo")


@pytest.mark.soak
def test_the_leader_of_the_busiest_partition_is_killed_half_way(tmp_path: Path) -> None:
    demo = start(tmp_path, "--speed", "0", "--brokers", "3")
    said, _ = demo.communicate(timeout=RUN_PATIENCE_S)
    assert demo.returncode == 0, said
    assert len(re.findall(r"the broker answers on (127\.0\.0\.1:\d+,?){3}$", said, re.MULTILINE)) == 1, said
    killed = re.search(
        r"^node (\d), leader of flights-\d, was killed with SIGKILL; node (\d) led after (\d+\.\d+) s, "
        r"writes stood still (\d+\.\d+) s, in sync after (\d+\.\d) s$",
        said,
        re.MULTILINE,
    )
    assert killed is not None, said
    assert killed[1] != killed[2]
    assert 0 < float(killed[3]) <= float(killed[4]) + 5 and 0 < float(killed[4]) < 30
    wanted = check.expected(flights.of_the_first(DAYS, flights.load_flights()), flights.load_weather())
    equal = re.search(r"^([\d,]+) airport-hours in ([\d,]+) records, all equal to pandas", said, re.MULTILINE)
    assert equal is not None and int(equal[1].replace(",", "")) == len(wanted), said
    assert re.search(r"^0 records dropped as late, as should be 0$", said, re.MULTILINE), said
    live = [line for line in said.splitlines() if "lag of the query" in line]
    # a replay that goes as fast as it can may be over before anybody leads
    assert "was killed with SIGKILL; " in live[-1], said
    assert list((tmp_path / "tmp").glob("headrace-demo-*")) == []
    until(lambda: not running_in_session(demo.pid), "Spark has gone with the demo")


@pytest.mark.parametrize(
    ("number", "started"), [(signal.SIGINT, "python"), (signal.SIGTERM, "python"), (signal.SIGINT, "java")]
)
def test_a_demo_that_is_interrupted_leaves_nothing_behind(tmp_path: Path, number: signal.Signals, started: str) -> None:
    """Before there is a Java, and while one starts: left alone that one would never end, for PySpark has removed the
    directory in which it is to say where it listens."""
    demo = start(tmp_path)
    assert demo.stdout is not None
    bootstrap = ""
    for line in demo.stdout:
        if found := re.match(r"the broker answers on (\S+)$", line):
            bootstrap = found[1]
        if line.startswith("starting Spark"):
            break
    assert answers(bootstrap)
    until(lambda: any(name.endswith(f"({started}") for name in running_in_session(demo.pid)), f"{started} runs")
    demo.send_signal(number)
    rest = demo.communicate(timeout=END_PATIENCE_S)[0]
    assert demo.returncode == 128 + number, rest
    assert "Traceback" not in rest
    assert not answers(bootstrap)
    assert list((tmp_path / "tmp").glob("headrace-demo-*")) == []
    until(lambda: not running_in_session(demo.pid), "the Java that was starting has gone with the demo")
