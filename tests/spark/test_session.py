"""What register asks a session: its cores, and the Python of its workers."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import headrace.spark
from headrace.client.admin import create_topic
from headrace.client.producer import Producer
from headrace.spark.session import other_python, session_cores
from headrace.spark.tasks import machine_cores


def session_of(python: str = sys.executable, master: str = "local[3]", cores: int = 3) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master, pythonExec=python, defaultParallelism=cores))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another virtual environment of the same Python."""
    where = tmp_path_factory.mktemp("env") / "other"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(where)], check=True)
    return where


def test_workers_with_the_same_python() -> None:
    assert other_python(session_of()) is None


def test_workers_with_another_python(environment: Path) -> None:
    said = other_python(session_of(str(environment / "bin" / "python3")))
    assert said is not None and "\n" not in said
    assert said.startswith(f"Spark's workers would run {environment}/bin/python3 (of {environment}) and not the Python")
    assert said.endswith('create the session: os.environ["PYSPARK_PYTHON"] = sys.executable')


def test_workers_with_a_python_that_is_not_there() -> None:
    said = other_python(session_of("no-such-python"))
    assert said is not None and "no-such-python, which does not run" in said


def test_a_cluster_is_told_nothing() -> None:
    assert other_python(session_of("no-such-python", master="spark://h:7077")) is None


def test_cores() -> None:
    assert session_cores(session_of(cores=1)) == 1
    assert session_cores(session_of(master="local[*]", cores=64)) == 64
    many = machine_cores() + 1
    assert session_cores(session_of(master="yarn", cores=many)) == many
    assert session_cores(session_of(master="yarn", cores=1)) is None, "executors are still to come"


@pytest.mark.jvm
@pytest.mark.slow
def test_a_session_that_was_asked_plans_for_its_cores(spark: Any, broker: Any) -> None:
    with broker.client() as client:
        create_topic(client, "large", partitions=1)
        with Producer(client) as producer:
            for _ in range(4000):
                producer.send("large", b"x" * 10_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        headrace.spark.register(spark)
    options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "large"}
    rows = spark.read.format("headrace").options(**options).load()
    assert rows.rdd.getNumPartitions() == 2
    assert rows.count() == 4000
