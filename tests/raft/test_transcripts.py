"""The scripts of tests/scripts/raft, each against a fresh quorum; `--rewrite` writes what the machine does now."""

from __future__ import annotations

from pathlib import Path

import pytest
from groups.transcript import hold_to
from raft.transcript import rewritten

SCRIPTS = sorted((Path(__file__).parent.parent / "scripts" / "raft").glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_transcript(script: Path, request: pytest.FixtureRequest) -> None:
    hold_to(script, rewritten, request.config)


def test_there_are_scripts() -> None:
    assert SCRIPTS
