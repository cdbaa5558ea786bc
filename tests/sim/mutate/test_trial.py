"""Trials of changes: a small package whose tests notice one, and never end with another."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.sim.mutate import trial
from headrace.sim.mutate.mutations import mutations_of

SOURCE = "def count(end: int) -> int:\n    n = 0\n    while n != end:\n        n += 1\n    return n\n"
TEST = "from headrace.raft.counting import count\n\n\ndef test_it() -> None:\n    assert count(2) == 2\n"


@pytest.mark.slow
def test_a_failure_and_a_run_without_an_end_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    files = {
        "src/headrace/__init__.py": "",
        "src/headrace/raft/__init__.py": "",
        "src/headrace/raft/counting.py": SOURCE,
        "tests/raft/test_counting.py": TEST,
        trial.TRANSCRIPTS: "def test_nothing() -> None: ...\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # those of the real package, which this one hides
    monkeypatch.setattr(trial, "CPU_MORE_S", 1.0)
    copy = trial.Copy(root, tmp_path / "copy")
    copy.measure("raft")
    outcomes = {copy.outcome(each) for each in mutations_of("raft/counting.py", SOURCE.encode())}
    assert {"tests", "no end of tests"} <= outcomes
    assert (tmp_path / "copy/src/headrace/raft/counting.py").read_text() == SOURCE
