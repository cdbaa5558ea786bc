"""The wheel without a C compiler: it is built, passes tests, and runs in an empty environment of every Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools import interpreters
from tools.dist import runtime_pins, sources

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
BUILD_PATIENCE_S = 240
NATIVE = (
    "headrace/wire/_walk",
    "headrace/wire/_codec",
    "headrace/wire/_produce",
    "headrace/arrow/_columns",
    "headrace/arrow/_rows",
)
TESTS = (
    "tests/wire/test_batch.py",
    "tests/wire/test_produce.py",
    "tests/wire/test_records.py",
    "tests/wire/test_walk.py",
    "tests/arrow/test_decode.py",
    "tests/arrow/test_encode.py",
    "tests/log/test_validation.py",
    "tests/testing/test_broker.py",
)
"""What the native modules do, and a whole broker."""

SMOKE = """
import headrace.testing
from headrace.client import admin, reading
from headrace.client.producer import Producer
from headrace.wire import _walk
from headrace.wire.records import Compression

assert _walk.__file__.endswith(".py"), _walk.__file__
with headrace.testing.broker({"num.partitions": 2}) as broker, broker.client() as client:
    admin.create_topic(client, "t")
    for compression in Compression:
        with Producer(client, compression=compression) as producer:
            for number in range(100):
                producer.send("t", b"v%d" % number, key=b"k%d" % number)
    assert sum(reading.latest_offsets(client, "t").values()) == 100 * len(Compression)
print("well")
"""


def without_compiler(folder: Path, how: str) -> dict[str, str]:
    """An environment in which the compiler is not there, or fails."""
    failing = folder / "failing-cc"
    failing.write_text("#!/bin/sh\necho 'Python.h: not here' >&2\nexit 1\n")
    failing.chmod(0o755)
    return {**os.environ, "CC": str(failing if how == "fails" else folder / "no-such-cc")}


def build(folder: Path, environment: dict[str, str]) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "wheels", "."]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=BUILD_PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = (folder / "wheels").iterdir()
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is built where there is no compiler."""
    folder = tmp_path_factory.mktemp("wheel")
    return build(sources(folder), without_compiler(folder, "is not there"))


def test_without_a_compiler_the_wheel_is_for_every_python(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"{name}.py" for name in NATIVE} <= set(names)
    assert not [name for name in names if name.endswith(".so")]


def test_a_compiler_that_fails_is_none(tmp_path: Path) -> None:
    assert build(sources(tmp_path), without_compiler(tmp_path, "fails")).name.endswith("-py3-none-any.whl")


def test_make_install_needs_no_compiler(tmp_path: Path) -> None:
    """What pip asks of the build for `pip install -e .`."""
    code = "from setuptools.build_meta import build_editable; print(build_editable('.'))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=sources(tmp_path),
        env=without_compiler(tmp_path, "fails"),
        capture_output=True,
        text=True,
        timeout=BUILD_PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "headrace is not compiled, and slower for it" in done.stderr
    assert "Python.h: not here" in done.stderr


def test_a_compiler_that_fails_later_leaves_the_python_files(tmp_path: Path) -> None:
    """cythonize() forgets that its extensions are optional."""
    failing = tmp_path / "cc"
    failing.write_text('#!/bin/sh\ncase "$*" in *probe.c*) exit 0;; esac\nexit 1\n')
    failing.chmod(0o755)
    wheel = build(sources(tmp_path), {**os.environ, "CC": str(failing)})
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]


def test_with_a_compiler_the_modules_are_native(tmp_path: Path) -> None:
    wheel = build(sources(tmp_path), dict(os.environ))
    native = [name.partition(".")[0] for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]
    assert sorted(native) == sorted(NATIVE)


def test_what_is_not_compiled_passes_the_same_tests(wheel: Path, tmp_path: Path) -> None:
    unpacked = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(unpacked)
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    where = [sys.executable, "-c", "import headrace.wire._walk as walk; print(walk.__file__)"]
    said = subprocess.run(where, env=environment, check=True, capture_output=True, text=True).stdout
    assert said.strip() == str(unpacked / "headrace/wire/_walk.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *TESTS]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("version", interpreters.tested())
def test_it_runs_in_an_empty_environment(wheel: Path, tmp_path: Path, version: str) -> None:
    python = interpreters.find(version)
    if python is None:
        pytest.skip(f"Python {version} is not installed: it is looked for on the path and among those of pyenv")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([python, "-m", "venv", str(tmp_path / "env")], env=environment, check=True)
    bin_folder = tmp_path / "env" / "bin"
    pins = tmp_path / "pins.txt"
    pins.write_text(runtime_pins())
    pip = [str(bin_folder / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for arguments in (["--require-hashes", "--only-binary", ":all:", "-r", str(pins)], ["--no-deps", str(wheel)]):
        done = subprocess.run([*pip, *arguments], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    subprocess.run([str(bin_folder / "python"), "-m", "pip", "check"], env=environment, check=True)
    smoke = subprocess.run(
        [str(bin_folder / "python"), "-W", "error", "-c", SMOKE],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert smoke.stdout == "well\n", smoke.stderr
    serve = [str(bin_folder / "headrace"), "serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(serve, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "listens on 127.0.0.1:" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
