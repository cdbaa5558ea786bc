"""The scripts of tests/scripts/groups, each against a fresh shard; `--rewrite` writes what the machine does now."""

from __future__ import annotations

from pathlib import Path

import pytest
from groups.transcript import Machine, hold_to, rewritten

SCRIPTS = sorted((Path(__file__).parent.parent / "scripts" / "groups").glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_transcript(script: Path, request: pytest.FixtureRequest) -> None:
    hold_to(script, lambda text: rewritten(text, Machine()), request.config)


def test_there_are_scripts() -> None:
    assert SCRIPTS
