"""mypy at its strictest accepts a user's program, and names what is wrong in another: the package brings its types."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("user_script.py")
WRONG = """
from headrace.client import Client, TransactionalProducer
Client(9092)
TransactionalProducer(Client(), "id", linger="5")
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("pyspark") is None, reason="PySpark is not installed")
def test_mypy_accepts_what_is_right_and_names_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(SCRIPT.read_text("utf-8"), encoding="utf-8")
    (tmp_path / "wrong.py").write_text(WRONG, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "right.py", "wrong.py"],
        cwd=tmp_path, check=False, capture_output=True, text=True,
        env={name: value for name, value in os.environ.items() if name != "MYPYPATH"},
    )  # fmt: skip
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line.split(":")[0] for line in errors] == ["wrong.py"] * 2, done.stdout + done.stderr
    assert 'Argument 1 to "Client"' in errors[0] and '"linger" for "TransactionalProducer"' in errors[1]


def test_the_package_says_that_it_has_types() -> None:
    package = find_spec("headrace")
    assert package is not None and package.submodule_search_locations is not None
    (where,) = package.submodule_search_locations
    assert (Path(where) / "py.typed").exists()
