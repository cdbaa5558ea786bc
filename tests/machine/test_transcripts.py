"""The scripts of tests/scripts/machine, each against a fresh runtime; `--rewrite` writes what it does now."""

from __future__ import annotations

from pathlib import Path

import pytest
from groups.transcript import hold_to, rewritten
from machine.transcript import Machine

SCRIPTS = sorted((Path(__file__).parent.parent / "scripts" / "machine").glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_transcript(script: Path, request: pytest.FixtureRequest) -> None:
    hold_to(script, lambda text: rewritten(text, Machine()), request.config)


def test_there_are_scripts() -> None:
    assert SCRIPTS
