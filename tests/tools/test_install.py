"""`make install` says what it does, how large it is, and how far it is."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from tools import install, lock

PIP_SAYS = """\
Collecting a==1 (from -r x.lock (line 1))
  Downloading a-1.whl (3 kB)
Collecting b-c==2.0 (from -r x.lock (line 2))
  Downloading b_c-2.0.tar.gz (450.2 MB)
Collecting d==3
  Using cached d-3.whl (1.0 MB)
Installing collected packages: a, b-c, d
Successfully installed a-1 b-c-2.0 d-3
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(out: io.StringIO, total: int) -> str:
    progress = install.Progress(total, out)
    for line in PIP_SAYS.splitlines(keepends=True):
        progress.heard(line)
    return out.getvalue()


def test_a_log_hears_how_far_it_is() -> None:
    assert shown(io.StringIO(), 8 * 2).splitlines() == [
        "    2 of 16: b-c 2.0",
        "    2 of 16: b-c 2.0, 450.2 MB",
        "    3 of 16: all are here; unpacking them takes as long again",
    ]


def test_a_terminal_has_one_line_that_is_written_over() -> None:
    text = shown(Terminal(), 3)
    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert next(part for part in text.replace("\x1b[K", "").split("\r") if part) == "    1 of 3: a 1"


@pytest.mark.parametrize("path", [lock.LOCK, lock.BROKER_LOCK], ids=lambda path: path.name)
def test_each_lock_has_a_size(path: Path) -> None:
    assert install.SIZES_MB[path.name] > 100
    assert install.pins(path.read_text()) > 20


def test_what_pip_says_is_shown_if_it_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert install.run([sys.executable, "-c", "print('fine')"]) == 0
    assert capsys.readouterr().out == ""
    assert install.run([sys.executable, "-c", "print('no such version'); raise SystemExit(3)"]) == 3
    assert "no such version" in capsys.readouterr().out


def test_make_test_looks_at_the_system_before_it_starts() -> None:
    for target, purpose in (("test", "test"), ("demo", "demo")):
        command = ["make", "--dry-run", target]
        said = subprocess.run(command, cwd=install.ROOT, check=True, capture_output=True, text=True).stdout
        first = said.index(f"tools/system_deps.sh {purpose} --if-root")
        assert first < said.index("-m pytest" if target == "test" else "-m demo")
