"""Builds what a release consists of, into dist/: the sdist, the pure wheel, and a manylinux wheel for each Python here;
and the sdist and the wheel of headrace-pipelines.

    python -m tools.dist [--out dist] [3.11 3.12 ...]

Everything is built from what git tracks, the wheels from the sdist. The same commit gives the same bytes: times are
SOURCE_DATE_EPOCH, or that of the commit. What builds and checks is pinned by hashes in tools/dist.lock and in
requirements.lock, and installed beside the project, under build/dist.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from headrace import __version__
from tools import interpreters, sbom
from tools.lock import DIST_LOCK, LOCK

ROOT: Final = Path(__file__).resolve().parents[1]
TOOLS: Final = ROOT / "build" / "dist"
PACKAGED: Final = (
    "src/headrace/", "src/pyspark_headrace/", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE",
)  # fmt: skip
"""What the distribution headrace is built from."""
PIPELINES: Final = "pipelines/"
"""Where the distribution headrace-pipelines has its metadata; its package is in src/ too."""
BUILDERS: Final = ("cython", "setuptools")
"""What compiles and packs, of requirements.lock; for each Python its own."""
GLIBC_MAX: Final = (2, 28)
"""The newest glibc that a wheel may need: manylinux_2_28."""
FORBIDDEN: Final = re.compile(r"(^|/)((tests?|bench|demo|tools|examples)/|(test_[^/]*|conftest)\.py$)|\.(c|pyc|lock)$")
"""What no archive may hold; `headrace/testing` is for users."""
OTHERS: Final = {"headrace": "headrace_pipelines/", "headrace_pipelines": "headrace/"}
"""By distribution, the package of the other, which it may not hold."""
METADATA: Final = ("METADATA", "entry_points.txt", "LICENSE")
NEEDED_IN_WHEELS: Final = {
    "headrace": ("headrace/py.typed", "headrace/cli/__main__.py", *METADATA),
    "headrace_pipelines": ("headrace_pipelines/py.typed", "headrace_pipelines/commands/pipeline.py", *METADATA),
}


class DistError(Exception):
    """A release cannot be built, or is not what it has to be; the text is a line."""


def sources(folder: Path) -> Path:
    """Copies what a clone holds of the package: a build leaves nothing behind in this tree, and takes nothing that was
    built in it."""
    return _copied(folder, {name: name for name in _tracked() if name.startswith(PACKAGED)})


def pipeline_sources(folder: Path) -> Path:
    """Copies what a clone holds of headrace-pipelines, its metadata where a project has them."""
    names = {name: name.removeprefix(PIPELINES) for name in _tracked() if name.startswith(PIPELINES)}
    names |= {name: name for name in _tracked() if name.startswith("src/headrace_pipelines/")}
    del names[f"{PIPELINES}src"]  # a link to all of src
    return _copied(folder, names)


def _tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).exists()]


def _copied(folder: Path, names: Mapping[str, str]) -> Path:
    """Copies files of this tree to other names in a folder."""
    for name, target in names.items():
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        (folder / target).write_bytes((ROOT / name).read_bytes())
    return folder


def pins_of(lock: str, names: Sequence[str]) -> str:
    """The pins of these packages, with their hashes. Raises DistError if the lock lacks one."""
    blocks = {block.partition("==")[0]: block for block in re.split(r"\n(?=[a-z])", lock)}
    missing = [name for name in names if name not in blocks]
    if missing:
        raise DistError(f"{missing[0]} is not in the lock: make lock")
    return "\n".join(blocks[name].strip() for name in names) + "\n"


def runtime_pins() -> str:
    """What the package itself needs, without extras, pinned as in the lock."""
    text = LOCK.read_text()
    return pins_of(text, [each.name for each in sbom.runtime_packages(text)])


def installed(name: str, pins: str, *options: str) -> Path:
    """A folder below build/dist with these packages; installed once for each text of `pins`."""
    folder = TOOLS / name
    done = folder / ".done"
    if done.exists() and done.read_text() == pins:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    wanted = folder / "pins.txt"
    wanted.write_text(pins)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", "--only-binary", ":all:", "--upgrade", "--target", str(folder)]
    _run([*command, *options, "-r", str(wanted)], cwd=ROOT)
    done.write_text(pins)
    return folder


def _run(command: Sequence[str], *, cwd: Path, environment: dict[str, str] | None = None) -> str:
    """What a command prints. Raises DistError with the end of what it says if it fails."""
    # modes of files get into wheels
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, umask=0o022
    )
    if done.returncode != 0:
        raise DistError(f"{' '.join(command[:4])}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


def _environment(packages: Path) -> dict[str, str]:
    epoch = str(int(sbom.release_time().timestamp()))
    path = f"{packages / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    return {**os.environ, "PYTHONPATH": str(packages), "PATH": path, "SOURCE_DATE_EPOCH": epoch, "LC_ALL": "C.UTF-8"}


def packed_again(sdist: bytes, epoch: int) -> bytes:
    """The same files in the order of their names, without what differs from build to build: times, owners, modes."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(sdist), mode="r:gz") as before,
        gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=epoch) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as after,
    ):
        for member in sorted(before.getmembers(), key=lambda each: each.name):
            fresh = tarfile.TarInfo(member.name)
            fresh.type, fresh.size, fresh.mtime = member.type, member.size, epoch
            fresh.mode = 0o755 if member.isdir() else 0o644
            after.addfile(fresh, before.extractfile(member) if member.isfile() else None)
    return packed.getvalue()


def _built(kind: str, python: str, folder: Path, environment: dict[str, str]) -> Path:
    """The one file that setuptools makes of `folder`; `kind` is sdist or wheel."""
    out = folder / "out" / kind
    out.mkdir(parents=True)
    code = f"from setuptools import build_meta; build_meta.build_{kind}({str(out)!r})"
    _run([python, "-c", code], cwd=folder, environment=environment)
    (made,) = out.iterdir()
    return made


def build_sdist(folder: Path, out: Path, copied: Callable[[Path], Path] = sources) -> Path:
    """The sdist, from a copy of the sources in `folder`."""
    packages = installed("builders", pins_of(LOCK.read_text(), BUILDERS))
    environment = _environment(packages)
    made = _built("sdist", sys.executable, copied(folder), environment)
    target = out / made.name
    target.write_bytes(packed_again(made.read_bytes(), int(environment["SOURCE_DATE_EPOCH"])))
    return target


def _unpacked(sdist: Path, folder: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return folder / sdist.name.removesuffix(".tar.gz")


def build_pure(sdist: Path, folder: Path, out: Path) -> Path:
    """The wheel of Python files alone, which fits every Python."""
    environment = {**_environment(installed("builders", pins_of(LOCK.read_text(), BUILDERS))), "HEADRACE_NATIVE": "no"}
    made = _built("wheel", sys.executable, _unpacked(sdist, folder), environment)
    return made.replace(out / made.name)


def build_native(sdist: Path, version: str, folder: Path, out: Path) -> Path:
    """The wheel with native modules of one Python. Raises DistError if it is not here, or cannot compile."""
    python = interpreters.find(version)
    if python is None:
        raise DistError(f"Python {version} is not installed")
    options = ("--python-version", version)
    environment = _environment(installed(version, pins_of(LOCK.read_text(), BUILDERS), *options))
    made = _built("wheel", python, _unpacked(sdist, folder), environment)
    if made.name.endswith("-any.whl"):
        raise DistError(f"Python {version} cannot compile: no C compiler, or no headers of Python (make system-deps)")
    repaired = folder / "repaired"
    tools = installed("tools", DIST_LOCK.read_text())
    command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(repaired), str(made)]
    _run(command, cwd=folder, environment=_environment(tools))
    (wheel,) = repaired.iterdir()
    return wheel.replace(out / wheel.name)


def problems(archive: Path) -> list[str]:
    """What is wrong with one file of a release: what it holds, lacks or needs; a line each."""
    distribution = archive.name.partition("-")[0]
    forbidden = re.compile(rf"{FORBIDDEN.pattern}|(^|/){OTHERS[distribution]}")
    if archive.name.endswith(".tar.gz"):
        with tarfile.open(archive) as opened:
            names = [member.name for member in opened.getmembers() if member.isfile()]
        # setuptools leaves what it knows in the sdist, under src
        return [f"{archive.name}: holds {name}" for name in names if forbidden.search(name)]
    names = zipfile.ZipFile(archive).namelist()
    found = [f"{archive.name}: holds {name}" for name in names if forbidden.search(name)]
    found += [
        f"{archive.name}: lacks {wanted}"
        for wanted in NEEDED_IN_WHEELS[distribution]
        if not any(name == wanted or name.endswith(f"/{wanted}") for name in names)
    ]
    native = any(name.endswith(".so") for name in names)
    if native != (not archive.name.endswith("-py3-none-any.whl")):
        found.append(f"{archive.name}: the name does not say whether it has native modules")
    if native:
        glibc = re.findall(r"manylinux_(\d+)_(\d+)_", archive.name)
        if not glibc or min((int(major), int(minor)) for major, minor in glibc) > GLIBC_MAX:
            found.append(f"{archive.name}: not for manylinux_{GLIBC_MAX[0]}_{GLIBC_MAX[1]} or older")
    return found


def check(archives: Sequence[Path]) -> None:
    """Raises DistError if an archive is not what it has to be, or an index would not take it."""
    found = [line for archive in archives for line in problems(archive)]
    if found:
        raise DistError("; ".join(found[:5]))
    tools = installed("tools", DIST_LOCK.read_text())
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, archives)]
    _run(command, cwd=ROOT, environment=_environment(tools))


def sums(archives: Sequence[Path]) -> str:
    """What `sha256sum --check` reads."""
    return "".join(f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in sorted(archives))


def build(out: Path, versions: Sequence[str]) -> list[Path]:
    """All files of a release, checked. Raises DistError."""
    out.mkdir(parents=True, exist_ok=True)
    for old in [*out.glob("headrace*-*.whl"), *out.glob("headrace*-*.tar.gz")]:
        old.unlink()
    with tempfile.TemporaryDirectory(prefix="headrace-dist-") as text:
        folder = Path(text)
        for name in ("sdist", "pure", *versions, "pipelines-sdist", "pipelines"):
            (folder / name).mkdir()
        made = [build_sdist(folder / "sdist", out)]
        _say(made[-1])
        made.append(build_pure(made[0], folder / "pure", out))
        _say(made[-1])
        for version in versions:
            made.append(build_native(made[0], version, folder / version, out))
            _say(made[-1])
        made.append(build_sdist(folder / "pipelines-sdist", out, pipeline_sources))
        _say(made[-1])
        made.append(build_pure(made[-1], folder / "pipelines", out))
        _say(made[-1])
    check(made)
    (out / "SHA256SUMS").write_text(sums(made))
    return made


def _say(path: Path) -> None:
    print(f"{path.name}  {path.stat().st_size / 1e6:.2f} MB", flush=True)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.dist", description="Build a release into dist/.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder to write to")
    parser.add_argument("versions", nargs="*", help="Pythons to compile for; all that are here, if none is named")
    given = parser.parse_args(arguments)
    here = [each for each in (*interpreters.VERSIONS, *interpreters.WHERE_THERE) if interpreters.find(each)]
    try:
        made = build(given.out.resolve(), given.versions or here)
    except DistError as error:
        print(f"dist: {error}", file=sys.stderr)
        return 1
    print(f"headrace {__version__}: {len(made)} files in {given.out}, checked; hashes in SHA256SUMS")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
