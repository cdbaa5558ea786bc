"""Builds the container image by buildah, without a daemon, into an archive that `docker load` and `podman load` read.

    python -m tools.image [--base IMAGE] [--python 3.13] [--out dist]

The wheels come from `make dist`, what they need from requirements.lock by hashes; the build itself needs no network but
for the base. Images are kept in build/image, apart from those of the machine.
"""

from __future__ import annotations

import argparse
import gzip
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headrace import __version__
from tools import dist, sbom
from tools.lock import LOCK

ROOT: Final = Path(__file__).resolve().parents[1]
CONTAINER: Final = ROOT / "packaging" / "container"
STORE: Final = ROOT / "build" / "image"
BASE: Final = "docker.io/library/python:3.13-slim-bookworm"
PYTHON: Final = "3.13"
EXTRAS: Final = ("fast", "metrics", "security")
"""What the image has beyond the broker itself."""
NAME: Final = f"localhost/headrace:{__version__}"
IN_BASE: Final = "python3,python3-venv,ca-certificates"
NOT_IN_BASE: Final = (
    "usr/share/doc", "usr/share/locale", "usr/share/man", "var/cache/apt", "var/lib/apt/lists", "var/log",
)  # fmt: skip


class ImageError(Exception):
    """The image cannot be built; the text says why."""


def buildah(*arguments: str, store: Path = STORE) -> str:
    """Runs buildah on images of our own; returns what it prints. Raises ImageError."""
    command = ["buildah", "--root", str(store / "root"), "--runroot", str(store / "run"), "--storage-driver", "vfs"]
    try:
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise ImageError("buildah is not installed: tools/system_deps.sh image") from None
    if done.returncode != 0:
        raise ImageError(f"buildah {arguments[0]}: {done.stderr.strip()[-2000:]}")
    return done.stdout.strip()


def needed() -> list[str]:
    """The packages of the image, without the project's own; by name."""
    text = LOCK.read_text()
    found = {each.name for each in sbom.runtime_packages(text)}
    ahead = [
        sbom.canonical(wanted.partition(">")[0])
        for extra in EXTRAS
        for wanted in sbom.extras()[extra]
    ]  # fmt: skip
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += sbom.needs_of(name)
    return sorted(found)


def context(folder: Path, wheels: Path, version: str) -> Path:
    """What the Containerfile copies: the entry point, the wheel for this Python, and those of all that it needs."""
    shutil.copy(CONTAINER / "entrypoint.py", folder)
    (folder / "wheels").mkdir()
    tag = f"cp{version.replace('.', '')}"
    own = sorted(wheels.glob(f"headrace-{__version__}-{tag}-*.whl")) or sorted(
        wheels.glob(f"headrace-{__version__}-py3-none-any.whl")
    )
    if not own:
        raise ImageError(f"{wheels} has no wheel of {__version__}: make dist")
    shutil.copy(own[0], folder / "wheels")
    pins = folder / "pins.txt"
    pins.write_text(dist.pins_of(LOCK.read_text(), needed()))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", "--only-binary", ":all:", "--python-version", version]
    command += ["--dest", str(folder / "wheels"), "-r", str(pins)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ImageError(done.stderr.strip()[-2000:])
    return folder


def debian_base(store: Path = STORE, suite: str = "bookworm") -> str:
    """A base made from the packages of this machine's own mirror, for where no image can be pulled; its name."""
    name = "localhost/headrace-base"
    if name in buildah("images", "--format", "{{.Name}}", store=store).split():
        return name
    policy = subprocess.run(["apt-cache", "policy", "python3"], capture_output=True, text=True, check=True).stdout
    mirrors = re.findall(rf"(https?://\S+) {suite}/main ", policy)
    if not mirrors:
        raise ImageError(f"apt knows no mirror of {suite}")
    with tempfile.TemporaryDirectory(prefix="headrace-base-") as folder:
        command = ["debootstrap", "--variant=minbase", f"--include={IN_BASE}", suite, folder, mirrors[0]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ImageError(f"debootstrap: {done.stdout[-1000:]}")
        import_base(Path(folder), name, store)
    return name


def import_base(folder: Path, name: str, store: Path = STORE) -> None:
    """Makes an image of a tree of files, without what no node reads."""
    for each in NOT_IN_BASE:
        shutil.rmtree(folder / each, ignore_errors=True)
        (folder / each).mkdir(parents=True)
    file = store / "Containerfile.base"
    store.mkdir(parents=True, exist_ok=True)
    file.write_text("FROM scratch\nCOPY . /\n")
    buildah("bud", "--format", "docker", "-f", str(file), "-t", name, str(folder), store=store)


def build(base: str, version: str, wheels: Path, store: Path = STORE) -> str:
    """Builds the image; returns its name. Raises ImageError."""
    revision = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    with tempfile.TemporaryDirectory(prefix="headrace-image-") as folder:
        context(Path(folder), wheels, version)
        buildah(
            "bud", "--format", "docker", "--isolation", "chroot", "--network", "host",
            "--timestamp", str(int(sbom.release_time().timestamp())),
            "--build-arg", f"BASE={base}", "--build-arg", f"VERSION={__version__}",
            "--build-arg", f"REVISION={revision.strip()}",
            "-f", str(CONTAINER / "Containerfile"), "-t", NAME, folder, store=store,
        )  # fmt: skip
    return NAME


def save(name: str, out: Path, store: Path = STORE) -> Path:
    """Writes an image to a compressed archive."""
    out.mkdir(parents=True, exist_ok=True)
    target = out / f"headrace-{__version__}-image.tar.gz"
    with tempfile.TemporaryDirectory(prefix="headrace-image-") as folder:
        archive = Path(folder) / "image.tar"
        buildah("push", name, f"docker-archive:{archive}:{NAME}", store=store)
        with open(archive, "rb") as source, gzip.GzipFile(target, "wb", compresslevel=6, mtime=0) as packed:
            shutil.copyfileobj(source, packed, 1 << 20)
    return target


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.image", description="Build the container image.")
    parser.add_argument("--base", default=BASE, help="an image, or `debian`: made from this machine's mirror, as root")
    parser.add_argument("--python", default=None, help="the Python of the base")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder to write to, with the wheels")
    given = parser.parse_args(arguments)
    try:
        own = given.base == "debian"
        base = debian_base() if own else given.base
        target = save(build(base, given.python or ("3.11" if own else PYTHON), given.out), given.out)
    except ImageError as error:
        print(f"image: {error}", file=sys.stderr)
        return 1
    print(f"{target}  {target.stat().st_size / 1e6:.0f} MB; `docker load` or `podman load` makes it {NAME}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
