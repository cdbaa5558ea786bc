"""The Pythons of this machine that the package says it runs on: on the path, or among those of pyenv.

Run as a script it says on which the wheel is tested, and which are not here.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

VERSIONS: Final = ("3.11", "3.12", "3.13")
"""Those that must be there: a test that lacks one is skipped by name, and with CI=true that fails the run."""
WHERE_THERE: Final = ("3.14",)
"""Those that are taken where a machine has them."""

_PROBE: Final = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"


@functools.cache
def find(version: str) -> str | None:
    """A Python of this version (`3.12`) that can make virtual environments; None where there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    candidates = [sys.executable, shutil.which(f"python{version}")]
    candidates += [str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python"))]
    return next((path for path in candidates if path and _version_of(path) == version), None)


def _version_of(command: str) -> str:
    """What it says when it runs: a shim of pyenv may have nothing behind it."""
    try:
        done = subprocess.run([command, "-c", _PROBE], check=False, capture_output=True, text=True, timeout=60)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def tested() -> list[str]:
    """The versions that tests are for."""
    return [*VERSIONS, *(version for version in WHERE_THERE if find(version))]


def main() -> None:
    there = [version for version in (*VERSIONS, *WHERE_THERE) if find(version)]
    absent = [version for version in (*VERSIONS, *WHERE_THERE) if version not in there]
    print(f"the wheel is tested on Python {', '.join(there)}" + (f"; not here: {', '.join(absent)}" if absent else ""))


if __name__ == "__main__":
    main()
