"""Runs import-linter on the contracts of `.importlinter`, those packages left out that do not exist yet.

python tools/layers.py
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ROOT / "src" / "headrace"
NAMED = re.compile(r"^ +headrace\.(\w+)(?:.* -> headrace\.(\w+))?")


def existing_only(contracts: str) -> str:
    """The contracts without the lines that begin with a package that is not there."""
    lines = []
    for line in contracts.splitlines():
        named = NAMED.match(line)
        if named is None or all(exists(name) for name in named.groups() if name):
            lines.append(line)
    return "\n".join(lines) + "\n"


def exists(package: str) -> bool:
    """Whether src/headrace has this package or module."""
    return (PACKAGES / package / "__init__.py").exists() or (PACKAGES / f"{package}.py").exists()


def main() -> int:
    linter = Path(sys.executable).with_name("lint-imports")
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as file:
        file.write(existing_only((ROOT / ".importlinter").read_text()))
        file.flush()
        command = [str(linter), "--config", file.name, "--cache-dir", str(ROOT / ".import_linter_cache")]
        done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode != 0 or "KEPT" not in done.stdout:
        print(done.stdout + done.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
