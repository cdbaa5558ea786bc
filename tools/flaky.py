"""Runs the tests that a change touches again and again on a busy machine: a test that needs luck fails here first.

    python -m tools.flaky --since main~5

The files are the tests that changed since a commit, those beside a changed file that tests share, and those of every
package whose source changed. While they run, each core has another process that wants all of it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
ROUNDS: Final = 10
SOURCE: Final = PurePosixPath("src/headrace")
TESTS: Final = PurePosixPath("tests")
NOT_OK: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


def changed_since(commit: str, root: Path = ROOT) -> list[str]:
    """Returns the files that differ from `commit`, committed or not, deleted ones left out."""
    compared = ["git", "diff", "--name-only", "--diff-filter=d", commit]
    added = ["git", "ls-files", "--others", "--exclude-standard"]
    found = [
        subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.splitlines()
        for command in (compared, added)
    ]
    return sorted({name for names in found for name in names})


def test_files(changed: Iterable[str], every: Iterable[str]) -> list[str]:
    """Returns those of the test files `every` that a change of the files `changed` asks for, sorted."""
    tests = {PurePosixPath(name) for name in every}
    folders = {test.parent for test in tests}
    wanted: set[PurePosixPath] = set()
    for name in map(PurePosixPath, changed):
        if name in tests:
            wanted.add(name)
        elif name.suffix == ".py" and name.is_relative_to(TESTS):
            wanted |= {test for test in tests if test.parent == name.parent}
        elif name.suffix == ".py" and name.is_relative_to(SOURCE):
            package = TESTS / name.parent.relative_to(SOURCE)
            # a package without tests of its own is tested with the one that holds it
            while package not in folders and package != TESTS:
                package = package.parent
            wanted |= {test for test in tests if test.parent == package != TESTS}
    return sorted(map(str, wanted))


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """Keeps that many cores busy for as long as the block lasts."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def run(files: list[str], rounds: int, options: list[str]) -> Counter[str]:
    """Returns how often each test failed. A run that ends without a verdict counts under its exit status."""
    failed: Counter[str] = Counter()
    for number in range(1, rounds + 1):
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", *options, *files]
        with busy(os.cpu_count() or 1):
            done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
        names = NOT_OK.findall(done.stdout)
        lines = done.stdout.rstrip().splitlines() or ["pytest printed nothing"]
        print(f"round {number}: {lines[-1]}", flush=True)
        if done.returncode:
            print(done.stdout[-20_000:], flush=True)
        failed.update(names or ([f"pytest ended with exit status {done.returncode}"] if done.returncode else []))
    return failed


def main() -> int:
    """Returns the exit status: 1 if a test failed in any round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--since", required=True, help="the commit that the change began at")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("options", nargs="*", help="more options of pytest, behind --")
    chosen = parser.parse_args()
    every = [str(path.relative_to(ROOT)) for path in ROOT.joinpath(TESTS).rglob("test_*.py")]
    files = test_files(changed_since(chosen.since), every)
    if not files:
        print(f"nothing that changed since {chosen.since} has tests")
        return 0
    print(f"{len(files)} files of tests, {chosen.rounds} rounds: {' '.join(files)}", flush=True)
    failed = run(files, chosen.rounds, chosen.options)
    for name, times in failed.most_common():
        print(f"failed in {times} of {chosen.rounds} rounds: {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
