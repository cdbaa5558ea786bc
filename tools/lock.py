"""Writes requirements.lock: every package that development, tests and the demo install, pinned, with hashes.

pip-compile resolves through pip's ordinary configuration; no address of any kind goes into the file.

    python tools/lock.py
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
HEADER = "# Written by tools/lock.py (make lock). Versions and hashes; where they come from is pip's configuration.\n"
OPTIONS = (
    "--quiet", "--generate-hashes", "--no-emit-index-url", "--no-emit-trusted-host", "--no-emit-find-links",
    "--no-header", "--no-annotate", "--strip-extras", "--allow-unsafe", "--all-build-deps", "--extra", "dev",
)  # fmt: skip


def pins_only(text: str) -> str:
    """`text` without comments, and without the project itself. Raises ValueError when an address is left."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("#", "headrace "))]
    addressed = [line for line in lines if "://" in line or line.startswith("-")]
    if addressed:
        raise ValueError(f"an address in the lock: {addressed[0]}")
    return HEADER + "\n".join(lines) + "\n"


def main() -> int:
    command = [sys.executable, "-m", "piptools", "compile", *OPTIONS, "--output-file", "-", "pyproject.toml"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    LOCK.write_text(pins_only(done.stdout))
    return 0


if __name__ == "__main__":
    sys.exit(main())
