"""docs/spark.md is followed word for word: its cells run in order in one session, and print what stands below them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .notebook import cells_of, tidied

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
SCRIPT = Path(__file__).with_name("notebook.py")
PATIENCE_S = 600


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(700)
def test_the_page_of_spark(broker: Any, tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(PAGE), broker.bootstrap],
        check=False, capture_output=True, text=True, timeout=PATIENCE_S, cwd=tmp_path,
        env={**os.environ, "PATH": path, "HEADRACE_BOOTSTRAP": broker.bootstrap, "SPARK_LOCAL_IP": "127.0.0.1",
             "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    cells = json.loads(done.stdout)
    assert [f"{cell['code']}\n{cell['error']}" for cell in cells if cell["error"]] == []
    shown = [(cell["code"], cell["found"], tidied(cell["wanted"])) for cell in cells if cell["wanted"]]
    assert [each for each in shown if each[1] != each[2]] == []
    assert len(cells) == len(cells_of(PAGE.read_text("utf-8")))
    assert len(shown) >= 7, "most cells show something"
