"""What is installed where a JDK is missing, too old or only a runtime, and what tests and the demo say of it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from peers import kafka

from demo import session

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "system_deps.sh"
SAYS = {"java": 'openjdk version "{}" 2025-04-15', "javac": "javac {}"}
JDK = "openjdk-17-jdk-headless"


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    kafka.java_major.cache_clear()
    yield
    kafka.java_major.cache_clear()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole PATH: everything that is wanted but a JDK, and an apt-get that writes down."""
    for name in ("sh", "sed", "head"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    command(tmp_path, "id", "echo 0")
    kerberos = ("krb5kdc", "kadmin.local", "kinit", "krb5-config")
    for name in (*kerberos, "mvn", "kcat", "openssl", "initdb", "cc", "c++", "make", "cargo", "go", "npm", "python3"):
        command(tmp_path, name, "exit 0")
    command(tmp_path, "apt-get", f'echo "$@" >> {tmp_path}/asked')
    command(tmp_path, "sudo", 'exec "$@"')
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


def command(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def java(folder: Path, name: str, version: str) -> None:
    command(folder, name, f"echo '{SAYS[name].format(version)}' >&2")


def installed(folder: Path) -> str:
    subprocess.run([str(folder / "sh"), str(SCRIPT)], check=True, capture_output=True)
    asked = folder / "asked"
    return asked.read_text() if asked.exists() else ""


def test_the_pythons_that_a_distribution_has_are_installed(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(machine / "pyenv"))
    java(machine, "java", "17.0.15")
    java(machine, "javac", "17.0.15")
    command(machine, "apt-cache", '[ "$2" = python3.12 ] || [ "$2" = python3.13 ] || [ "$2" = python3.11 ]')
    command(machine, "python3.11", "exit 0")
    own = machine / "pyenv" / "versions" / "3.12.1" / "bin"
    own.mkdir(parents=True)
    command(own, "python", "exit 0")
    assert installed(machine).split()[-1] == "python3.13-venv"
    assert "python3.12" not in installed(machine)
    assert "python3.14" not in installed(machine)


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_a_jdk_that_will_do_is_left(machine: Path, version: str) -> None:
    java(machine, "java", version)
    java(machine, "javac", version)
    assert installed(machine) == ""
    assert kafka.missing() == ""
    assert not session.java_is_missing()


@pytest.mark.parametrize(
    ("runtime", "compiler", "why"),
    [
        (None, None, "java is not installed"),
        ("17.0.15", None, "javac is not installed"),
        ("11.0.2", "11.0.2", "java is of version 11"),
        ("1.8.0_392", "1.8.0_392", "java is of version 1"),
        ("17.0.15", "11.0.2", "javac is of version 11"),
    ],
)
def test_a_jdk_is_installed(machine: Path, runtime: str | None, compiler: str | None, why: str) -> None:
    for name, version in (("java", runtime), ("javac", compiler)):
        if version is not None:
            java(machine, name, version)
    assert JDK in installed(machine)
    assert kafka.missing().startswith(why)
    assert session.java_is_missing() == (runtime != "17.0.15")


def said(folder: Path, *arguments: str) -> tuple[int, str]:
    """How the script ends, and what it says of what is wrong."""
    done = subprocess.run([str(folder / "sh"), str(SCRIPT), *arguments], check=False, capture_output=True, text=True)
    return done.returncode, done.stderr


def test_who_may_not_install_hears_the_one_command(machine: Path) -> None:
    command(machine, "id", "echo 1000")
    status, text = said(machine, "test", "--if-root")
    assert status == 0
    assert text.splitlines() == [
        f"missing of the system's packages: {JDK}",
        "run this first: sudo tools/system_deps.sh test",
        "what needs them is skipped, or says so",
    ]
    assert not (machine / "asked").exists()


def test_root_gets_what_is_missing_at_once(machine: Path) -> None:
    assert said(machine, "test", "--if-root") == (0, "")
    assert JDK in (machine / "asked").read_text()


def test_the_demo_needs_a_runtime_alone(machine: Path) -> None:
    assert said(machine, "demo", "--if-root") == (0, "")
    assert (machine / "asked").read_text().split()[-1] == "openjdk-17-jre-headless"


def test_without_venv_an_installation_does_not_begin(machine: Path) -> None:
    command(machine, "python3", "exit 1")
    command(machine, "id", "echo 1000")
    status, text = said(machine, "install", "--if-root")
    assert status == 1
    assert text.splitlines() == [
        "missing of the system's packages: python3-venv",
        "run this first: sudo tools/system_deps.sh install",
    ]


def test_tests_go_on_where_packages_cannot_be_had(machine: Path) -> None:
    command(machine, "apt-get", "exit 100")
    status, text = said(machine, "test", "--if-root")
    assert status == 0
    assert f"these could not be installed: {JDK}" in text
    assert said(machine, "test")[0] == 1


def test_java_starts_in_tests_that_are_marked_alone() -> None:
    with pytest.raises(AssertionError, match="marked jvm"):
        kafka.java("kafka.Kafka")


def test_java_home_comes_first(machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(machine, "java", "11.0.2")
    newer = tmp_path / "newer" / "bin"
    newer.mkdir(parents=True)
    java(newer, "java", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(newer.parent))
    assert not session.java_is_missing()
