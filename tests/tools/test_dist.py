"""A release: what its archives may hold, that two builds are the same, and that it runs where there is nothing else."""

from __future__ import annotations

import io
import os
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import __version__
from tools import dist, interpreters

INSTALLED_MB_MAX = 26
"""The broker with all that it needs; without pip and compiled caches."""
INSTALL_CPU_S_MAX = 20
"""What pip may compute for it: on a quiet machine it takes no longer."""
HERE = [version for version in interpreters.tested() if interpreters.find(version)]


def a_tar(names: list[str], *, mtime: int, owner: str, mode: int) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uname, member.mode = len(name), mtime, owner, mode
            archive.addfile(member, io.BytesIO(name.encode()))
    return packed.getvalue()


def test_an_sdist_is_the_same_whoever_built_it_and_when() -> None:
    one = dist.packed_again(a_tar(["h/a", "h/b"], mtime=1, owner="ann", mode=0o600), 1_000_000_000)
    two = dist.packed_again(a_tar(["h/b", "h/a"], mtime=2, owner="bob", mode=0o666), 1_000_000_000)
    assert one == two
    with tarfile.open(fileobj=io.BytesIO(one)) as archive:
        assert archive.getnames() == ["h/a", "h/b"]
        assert {(each.mtime, each.mode, each.uname) for each in archive} == {(1_000_000_000, 0o644, "")}


def a_wheel(folder: Path, tags: str, *more: str, without: str = "") -> Path:
    path = folder / f"headrace-{__version__}-{tags}.whl"
    info = f"headrace-{__version__}.dist-info"
    names = ["headrace/py.typed", "headrace/cli/__main__.py", f"{info}/METADATA", f"{info}/entry_points.txt"]
    with zipfile.ZipFile(path, "w") as archive:
        for name in (*names, f"{info}/licenses/LICENSE", *more):
            if name != without:
                archive.writestr(name, "")
    return path


@pytest.mark.parametrize(
    ("tags", "more", "without", "wrong"),
    [
        ("py3-none-any", (), "", []),
        ("cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64", ("headrace/wire/_walk.so",), "", []),
        ("cp311-cp311-manylinux_2_28_x86_64", ("headrace/wire/_walk.so",), "", []),
        ("cp311-cp311-manylinux_2_34_x86_64", ("headrace/wire/_walk.so",), "", ["not for manylinux_2_28 or older"]),
        ("cp311-cp311-linux_x86_64", ("headrace/wire/_walk.so",), "", ["not for manylinux_2_28 or older"]),
        ("py3-none-any", ("headrace/wire/_walk.so",), "", ["does not say whether", "not for manylinux_2_28"]),
        ("cp311-cp311-manylinux_2_17_x86_64", (), "", ["does not say whether"]),
        ("py3-none-any", ("tests/wire/test_batch.py",), "", ["holds tests/wire/test_batch.py"]),
        ("py3-none-any", ("headrace/testing/broker.py",), "", []),
        ("py3-none-any", ("headrace/wire/_walk.c", "bench/x.py"), "", ["holds headrace/wire/_walk.c", "holds bench"]),
        ("py3-none-any", (), "headrace/py.typed", ["lacks headrace/py.typed"]),
        ("py3-none-any", ("headrace_pipelines/mirror.py",), "", ["holds headrace_pipelines/mirror.py"]),
    ],
)
def test_a_wheel_holds_what_it_has_to_and_nothing_else(
    tmp_path: Path, tags: str, more: tuple[str, ...], without: str, wrong: list[str]
) -> None:
    found = dist.problems(a_wheel(tmp_path, tags, *more, without=without))
    assert len(found) == len(wrong)
    for line, part in zip(found, wrong, strict=True):
        assert part in line


def test_an_sdist_with_tests_is_found(tmp_path: Path) -> None:
    path = tmp_path / "headrace-1.tar.gz"
    path.write_bytes(a_tar(["headrace-1/src/headrace/a.py", "headrace-1/tests/a.py"], mtime=0, owner="", mode=0o644))
    assert dist.problems(path) == ["headrace-1.tar.gz: holds headrace-1/tests/a.py"]


def test_a_package_that_the_lock_lacks_is_named() -> None:
    assert dist.pins_of("a==1 \\\n  --hash=x\nb==2\n", ["b"]) == "b==2\n"
    with pytest.raises(dist.DistError, match=r"c is not in the lock"):
        dist.pins_of("a==1\n", ["c"])


def test_the_broker_needs_few_packages() -> None:
    names = [line.partition("==")[0] for line in dist.runtime_pins().splitlines() if "==" in line]
    assert {"click", "cramjam", "crc32c", "google-re2", "rich", "xxhash"} <= set(names)
    assert len(names) <= 10


def test_a_python_that_is_not_here_is_named(tmp_path: Path) -> None:
    with pytest.raises(dist.DistError, match=r"Python 3\.2 is not installed"):
        dist.build_native(tmp_path / "x.tar.gz", "3.2", tmp_path, tmp_path)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release."""
    out = tmp_path_factory.mktemp("release")
    dist.build(out, HERE)
    return out


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_two_builds_are_the_same(release: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.dist", "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Kathmandu"}
    done = subprocess.run(
        ["sh", "-c", 'umask 0077; exec "$@"', "sh", *command],
        cwd=dist.ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "SHA256SUMS").read_text() == (release / "SHA256SUMS").read_text()
    assert len(list(tmp_path.iterdir())) == 5 + len(HERE)


def megabytes(folder: Path) -> float:
    """What is installed there, without pip, what it unpacks with it, and compiled caches."""
    total = 0
    for path in folder.rglob("*"):
        parts = path.relative_to(folder).parts
        if path.is_file() and "__pycache__" not in parts and parts[0].split("-")[0] not in ("pip", "setuptools"):
            total += path.stat().st_size
    return total / 1e6


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", HERE)
@pytest.mark.parametrize("pure", [False, True], ids=["native", "pure"])
def test_it_installs_without_a_network_and_serves(
    release: Path, tmp_path: Path, version: str, pure: bool, processes: list[subprocess.Popen[str]]
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "pins.txt").write_text(dist.runtime_pins())
    fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    fetch += ["--python-version", version, "--dest", str(wheels), "-r", str(wheels / "pins.txt")]
    subprocess.run(fetch, check=True, capture_output=True)
    pattern = "headrace-*-py3-none-any.whl" if pure else f"headrace-*-cp{version.replace('.', '')}-*.whl"
    (own,) = release.glob(pattern)
    shutil.copy(own, wheels)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    bin_folder = tmp_path / "env" / "bin"
    subprocess.run([interpreters.find(version) or "", "-m", "venv", str(tmp_path / "env")], check=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    install = [str(bin_folder / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index"]
    install += ["--find-links", str(wheels), f"headrace=={__version__}"]
    subprocess.run(install, env=environment, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    site = tmp_path / "env" / "lib" / f"python{version}" / "site-packages"
    print(f"Python {version}: {megabytes(site):.1f} MB, {cpu:.1f} s of CPU")
    assert megabytes(site) <= INSTALLED_MB_MAX
    assert cpu <= INSTALL_CPU_S_MAX
    which = [str(bin_folder / "python"), "-c", "import headrace.wire._walk as w; print(w.__file__)"]
    assert (
        subprocess.run(which, env=environment, check=True, capture_output=True, text=True)
        .stdout.strip()
        .endswith(".py" if pure else ".so")
    )
    headrace = str(bin_folder / "headrace")
    serve = [headrace, "serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0"]
    serve += ["--set", "metrics.listener=-1"]
    broker = subprocess.Popen(serve, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    processes.append(broker)
    assert broker.stdout is not None
    address = broker.stdout.readline().split(" listens on ")[1].strip()
    client = {**environment, "HEADRACE_BOOTSTRAP_SERVERS": address}

    def said(*arguments: str, given: str = "") -> str:
        done = subprocess.run(
            [headrace, *arguments], env=client, cwd=tmp_path, input=given, capture_output=True, text=True, check=True
        )
        return done.stdout

    said("topic", "create", "t")
    said("produce", "t", given="one\ntwo\n")
    assert said("consume", "t") == "one\ntwo\n"
    broker.send_signal(signal.SIGTERM)
    assert broker.wait(60) == 0
