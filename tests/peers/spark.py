"""Spark beside which its own Kafka connector runs: the PySpark of the version that the connector's jars are made for.

A connector of one version in another's Spark may fail for reasons that have nothing to do with a broker, so this is a
second virtual environment, `.peers/spark/venv`. It holds PySpark alone and sees all else that the project's own has, so
that both sides of a comparison run the same packages. pip is asked through its ordinary configuration, once.

    python -m tests.peers.spark          brings the environment and the jars
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

from . import jars

PYSPARK_VERSION: Final = "4.2.0"
VENV: Final = jars.PEERS / "spark" / "venv"
MARK: Final = VENV / "complete.txt"
PIP_PATIENCE_S: Final = 1200
LAST_LINES: Final = 15


def _contents() -> str:
    """What the environment is made of; another Python or another version makes it anew."""
    return f"pyspark {PYSPARK_VERSION}, python {sys.version.split()[0]} of {sys.prefix}"


def complete() -> bool:
    """Whether the environment is here."""
    return MARK.exists() and MARK.read_text() == _contents()


def python() -> Path:
    """The environment's interpreter; makes the environment if it is not here yet. Raises RuntimeError."""
    interpreter = VENV / "bin" / "python"
    if complete():
        return interpreter
    shutil.rmtree(VENV, ignore_errors=True)
    _run(sys.executable, "-m", "venv", "--without-pip", str(VENV))
    _run(sys.executable, "-m", "pip", "--python", str(interpreter), "install", "--quiet", f"pyspark=={PYSPARK_VERSION}")
    packages = sysconfig.get_path("purelib")
    ours = VENV / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    # the project's own packages come after, and with what their own .pth files say (headrace is installed so)
    (ours / "project.pth").write_text(f"import site; site.addsitedir({packages!r})\n")
    MARK.write_text(_contents())
    return interpreter


def connector() -> tuple[Path, ...]:
    """The connector's jars, brought by Maven if they are not here yet. Raises RuntimeError."""
    return tuple(sorted(jars.ensure(jars.SPARK).glob("*.jar")))


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PIP_PATIENCE_S)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).splitlines()[-LAST_LINES:]
        raise RuntimeError(f"PySpark {PYSPARK_VERSION} could not be installed: " + "\n".join(said))


if __name__ == "__main__":
    print(f"PySpark {PYSPARK_VERSION} in {python().relative_to(jars.ROOT)}, {len(connector())} jars of its connector")
