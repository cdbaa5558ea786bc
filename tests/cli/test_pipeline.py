"""`headrace pipeline`, as far as it goes without Spark: what there is, and what is wrong before Spark starts."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import headrace.testing
from headrace.cli import main
from headrace.client import admin

FROM_TO = ("--from", "in", "--to", "out", "--checkpoint")


def run(*arguments: str, code: int = 0) -> Result:
    done = CliRunner().invoke(main, ["pipeline", *arguments], prog_name="headrace")
    assert done.exit_code == code, (done.output, done.exception)
    return done


def test_the_list() -> None:
    about = {each["pipeline"]: each["about"] for each in json.loads(run("list", "--json").stdout)}
    assert list(about) == ["surge", "sessions", "log-monitor", "table-sync", "mirror"]
    lines = run("list").stdout.splitlines()
    assert lines[0].split() == ["PIPELINE", "ABOUT"]
    assert [line.split(maxsplit=1) for line in lines[1:]] == [[name, text] for name, text in about.items()]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "in"], "the pipeline would read what it writes"),
        (["--window", "5 minutes"], "'5 minutes' is not a time such as 500ms, 10s, 5m, 12h or 7d"),
        (["--window", "1500ms"], "'1500ms' is not a multiple of 1000 ms"),
        (["--window", "0s"], "'0s' is not a multiple"),
        (["--starting-offsets", "first"], "'startingOffsets' must be 'earliest' or 'latest' or offsets as JSON, not"),
        (["--set", "spark.master"], "'spark.master' is not KEY=VALUE"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: list[str], words: str) -> None:
    done = run("run", "surge", *FROM_TO, str(tmp_path), *arguments, code=2)
    (line,) = done.stderr.splitlines()
    assert line.startswith("headrace: ") and words in line


def test_without_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    without = lambda name, *rest: None if name == "pyspark" else real(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", without)
    done = run("run", "surge", *FROM_TO, str(tmp_path), code=1)
    assert done.stderr == "headrace: Spark is not installed; `pip install headrace[spark]` installs it\n"


def test_a_picture_that_cannot_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = run("run", "surge", *FROM_TO, str(tmp_path), "--plot", str(tmp_path / "no" / "x.png"), code=2)
    assert f"there is no directory {tmp_path / 'no'}" in there.stderr
    assert "it must end in .png" in run("run", "surge", *FROM_TO, str(tmp_path), "--plot", "x.svg", code=2).stderr
    real = importlib.util.find_spec
    without = lambda name, *rest: None if name == "matplotlib" else real(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", without)
    done = run("run", "surge", *FROM_TO, str(tmp_path), "--plot", str(tmp_path / "x.png"), code=1)
    assert done.stderr == "headrace: matplotlib is not installed; `pip install headrace-pipelines[plot]` installs it\n"


def test_without_java(tmp_path: Path) -> None:
    """In a process of its own: this one may have started Java already."""
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "headrace.cli", "pipeline", "run", "surge", *FROM_TO, str(tmp_path / "state")]
    with headrace.testing.broker() as broker:
        with broker.client() as client:
            admin.create_topic(client, "in", partitions=3)
        done = subprocess.run(
            [*command, "-b", broker.bootstrap],
            env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        with broker.client() as client:
            assert len(client.topic("out").partitions) == 3
    (line,) = done.stderr.splitlines()
    log = tmp_path / "state" / "spark.log"
    assert line.startswith("headrace: Spark does not start; it needs Java 17 or later") and str(log) in line
    assert done.returncode == 1 and "java" in log.read_text()


def test_a_topic_that_is_not_there(tmp_path: Path) -> None:
    with headrace.testing.broker({"auto.create.topics.enable": "false"}) as broker:
        done = run("run", "surge", *FROM_TO, str(tmp_path), "-b", broker.bootstrap, code=4)
        with broker.client() as client:
            assert client.topics() == []
    assert "topic in" in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_checkpoint_of_something_else(tmp_path: Path) -> None:
    from headrace_pipelines.running import claim

    ours = {"pipeline": "surge", "window": "60000 milliseconds", "levels": ("a", "b")}
    claim(tmp_path, {"pipeline": "sessions"})
    claim(tmp_path, ours)  # nothing was planned with the other
    (tmp_path / "offsets").mkdir()
    claim(tmp_path, ours)
    with pytest.raises(ValueError, match="belongs to window '60000 milliseconds'; give that again"):
        claim(tmp_path, {**ours, "window": "1 hour"})
    done = run("run", "surge", *FROM_TO, str(tmp_path), "-b", "127.0.0.1:1", code=1)
    assert done.stderr.startswith(f"headrace: the checkpoint {tmp_path} belongs to ")
    assert len(done.stderr.splitlines()) == 1


def test_a_line_a_batch_and_what_it_came_to(capsys: pytest.CaptureFixture[str]) -> None:
    from headrace_pipelines.commands.driving import Report
    from headrace_pipelines.running import Batch

    for as_json in (False, True):
        with Report("surge", as_json) as report:
            report.add(Batch(0, 1200, 5400.4, 0, 3, 61, 222))
            report.add(Batch(1, 0, 0.0, 2, 0, 40, 90))
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "batch 0: 1,200 records, 5,400 a second, 0 dropped as late, 3 unreadable, 61 in the state",
        "batch 1: 0 records, 0 a second, 2 dropped as late, 0 unreadable, 40 in the state",
        "2 batches, 1,200 records; 2 dropped as late, 3 unreadable",
    ]
    assert [json.loads(line)["rows"] for line in lines[3:]] == [1200, 0]
