"""docs/pipelines.md is followed word for word: its blocks run in order, and commands print what the page says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from cli.snippets import Shell, blocks_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "pipelines.md"


@pytest.mark.jvm
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_page_of_pipelines(broker: Any, tmp_path: Path) -> None:
    shell, followed = Shell(tmp_path, broker.bootstrap), []
    for language, text in blocks_of(PAGE.read_text("utf-8")):
        followed.append(language)
        if language == "console":
            shell.follow(text)
        elif language == "sh":
            shell.run(["bash", "-e", "-o", "pipefail", "-c", text])
        elif language == "python":
            shell.run([sys.executable, "-c", text])
    assert followed.count("sh") == 4 and followed.count("console") >= 6
