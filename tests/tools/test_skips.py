"""A skipped test is named in a user's run, and fails the run where CI=true; what needs Java is skipped without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import pytest

def test_that_passes():
    pass

@pytest.mark.jvm
def test_that_needs_java():
    pass

@pytest.mark.skipif({}, reason="there is a reason")
def test_that_may_be_skipped():
    pass
"""


def run(folder: Path, skips: bool, *, ci: bool, path: str = os.environ.get("PATH", "")) -> tuple[int, str]:
    """The exit status and the output of a run of three tests under the project's own conftest."""
    (folder / "test_some.py").write_text(TESTS.format(skips))
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = jvm: needs Java\n")
    environment = {key: value for key, value in os.environ.items() if key != "CI" and not key.startswith("PYTEST")}
    environment |= {"PYTHONPATH": os.pathsep.join((str(ROOT / "tests"), str(ROOT))), "PATH": path}
    if ci:
        environment["CI"] = "true"
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "conftest", "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, cwd=folder, env=environment)
    return done.returncode, done.stdout


def test_a_users_run_names_what_it_skipped_and_passes(tmp_path: Path) -> None:
    status, said = run(tmp_path, True, ci=False, path="/nowhere")
    assert status == 0, said
    assert "1 passed, 2 skipped" in said
    assert "there is a reason" in said
    assert "java is not installed" in said


@pytest.mark.parametrize("skips", [True, False])
def test_with_ci_a_skip_fails_the_run(tmp_path: Path, skips: bool) -> None:
    """Without Java even where nothing else is skipped."""
    status, said = run(tmp_path, skips, ci=True, path="/nowhere")
    assert status == 1, said
    assert f"CI=true: {1 + skips} skipped, and a skip fails" in said


@pytest.mark.jvm
def test_with_ci_a_run_without_skips_passes(tmp_path: Path) -> None:
    status, said = run(tmp_path, False, ci=True)
    assert status == 0, said
    assert "3 passed" in said


def test_make_test_names_the_skips() -> None:
    assert "$(PYTEST) -rs" in (ROOT / "Makefile").read_text()
