"""What the tests of whole pipelines share: records in, `headrace pipeline run` as a process, results out."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.client import admin
from headrace.client.cluster import Client
from headrace.client.producer import Producer

RUN_S = 240


def make(bootstrap: str, *topics: str, partitions: int = 1) -> None:
    """Topics, empty."""
    with Client(bootstrap) as client:
        for topic in topics:
            admin.create_topic(client, topic, partitions=partitions)


def send(bootstrap: str, topic: str, values: Iterable[Any], partitions: int = 1) -> None:
    """Objects as JSON, and bytes as they are, to the partitions in turn."""
    with Client(bootstrap) as client, Producer(client) as producer:
        for number, value in enumerate(values):
            text = value if isinstance(value, bytes) else json.dumps(value).encode()
            producer.send(topic, text, partition=number % partitions)


def latest(bootstrap: str, topic: str) -> dict[str, Any]:
    """The last value of every key."""
    rows = headrace.scan(topic, bootstrap=bootstrap, columns=["key", "value", "partition", "offset"]).to_pylist()
    rows.sort(key=lambda row: (row["partition"], row["offset"]))
    return {row["key"].decode(): json.loads(row["value"]) for row in rows}


def drive(bootstrap: str, checkpoint: Path, *arguments: str) -> subprocess.Popen[str]:
    """`headrace pipeline run ... --json`, in a group of processes of its own."""
    # On a signal that ends it Python tells the stacks of its threads.
    command = [sys.executable, "-X", "faulthandler", "-m", "headrace.cli", "pipeline", "run", *arguments]
    command += ["--json", "-b", bootstrap]
    command += ["--checkpoint", str(checkpoint), "--set", "spark.master=local[2]"]
    return subprocess.Popen(
        [*command, "--set", "spark.sql.shuffle.partitions=2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def first_batch(driver: subprocess.Popen[str]) -> dict[str, Any]:
    """Waits for the first batch that a driver reports."""
    assert driver.stdout is not None and driver.stderr is not None
    line = driver.stdout.readline()
    assert line, driver.stderr.read()
    batch: dict[str, Any] = json.loads(line)
    return batch


def kill(driver: subprocess.Popen[str]) -> None:
    """The driver and its JVM, at once."""
    os.killpg(driver.pid, signal.SIGKILL)
    driver.communicate()


def where_it_stands(driver: subprocess.Popen[str]) -> str:
    """Ends a driver that hangs: what it said, and the stacks of all of its threads, the JVM's and Python's."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            pid = int(process.name)
            if (process / "comm").read_text().strip() == "java" and os.getpgid(pid) == driver.pid:
                os.kill(pid, signal.SIGQUIT)  # it tells its stacks, and goes on
    try:
        driver.communicate(timeout=3)
    except subprocess.TimeoutExpired:
        driver.send_signal(signal.SIGABRT)
        driver.wait(10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    said, complaints = driver.communicate()
    return f"{said}\n{complaints}"


def finish(driver: subprocess.Popen[str], code: int = 0) -> list[dict[str, Any]]:
    """Waits until a driver ends by itself; the batches that it reported and nobody has read."""
    try:
        said, complaints = driver.communicate(timeout=RUN_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"a driver does not end: {where_it_stands(driver)}")
    finally:
        if driver.poll() is None:
            kill(driver)
    assert driver.returncode == code, complaints
    assert "Traceback" not in complaints, complaints
    return [json.loads(line) for line in said.splitlines()]
