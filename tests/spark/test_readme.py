"""The snippets of the README run in their order and print what it says; only the address of the broker differs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from cli.snippets import Shell, blocks_of

README = Path(__file__).resolve().parents[2] / "README.md"
ADDRESS = "127.0.0.1:9092"


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_snippets_do_what_the_readme_says(broker: Any, tmp_path: Path) -> None:
    shell = Shell(tmp_path, broker.bootstrap)
    kinds = []
    for language, text in blocks_of(README.read_text(encoding="utf-8")):
        if language == "console":
            kinds.append("shell")
            shell.follow(text)
        elif "def test_" in text:
            kinds.append("test")
            (tmp_path / "test_orders.py").write_text(text, encoding="utf-8")
            assert "1 passed" in shell.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_orders.py"])
        else:
            kinds.append("spark")
            assert text.count(ADDRESS) == 1
            shell.run([sys.executable, "-c", text.replace(ADDRESS, broker.bootstrap)])
    assert kinds == ["shell", "test", "spark", "shell"]
