"""The fenced blocks of a page, and its commands run by a shell as a reader would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PATIENCE_S = 300


def blocks_of(page: str) -> list[tuple[str, str]]:
    """The fenced blocks of a page that name a language: the language, and the text."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def commands_of(console: str) -> list[tuple[str, str]]:
    """The commands of a console block, each with the output below it."""
    return re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", console, re.MULTILINE)


class Shell:
    """Runs commands in a folder; those of `headrace` are on the path, and ask the broker at `bootstrap`."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.folder = folder
        self.environment = {
            **os.environ,
            "PATH": path,
            "HEADRACE_BOOTSTRAP": bootstrap,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }

    def run(self, command: list[str]) -> str:
        """What a command writes, errors included; it has to succeed."""
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, check=False, text=True, timeout=PATIENCE_S,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:]
        return done.stdout

    def follow(self, console: str) -> None:
        """Runs the commands of a console block, and compares what they write with the block."""
        for command, output in commands_of(console):
            assert self.run(["bash", "-o", "pipefail", "-c", command]) == output, command
