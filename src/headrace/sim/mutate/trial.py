"""One change tried: the tests of its package, then seeds of the simulator, in processes that import a changed copy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Final

from headrace.sim.mutate.ledger import SURVIVED
from headrace.sim.mutate.mutations import Mutation

SEEDS: Final = 60
PATIENCE_FACTOR: Final = 4.0
PATIENCE_MORE_S: Final = 30.0
SEEDS_PATIENCE_S: Final = 1200.0

KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "machine": ("--grouped", "--transactions"),
    "metadata": ("--cluster", "--dynamic"),
    "raft": ("--quorum", "--dynamic"),
    "controller": ("--cluster", "--raised"),
    "groups": ("", "--grouped"),
    "transactions": ("--transactions", "--grouped"),
    "replicas": ("--cluster", "--transactions"),
    "security": ("--guarded",),
}
"""The runs of the simulator in which a fault of a pure package can show; each has its share of the seeds."""
TRANSCRIPTS: Final = "tests/scripts/test_transcripts.py"
SELECTED: Final = ("-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", "not jvm and not slow")


class Run(Enum):
    """How a command ends, and what the ledger puts in front of its name."""

    PASSED = "passed "
    FAILED = ""
    KILLED = "no end of "


class Copy:
    """A copy of the source tree that processes import in the original's place."""

    def __init__(self, root: Path, folder: Path) -> None:
        """`root` is the checkout; the copy is made in `folder`."""
        self._root = root
        self._source = folder / "src"
        shutil.copytree(root / "src", self._source, ignore=shutil.ignore_patterns("__pycache__"))
        self._environment = {**os.environ, "PYTHONPATH": str(self._source)}
        self._patience_s: dict[str, float] = {}

    def measure(self, package: str) -> None:
        """Runs the tests of a package without a change. Raises RuntimeError if they fail: nothing follows from the
        failures of others then."""
        began = time.monotonic()
        command = self._tests(package)
        done = subprocess.run(
            command, cwd=self._root, env=self._environment, check=False, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"the tests of {package} fail without a change:\n{done.stdout[-2000:]}")
        self._patience_s[package] = (time.monotonic() - began) * PATIENCE_FACTOR + PATIENCE_MORE_S

    def outcome(self, mutation: Mutation) -> str:
        """Returns what notices a change, or SURVIVED."""
        package = mutation.file.split("/")[0]
        path = self._source / "headrace" / mutation.file
        source = path.read_bytes()
        self._put(path, mutation.applied(source))
        try:
            if (seen := self._run(self._tests(package), self._patience_s[package])) is not Run.PASSED:
                return f"{seen.value}tests"
            kinds = KINDS[package]
            for kind in kinds:
                if (seen := self._run(_seeds(kind, SEEDS // len(kinds)), SEEDS_PATIENCE_S)) is not Run.PASSED:
                    return f"{seen.value}seeds {kind}".rstrip()
        finally:
            self._put(path, source)
        return SURVIVED

    def _put(self, path: Path, source: bytes) -> None:
        """Writes a file whose compiled form, of another text and perhaps of the same second and size, must go."""
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()
        path.write_bytes(source)

    def _tests(self, package: str) -> list[str]:
        return [sys.executable, "-m", "pytest", *SELECTED, TRANSCRIPTS, f"tests/{package}"]

    def _run(self, command: Sequence[str], patience_s: float) -> Run:
        """Returns how a command ends, and kills it after its time; a change may well make an endless loop."""
        with subprocess.Popen(
            command, cwd=self._root, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            try:
                return Run.FAILED if process.wait(patience_s) else Run.PASSED
            except subprocess.TimeoutExpired:
                process.kill()
                return Run.KILLED


def _seeds(kind: str, count: int) -> list[str]:
    command = [sys.executable, "-m", "headrace.sim", "--seeds", f"1-{count}", "--first"]
    return [*command, kind] if kind else command
