"""docs/testing.md is followed word for word: its tests pass as they stand there, and its script runs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from cli.snippets import Shell, blocks_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"
FILE_NAMES = ("test_orders.py", "test_failover.py")


@pytest.mark.slow
def test_the_page_of_testing(tmp_path: Path) -> None:
    text = PAGE.read_text("utf-8")
    blocks = [block for language, block in blocks_of(text) if language == "python"]
    tests = [block for block in blocks if "def test_" in block]
    assert re.findall(r"Put this into `(\w+\.py)`", text) == list(FILE_NAMES) and len(tests) == len(FILE_NAMES)
    shell = Shell(tmp_path, "")
    for name, block in zip(FILE_NAMES, tests):
        (tmp_path / name).write_text(block, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    assert "2 passed" in shell.run([*command, *FILE_NAMES])
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
    assert "1 passed" in shell.run([*command, "test_settings.py"])
