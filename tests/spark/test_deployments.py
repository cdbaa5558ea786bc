"""All of `format("headrace")` in the places where Spark runs: executors in processes of their own, a standalone cluster
with workers in other directories, and Spark Connect.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from peers import spark_cluster
from peers.spark_cluster import ConnectServer, Standalone

import headrace
import headrace.testing
from headrace.client.groups import fetch_offsets

from . import numbered
from .packed import environment_in_an_archive, python_without_it, zipped

ROWS = 200
PROGRAM = Path(__file__).parent / "everything.py"
ALL = ("batch", "write", "copy", "copy_once", "update", "state", "state_sink")
TOPICS = ("written", "written-once", "copied", "copied-once", "counts", "sums", "sums-once")
PATIENCE_S = 600


@pytest.fixture
def broker() -> Iterator[Any]:
    """With the topics of the program."""
    with headrace.testing.broker() as running:
        with running.client() as client:
            numbered.make(client, ROWS, *TOPICS)
        yield running


def run(broker: Any, directory: Path, variables: dict[str, str], *parts: str, python: str = sys.executable) -> None:
    """Run the program, and hold what came of it against the topic."""
    command = [python, str(PROGRAM), broker.bootstrap, str(directory / "checkpoints"), *parts]
    done = subprocess.run(
        command, cwd=directory, env={**os.environ, **variables}, capture_output=True, text=True, check=False,
        timeout=PATIENCE_S,
    )  # fmt: skip
    check(broker, done, parts)


def check(broker: Any, done: subprocess.CompletedProcess[str], parts: tuple[str, ...]) -> None:
    """What the parts of the program found and wrote is right."""
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-6000:]
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [each["part"] for each in said] == list(parts)
    if "batch" in parts:
        assert said[parts.index("batch")] == {"part": "batch", "rows": ROWS, "sum": sum(range(ROWS))}
    if "write" in parts:
        for topic in ("written", "written-once"):
            assert sorted(values(broker, topic)) == sorted(b"%d" % number for number in range(100))
    for part, topic in (("copy", "copied"), ("copy_once", "copied-once")):
        if part in parts:
            assert sorted(map(int, values(broker, topic))) == list(range(ROWS))
    sums: dict[bytes, int] = defaultdict(int)
    counts: dict[bytes, int] = defaultdict(int)
    for number in range(ROWS):
        sums[b"%d" % (number % 7)] += number
        counts[b"%d" % (number % 7)] += 1
    for part, topic, expected in (
        ("update", "counts", counts),
        ("state", "sums", sums),
        ("state_sink", "sums-once", sums),
    ):
        if part in parts:
            rows = headrace.scan(topic, bootstrap=broker.bootstrap).to_pylist()
            assert {row["key"]: int(row["value"]) for row in rows} == expected and len(rows) == len(expected)
    if "copy" in parts or "copy_once" in parts:
        with broker.client() as client:
            done_with = fetch_offsets(client, "everything").values()
            assert sum(at.offset for at in done_with) == ROWS, "the lag is 0"


def values(broker: Any, topic: str) -> list[bytes]:
    """What lies in a topic."""
    found: list[bytes] = headrace.scan(topic, bootstrap=broker.bootstrap)["value"].to_pylist()
    return found


def test_a_zip_and_no_compiled_module(broker: Any, tmp_path: Path) -> None:
    """What `--py-files` brings is enough to read and to write, with the dependencies that machines have."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import pyspark_headrace, headrace\n"
        "from headrace.spark.options import source_options\n"
        "from headrace.wire import _codec\n"
        "assert '.zip' in headrace.__file__ and '.zip' in _codec.__file__, _codec.__file__\n"
        "from headrace.spark.source import BatchReader\n"
        "options = {'kafka.bootstrap.servers': sys.argv[2], 'subscribe': 'numbers'}\n"
        "reader = BatchReader(source_options(options, streaming=False), 2)\n"
        "print(sum(rows.num_rows for task in reader.partitions() for rows in reader.read(task)))\n"
    )
    command = [str(python_without_it(tmp_path)), "-c", program, str(zipped(tmp_path)), broker.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{ROWS}\n"), done.stderr


@pytest.mark.jvm
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_spark_connect_in_this_process(broker: Any, tmp_path: Path) -> None:
    """`SparkSession.builder.remote("local[2]")`."""
    variables = spark_cluster.environment(spark_cluster.home(tmp_path)) | {"SPARK_REMOTE": "local[2]"}
    run(broker, tmp_path, variables, "batch", "copy_once")


@pytest.mark.jvm
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_connect_server(broker: Any, tmp_path: Path) -> None:
    """The program has no Java of its own; the server has the package."""
    with ConnectServer(tmp_path / "server") as server:
        run(broker, tmp_path, {"SPARK_REMOTE": server.address}, *ALL)


@pytest.mark.jvm
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_connect_server_without_the_package(broker: Any, tmp_path: Path) -> None:
    """The program brings it along, for its session alone; that is enough for batches, and not for streams."""
    with ConnectServer(tmp_path / "server", str(python_without_it(tmp_path))) as server:
        variables = {"SPARK_REMOTE": server.address, "BRING": str(zipped(tmp_path))}
        run(broker, tmp_path, variables, "batch", "write")


@pytest.mark.jvm
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_executors_of_their_own(broker: Any, tmp_path: Path) -> None:
    variables = spark_cluster.environment(spark_cluster.home(tmp_path))
    run(broker, tmp_path, variables | {"MASTER": "local-cluster[2,1,1024]"}, *ALL)


@pytest.mark.jvm
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_standalone_cluster_where_it_is_installed(broker: Any, tmp_path: Path) -> None:
    with Standalone(tmp_path / "cluster") as cluster:
        done = cluster.submit(PROGRAM, broker.bootstrap, str(tmp_path / "checkpoints"), *ALL)
        check(broker, done, ALL)


@pytest.mark.jvm
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_standalone_cluster_that_is_sent_a_zip(broker: Any, tmp_path: Path) -> None:
    """No machine has the package, the driver's neither."""
    with Standalone(tmp_path / "cluster", str(python_without_it(tmp_path))) as cluster:
        archive = str(zipped(tmp_path))
        done = cluster.submit(
            PROGRAM, broker.bootstrap, str(tmp_path / "checkpoints"), *ALL,
            options=["--py-files", archive],
            variables={"PYTHONPATH": archive},  # for the process that plans streams, which --py-files does not reach
        )  # fmt: skip
        check(broker, done, ALL)


@pytest.mark.jvm
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_standalone_cluster_that_is_sent_an_environment(broker: Any, tmp_path: Path) -> None:
    """No machine has the package or what it needs; the driver's has the environment under the same relative path."""
    archive = environment_in_an_archive(tmp_path)
    with Standalone(tmp_path / "cluster", "./environment/bin/python") as cluster:
        cluster.submits_from.mkdir()
        with tarfile.open(archive) as packed:
            packed.extractall(cluster.submits_from / "environment", filter="fully_trusted")
        done = cluster.submit(
            PROGRAM, broker.bootstrap, str(tmp_path / "checkpoints"), *ALL,
            options=["--archives", f"{archive}#environment"],
        )  # fmt: skip
        check(broker, done, ALL)
