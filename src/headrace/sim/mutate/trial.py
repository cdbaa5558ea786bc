"""The trial of one change: the tests of its package, then seeds of the simulator, in processes that import a changed
copy."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Final

from headrace.sim.mutate.ledger import SURVIVED
from headrace.sim.mutate.mutations import Mutation

SEEDS: Final = 60
CPU_FACTOR: Final = 4.0
CPU_MORE_S: Final = 30.0
SEEDS_CPU_S: Final = 1200.0
WAITING_FACTOR: Final = 20.0
"""How much longer than its bound of processor time a command may take in all: the machine may be busy, or it hangs."""

KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "machine": ("--grouped", "--transactions"),
    "metadata": ("--cluster", "--dynamic"),
    "raft": ("--quorum", "--dynamic"),
    "controller": ("--cluster", "--raised"),
    "groups": ("", "--grouped"),
    "transactions": ("--transactions", "--grouped"),
    "replicas": ("--replicas", "--cluster", "--transactions"),
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
        self._cpu_s: dict[str, float] = {}

    def measure(self, package: str) -> None:
        """Runs the tests of a package without a change. Raises RuntimeError if they fail: nothing follows from the
        failures of others then."""
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                self._tests(package), cwd=self._root, env=self._environment, stdout=output, stderr=subprocess.STDOUT
            )
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                output.seek(0)
                raise RuntimeError(f"the tests of {package} fail without a change:\n{output.read().decode()[-2000:]}")
        self._cpu_s[package] = (used.ru_utime + used.ru_stime) * CPU_FACTOR + CPU_MORE_S

    def outcome(self, mutation: Mutation) -> str:
        """Returns what notices a change, or SURVIVED."""
        package = mutation.file.split("/")[0]
        path = self._source / "headrace" / mutation.file
        source = path.read_bytes()
        self._put(path, mutation.applied(source))
        try:
            if (seen := self._run(self._tests(package, mutation.file), self._cpu_s[package])) is not Run.PASSED:
                return f"{seen.value}tests"
            kinds = KINDS[package]
            for kind in kinds:
                if (seen := self._run(_seeds(kind, SEEDS // len(kinds)), SEEDS_CPU_S)) is not Run.PASSED:
                    return f"{seen.value}seeds {kind}".rstrip()
        finally:
            self._put(path, source)
        return SURVIVED

    def _put(self, path: Path, source: bytes) -> None:
        """Writes a file whose compiled form, of another text and perhaps of the same second and size, must go."""
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()
        path.write_bytes(source)

    def _tests(self, package: str, changed: str = "") -> list[str]:
        """Returns the command that runs the tests of a package, those of the changed file first."""
        path = Path("tests", changed)
        mirrored = path.with_name(f"test_{path.stem}.py")
        first = [str(mirrored)] if changed and (self._root / mirrored).is_file() else []
        return [sys.executable, "-m", "pytest", *SELECTED, *first, TRANSCRIPTS, f"tests/{package}"]

    def _run(self, command: Sequence[str], cpu_s: float) -> Run:
        """Returns how a command ends. What a change makes endless is killed: by the kernel after this processor time,
        which a busy machine does not shorten, or if it waits for what never comes."""
        with subprocess.Popen(
            command, cwd=self._root, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (int(cpu_s), int(cpu_s) + 5))
            try:
                status = process.wait(cpu_s * WAITING_FACTOR)
            except subprocess.TimeoutExpired:
                process.kill()
                return Run.KILLED
        if status in (-signal.SIGXCPU, -signal.SIGKILL):
            return Run.KILLED
        return Run.FAILED if status else Run.PASSED


def _seeds(kind: str, count: int) -> list[str]:
    command = [sys.executable, "-m", "headrace.sim", "--seeds", f"1-{count}", "--first"]
    return [*command, kind] if kind else command
