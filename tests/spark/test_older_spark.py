"""The tests of Spark once more, on the older PySpark that is supported: in its own environment and process."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from peers import spark

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.soak, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 600
TESTS = (
    # batch and stream, source and sink, update mode, AvailableNow
    "tests/spark/test_spark.py",
    "tests/spark/test_typed_values.py",
    # a pipeline, and its restart from a checkpoint
    "tests/pipelines/test_runs.py::test_surge_once",
    # planning and writing, without a JVM
    "tests/spark/test_source.py",
    "tests/spark/test_sink.py",
)
"""What touches an API of Spark that one version may have and another not."""
LEFT_OUT = "killed"
"""Tests with this in their names are about crashes, which the version has no part in, and take minutes."""
LAST_CHARACTERS = 8000


@pytest.fixture(scope="module")
def interpreter() -> Path:
    try:
        return spark.python()
    except RuntimeError as error:
        pytest.skip(str(error))


def test_the_tests_of_spark_pass_there(interpreter: Path, tmp_path: Path) -> None:
    asked = "import pyspark; print(pyspark.__version__)"
    version = subprocess.run([interpreter, "-c", asked], check=True, capture_output=True, text=True).stdout
    assert version.strip() == spark.PYSPARK_VERSION
    options = ["-q", "-rfEs", "--tb=short", "-p", "no:randomly", "-p", "no:cacheprovider"]
    options.append(f"--basetemp={tmp_path / 'inner'}")
    # Spark in this process may have left settings for its own workers
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    done = subprocess.run(
        [interpreter, "-m", "pytest", *options, "-k", f"not {LEFT_OUT}", *TESTS],
        check=False, capture_output=True, text=True, timeout=PATIENCE_S, cwd=ROOT,
        # a skip in there is a failure, as it is in CI
        env={**environment, "CI": "true"},
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-LAST_CHARACTERS:]
