"""The scripts of tests/scripts/replicas, each against a fresh machine; `--rewrite` writes what the machine does now."""

from __future__ import annotations

from pathlib import Path

import pytest
from groups.transcript import hold_to, rewritten
from replicas.transcript import Machine

SCRIPTS = sorted((Path(__file__).parent.parent / "scripts" / "replicas").glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_transcript(script: Path, request: pytest.FixtureRequest) -> None:
    hold_to(script, lambda text: rewritten(text, Machine()), request.config)


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 6
