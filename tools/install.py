"""Installs what a lock pins, and the project itself, into the environment whose Python runs this; says how far it is.

    .venv/bin/python tools/install.py requirements.lock

Run before anything else is installed: it imports the standard library alone.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TextIO

ROOT: Final = Path(__file__).resolve().parents[1]
SIZES_MB: Final = {"requirements.lock": 1250, "requirements-broker.lock": 215}
"""What an environment takes on disk, about."""
PIP: Final = (sys.executable, "-u", "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off")
COLLECTING: Final = re.compile(r"Collecting ([\w.-]+)==([^\s;]+)")
DOWNLOADING: Final = re.compile(r"\s+Downloading .*\(([\d.]+ [kMG]?B)\)")
LINES_PER_RUN: Final = 8
"""So often a log without a terminal hears how far it is."""


def pins(lock: str) -> int:
    """How many packages a lock has."""
    return len(re.findall(r"^[A-Za-z0-9._-]+==", lock, re.MULTILINE))


class Progress:
    """A line that is written over on a terminal; some lines elsewhere."""

    def __init__(self, total: int, out: TextIO) -> None:
        self._total = total
        self._out = out
        self._is_terminal = out.isatty()
        self._count = 0
        self._name = ""

    def heard(self, line: str) -> None:
        """Looks at a line of pip's."""
        collecting, downloading = COLLECTING.match(line), DOWNLOADING.match(line)
        if collecting is not None:
            self._count += 1
            self._name = f"{collecting[1]} {collecting[2]}"
            self._show(self._name, is_step=self._count % max(1, self._total // LINES_PER_RUN) == 0)
        elif downloading is not None and downloading[1].endswith(("MB", "GB")):
            self._show(f"{self._name}, {downloading[1]}", is_step=float(downloading[1].split()[0]) >= 100)
        elif line.startswith("Installing collected packages"):
            self._show("all are here; unpacking them takes as long again", is_step=True)
            self.end()

    def _show(self, text: str, *, is_step: bool) -> None:
        line = f"  {self._count:3} of {self._total}: {text}"
        if self._is_terminal:
            self._out.write(f"\r\x1b[K{line[:78]}")
        elif is_step:
            self._out.write(f"{line}\n")
        self._out.flush()

    def end(self) -> None:
        """What follows begins on a line of its own."""
        if self._is_terminal:
            self._out.write("\n")
            self._out.flush()


def run(command: Iterable[str], progress: Progress | None = None) -> int:
    """Runs pip, and shows what it says only if it fails; returns its exit status."""
    said: list[str] = []
    with subprocess.Popen(
        list(command), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if progress is not None:
                progress.heard(line)
    if process.returncode != 0:
        sys.stdout.write("\n" + "".join(said[-40:]))
    return process.returncode


def main(arguments: list[str]) -> int:
    (name,) = arguments
    lock = ROOT / name
    total = pins(lock.read_text())
    began = time.monotonic()
    size = f"{SIZES_MB[name]} MB on disk" if SIZES_MB[name] < 1000 else f"{SIZES_MB[name] / 1000:.1f} GB on disk"
    print(f"installing {total} packages with pinned versions and hashes into {sys.prefix}: about {size}", flush=True)
    status = run([*PIP, "--require-hashes", "-r", name], Progress(total, sys.stdout))
    if status == 0:
        print("compiling and installing Headrace itself", flush=True)
        status = run([*PIP, "--no-deps", "--no-build-isolation", "-e", ".", "-e", "./pipelines"])
    if status != 0:
        print(f"make install: pip ended with status {status}; what it said is above", file=sys.stderr)
        return 1
    print(f"installed in {time.monotonic() - began:.0f} s; next: . .venv/bin/activate", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
