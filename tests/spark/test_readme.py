"""The snippets of the README run in their order and print what it says; only the address of the broker differs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
ADDRESS = "127.0.0.1:9092"
PATIENCE_S = 300


def blocks_of(page: str) -> list[tuple[str, str]]:
    """The fenced blocks of a page: language and text."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def commands_of(console: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output below it."""
    return [(command, output) for command, output in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", console, re.MULTILINE)]


def test_commands_are_read_with_their_output() -> None:
    page = "x\n```console\n$ one | two\n1\n2\n$ three\n```\n\n```python\nprint(1)\n```\n"
    assert blocks_of(page) == [("console", "$ one | two\n1\n2\n$ three\n"), ("python", "print(1)\n")]
    assert commands_of("$ one | two\n1\n2\n$ three\n") == [("one | two", "1\n2\n"), ("three", "")]


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_snippets_do_what_the_readme_says(broker: Any, tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "HEADRACE_BOOTSTRAP": broker.bootstrap, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PYSPARK_PYTHON"] = sys.executable

    def run(command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, check=False, text=True, timeout=PATIENCE_S,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:]
        return done.stdout

    kinds = []
    for language, text in blocks_of(README.read_text(encoding="utf-8")):
        if language == "console":
            kinds.append("shell")
            for command, output in commands_of(text):
                assert run(["bash", "-o", "pipefail", "-c", command]) == output, command
        elif "def test_" in text:
            kinds.append("test")
            (tmp_path / "test_orders.py").write_text(text, encoding="utf-8")
            assert "1 passed" in run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_orders.py"])
        else:
            kinds.append("spark")
            assert text.count(ADDRESS) == 1
            run([sys.executable, "-c", text.replace(ADDRESS, broker.bootstrap)])
    assert kinds == ["shell", "test", "spark", "shell"]
