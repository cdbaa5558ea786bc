"""docs/testing.md is followed word for word: its tests pass as they stand there, and its script runs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from cli.snippets import Shell, blocks_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"
FILE_NAMES = ("test_orders.py", "test_failover.py", "test_spark.py")
WITH_SPARK = "test_spark.py"
"""The one that needs Java."""
COMMAND = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]


def python_blocks() -> list[str]:
    return [block for language, block in blocks_of(PAGE.read_text("utf-8")) if language == "python"]


def write_tests(folder: Path) -> None:
    """Puts each test of the page into the file that the page names."""
    tests = [block for block in python_blocks() if "def test_" in block]
    names = re.findall(r"Put this into `(\w+\.py)`", PAGE.read_text("utf-8"))
    assert names == list(FILE_NAMES) and len(tests) == len(FILE_NAMES)
    for name, block in zip(FILE_NAMES, tests):
        (folder / name).write_text(block, encoding="utf-8")


@pytest.mark.slow
def test_the_page_of_testing(tmp_path: Path) -> None:
    write_tests(tmp_path)
    blocks, shell = python_blocks(), Shell(tmp_path, "")
    assert "2 passed" in shell.run([*COMMAND, *(name for name in FILE_NAMES if name != WITH_SPARK)])
    (script,) = (block for block in blocks if "headrace.testing.broker(" in block)
    bootstrap, port = shell.run([sys.executable, "-c", script]).split()
    assert bootstrap == f"127.0.0.1:{port}"
    (settings,) = (block for block in blocks if "def headrace_settings" in block)
    (tmp_path / "conftest.py").write_text(settings, encoding="utf-8")
    (tmp_path / "test_settings.py").write_text(
        "from headrace.client.admin import create_topic\n\n\n"
        "def test_three(headrace_broker):\n"
        "    with headrace_broker.client() as client:\n"
        "        create_topic(client, 't')\n"
        "        assert len(client.partitions('t')) == 3\n"
    )
    assert "1 passed" in shell.run([*COMMAND, "test_settings.py"])


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_spark_test_of_the_page(tmp_path: Path) -> None:
    write_tests(tmp_path)
    assert "1 passed" in Shell(tmp_path, "").run([*COMMAND, WITH_SPARK])
