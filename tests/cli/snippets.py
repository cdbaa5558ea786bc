"""The fenced blocks of a page, and its commands run by a shell as a reader would run them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 300
FILES = {"properties", "json", "python"}
"""Languages of blocks that go into a file if the line above them names one."""
END_OF_FILE = "END-OF-FILE"
FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
FILE_NAME = re.compile(r"^ *`([\w.-]+)`[^\n]*:\n\n$", re.MULTILINE)
"""The line above a block that says into which file it goes."""


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


class Session:
    """Pages that are followed in one bash session, from an empty folder: their files are written, their commands run in
    order, and what those of console blocks write is compared. Whatever they leave running is ended."""

    def __init__(self, folder: Path) -> None:
        self.shell = Shell(folder, "")
        del self.shell.environment["HEADRACE_BOOTSTRAP"]
        self.shell.environment["HEADRACE_PROFILES"] = str(folder / "profiles.json")
        self._lines: list[str] = []
        self._expected: list[tuple[str, str]] = []

    def add(self, page: str) -> None:
        """Takes the page's blocks: files, `sh`, `console` and `python`."""
        for match in FENCE.finditer(page):
            indent, language, text = match.groups()
            text = textwrap.dedent(text) if indent else text
            name = re.search(FILE_NAME.pattern + r"\Z", page[: match.start()], re.MULTILINE)
            if name is not None and language in FILES:
                self._lines += [f"cat > {name[1]} <<'{END_OF_FILE}'", text + END_OF_FILE]
            elif language == "sh":
                self._lines.append(text)
            elif language == "python":
                self._lines += [f"python - <<'{END_OF_FILE}'", text + END_OF_FILE]
            elif language == "console":
                for command, output in commands_of(text):
                    self._lines.append(f"{{ {command}\n}} > output-{len(self._expected)} 2>&1")
                    self._expected.append((command, output))

    def run(self) -> None:
        """Follows all of it; every command has to succeed."""
        with self.followed():
            pass

    @contextmanager
    def followed(self) -> Iterator[None]:
        """The same; what the pages have started runs on until the end of the block."""
        folder = self.shell.folder
        script, log, mark = folder / "followed.sh", folder / "followed.log", folder / "followed"
        before = [
            "set -e -o pipefail",
            "trap 'kill $(jobs -pr) 2>/dev/null || true; wait' EXIT",
            "exec 9>&2",
            "BASH_XTRACEFD=9",
            "{",
        ]
        after = ["} < /dev/null", f"touch {mark}", "read -r || true"]
        script.write_text("\n".join([*before, *self._lines, *after]) + "\n")
        with log.open("wb") as written:
            bash = subprocess.Popen(
                ["bash", "-x", str(script)], cwd=folder, env=self.shell.environment, stdin=subprocess.PIPE,
                stdout=written, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        try:
            until = time.monotonic() + PATIENCE_S
            while bash.poll() is None and not mark.exists():
                assert time.monotonic() < until, log.read_text()[-3000:]
                time.sleep(0.05)
            self._compare(log.read_text()[-3000:])
            assert mark.exists(), log.read_text()[-3000:]
            yield
            bash.communicate(timeout=PATIENCE_S)
            assert bash.returncode == 0, log.read_text()[-3000:]
        finally:
            try:
                os.killpg(bash.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # nothing of it is left
            bash.communicate()

    def _compare(self, log: str) -> None:
        for number, (command, expected) in enumerate(self._expected):
            path = self.shell.folder / f"output-{number}"
            assert path.exists(), log
            assert path.read_text() == expected, f"{command}\n{log}"
