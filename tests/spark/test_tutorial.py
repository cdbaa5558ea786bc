"""docs/spark-tutorial.md does what it says: its cells run in order, and print what stands below them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .notebook import cells_of, tidied

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark-tutorial.md"
SCRIPT = Path(__file__).with_name("notebook.py")
PATIENCE_S = 600


def test_cells_are_read_with_what_stands_right_below_them() -> None:
    page = "```text\nfirst\n```\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n"
    page += "```sh\nls\n```\n\nmore\n\n```text\nx\n```\n"
    assert [(cell.language, cell.code, cell.wanted) for cell in cells_of(page)] == [
        ("python", "print(1)\n", "1\n"),
        ("sh", "ls\n", ""),
    ]


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(700)
def test_the_tutorial_prints_what_it_says(broker: Any, tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(PAGE), broker.bootstrap],
        check=False, capture_output=True, text=True, timeout=PATIENCE_S, cwd=tmp_path,
        env={**os.environ, "PATH": path, "HEADRACE_BOOTSTRAP": broker.bootstrap, "SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    cells = json.loads(done.stdout)
    for cell in cells:
        assert not cell["error"], f"{cell['code']}\n{cell['error']}"
        assert cell["found"] == tidied(cell["wanted"]), cell["code"]
    assert len(cells) == len(cells_of(PAGE.read_text("utf-8")))
    assert sum(bool(cell["wanted"]) for cell in cells) >= 8, "most cells show something"
