"""The unit for systemd: systemd accepts it, and rates how exposed the service is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "packaging" / "systemd" / "headrace.service"
EXPOSURE_MAX = 2.5
TEXT = UNIT.read_text()


def settings(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", TEXT, re.MULTILINE)


@pytest.fixture
def analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("systemd-analyze is not installed")
    return found


def test_systemd_accepts_the_unit(analyze: str, tmp_path: Path) -> None:
    there = tmp_path / UNIT.name
    there.write_text(TEXT.replace("/opt/headrace/bin/headrace ", f"{sys.executable} "))
    done = subprocess.run([analyze, "verify", str(there)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_service_is_little_exposed(analyze: str) -> None:
    command = [analyze, "security", "--offline=true", f"--threshold={EXPOSURE_MAX * 10:.0f}", str(UNIT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    level = re.search(r"exposure level for headrace\.service: ([\d.]+)", done.stdout)
    assert level is not None, done.stderr
    assert float(level[1]) <= EXPOSURE_MAX
    assert done.returncode == 0


def test_the_node_speaks_with_the_manager() -> None:
    assert settings("Type") == ["notify"]
    assert int(settings("WatchdogSec")[0]) >= 20
    assert "AF_UNIX" in settings("RestrictAddressFamilies")[0], "NOTIFY_SOCKET is one"


def test_what_a_node_needs_is_allowed() -> None:
    """Lowering its own priority (the helper process), and /proc/vmstat, which says how busy the disk is."""
    assert not settings("ProcSubset")
    assert not any("@resources" in each for each in settings("SystemCallFilter"))
    assert settings("SystemCallErrorNumber") == ["EPERM"]
    assert settings("StateDirectory") == ["headrace"]


def test_the_user_of_the_unit_is_made_by_the_file_beside_it() -> None:
    (user,) = settings("User")
    lines = (UNIT.parent / "headrace.sysusers").read_text().splitlines()
    assert [line.split()[:2] for line in lines if not line.startswith("#")] == [["u", user]]
