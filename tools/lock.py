"""Writes the locks, with versions and hashes, through pip-compile.

requirements.lock has every package that development, tests and the demo install, requirements-broker.lock those of the
broker and of the tools for work on it, without Spark, in the same versions. pip-compile resolves through pip's ordinary
configuration; no address of any kind goes into the files.

    python tools/lock.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
BROKER_LOCK = ROOT / "requirements-broker.lock"
HEADER = "# Written by tools/lock.py (make lock). Versions and hashes; where they come from is pip's configuration.\n"
OPTIONS = (
    "--quiet", "--generate-hashes", "--no-emit-index-url", "--no-emit-trusted-host", "--no-emit-find-links",
    "--no-header", "--no-annotate", "--strip-extras", "--allow-unsafe", "--all-build-deps",
)  # fmt: skip


def pins_only(text: str) -> str:
    """`text` without comments, and without the project itself. Raises ValueError when an address is left."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("#", "headrace "))]
    addressed = [line for line in lines if "://" in line or line.startswith("-")]
    if addressed:
        raise ValueError(f"an address in the lock: {addressed[0]}")
    return HEADER + "\n".join(lines) + "\n"


def pins(extra: str, *constraints: Path) -> str:
    """What an extra of the project installs, within the versions of other locks."""
    command = [sys.executable, "-m", "piptools", "compile", *OPTIONS, "--extra", extra, "--output-file", "-"]
    for lock in constraints:
        command += ["--constraint", str(lock)]
    done = subprocess.run([*command, "pyproject.toml"], cwd=ROOT, check=True, capture_output=True, text=True)
    return pins_only(done.stdout)


def main() -> int:
    LOCK.write_text(pins("dev"))
    BROKER_LOCK.write_text(pins("tools", LOCK))
    return 0


if __name__ == "__main__":
    sys.exit(main())
