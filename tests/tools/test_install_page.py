"""docs/install.md is followed word for word, in a copy of a checkout, by a reader who is not root.

Not followed, with the reason:

- `make install`: it installs the environment that these tests run in.
- `make dist`, except for the wheel of Python files, which is built here: `test_dist.py` builds the others.
- `systemctl` and `systemd-sysusers`: they change the machine. They are recorded, paths of the machine lie in a folder
  of the test, and what systemd would run is run.
- `docker`: it needs a daemon. `test_image.py` builds the image and runs its node without one.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli.snippets import Shell, blocks_of

from headrace import __version__
from headrace.cli.serve.environment import settings_of
from tools.dist import sources

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "install.md").read_text("utf-8")
PIP = "With pip, into an environment of your own"
SYSTEMD = "As a systemd service"
FOLLOWED = (PIP, SYSTEMD)
NOT_FOLLOWED = ("From a checkout, to try it or to work on it", "As a container")
STOP_PATIENCE_S = 60
NO_COMPILER = "no-such-cc"
RECORDED = ("systemctl", "systemd-sysusers")


def blocks(title: str) -> list[str]:
    parts = re.split(r"^## (.+)\n", PAGE, flags=re.MULTILINE)
    return [text for _, text in blocks_of(dict(zip(parts[1::2], parts[2::2], strict=True))[title])]


def test_each_section_with_commands_is_followed_or_has_a_reason() -> None:
    titles = [title for title in re.findall(r"^## (.+)$", PAGE, re.MULTILINE) if blocks(title)]
    assert sorted(titles) == sorted([*FOLLOWED, *NOT_FOLLOWED])


def test_the_variable_of_the_page_is_the_setting_beside_it() -> None:
    ((variable, value, setting),) = re.findall(r"`(HEADRACE_SERVER_\w+)=(\S+)` is `(\S+)`", PAGE)
    name, _, wanted = setting.partition("=")
    assert settings_of({variable: value}) == {name: wanted}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a checkout in which `make dist` has made the wheel of Python files."""
    folder = sources(tmp_path_factory.mktemp("checkout"))
    shutil.copytree(ROOT / "packaging", folder / "packaging")
    shutil.copytree(ROOT / "pipelines", folder / "pipelines", symlinks=True)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "dist", "."]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "CC": NO_COMPILER}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def shell(checkout: Path, tmp_path: Path) -> Shell:
    """One whose home is empty, and which has no compiler, as compiling is not what the page is about."""
    found = Shell(checkout, "")
    found.environment |= {"CC": NO_COMPILER, "HOME": str(tmp_path), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    found.environment["PATH"] = f"{tmp_path / 'bin'}:{found.environment['PATH']}"
    for name in ("HEADRACE_BOOTSTRAP", "PYTHONPATH", "VIRTUAL_ENV"):
        found.environment.pop(name, None)
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_pip_installs_and_removes_it(shell: Shell, tmp_path: Path) -> None:
    *installing, removing = blocks(PIP)
    assert "pip uninstall" in removing
    looking = f"command -v headrace\ncomplete -p headrace\n{removing}\nhash -r\npip list --format freeze"
    written = shell.run(["bash", "-e", "-o", "pipefail", "-c", "\n".join([*installing, looking])])
    assert re.search(rf"^headrace\b.* {re.escape(__version__)}$", written, re.MULTILINE)
    assert f"\n{tmp_path}/headrace/bin/headrace\n" in written, "it is that of the environment"
    assert "complete " in written
    left = re.findall(r"^([\w-]+)==", written, re.MULTILINE)
    assert "headrace" not in left and {"cryptography", "prometheus_client"} <= set(left), "the extras were installed"


@pytest.fixture
def machine(shell: Shell, tmp_path: Path) -> tuple[Path, str]:
    """The root of a machine on which the page of systemd was followed, and which commands were recorded."""
    root = tmp_path / "machine"
    (root / "etc" / "systemd" / "system").mkdir(parents=True)
    (root / "var" / "lib").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    for name in RECORDED:
        command = tmp_path / "bin" / name
        command.write_text(f'#!/bin/sh\necho {name} "$@" >> "{tmp_path}/recorded"\n')
        command.chmod(0o755)
    (block,) = blocks(SYSTEMD)
    block = re.sub(r"/(opt|etc|var)/", rf"{root}/\1/", block)
    shell.run(["bash", "-e", "-o", "pipefail", "-c", block])
    return root, (tmp_path / "recorded").read_text()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_service_that_root_installs(machine: tuple[Path, str], tmp_path: Path) -> None:
    root, recorded = machine
    assert recorded == "systemd-sysusers\nsystemctl daemon-reload\nsystemctl enable --now headrace\n"
    assert (root / "etc/sysusers.d/headrace.conf").exists()
    unit = root / "etc/systemd/system/headrace.service"
    unit.write_text(re.sub(r"/(opt|etc)/", rf"{root}/\1/", unit.read_text()))
    analyze = shutil.which("systemd-analyze")
    if analyze is not None:
        done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    (start,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    properties = root / "etc/headrace/server.properties"
    properties.write_text(properties.read_text().replace("127.0.0.1:9092", "127.0.0.1:0"))  # 9092 may be in use
    with subprocess.Popen(start.split(), cwd=tmp_path, stdout=subprocess.PIPE, text=True) as node:
        try:
            assert node.stdout is not None
            assert "listens on 127.0.0.1:" in node.stdout.readline()
            node.send_signal(signal.SIGTERM)
            assert node.wait(STOP_PATIENCE_S) == 0
        finally:
            node.kill()
    assert (root / "var/lib/headrace/meta.properties").exists()
