"""Pages that a newcomer follows word for word: each command prints what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.snippets import Shell, blocks_of, commands_of

import headrace.testing

DOCS = Path(__file__).parents[2] / "docs"


def test_commands_are_read_with_their_output() -> None:
    page = "x\n```console\n$ one | two\n1\n2\n$ three\n```\n\n```\nplain\n```\n\n```python\nprint(1)\n```\n"
    assert blocks_of(page) == [("console", "$ one | two\n1\n2\n$ three\n"), ("python", "print(1)\n")]
    assert commands_of("$ one | two\n1\n2\n$ three\n") == [("one | two", "1\n2\n"), ("three", "")]


@pytest.mark.slow
def test_the_quick_start(tmp_path: Path) -> None:
    consoles = [
        text for language, text in blocks_of((DOCS / "quickstart.md").read_text("utf-8")) if language == "console"
    ]
    assert len(consoles) >= 2
    with headrace.testing.broker() as broker:
        shell = Shell(tmp_path, broker.bootstrap)
        for console in consoles:
            shell.follow(console)
