"""The package `gssapi`, in `.peers/gssapi`: it is built from source against MIT Kerberos' headers, which a developer's
machine may not have, so it is in no lock of the project. `tools/system_deps.sh` installs the headers and a KDC.

    python -m tests.peers.gssapi_package      builds it (a minute, once), where the headers are
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from shutil import rmtree, which
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
LOCK: Final = Path(__file__).with_name("gssapi.lock")
FOLDER: Final = ROOT / ".peers" / "gssapi"
MARK: Final = FOLDER / "complete.txt"
PROGRAMS: Final = ("krb5kdc", "kdb5_util", "kadmin.local")
_SYSTEM: Final = f"{os.defpath}:/usr/sbin:/usr/local/sbin:/sbin"
"""Debian keeps a server's programs off a user's path."""


def program(name: str) -> str | None:
    """Where a program of Kerberos is."""
    return which(name) or which(name, path=_SYSTEM)


def version() -> str:
    """What the finished folder was made of: the lock, for this Python."""
    return f"{sys.version_info[:2]}\n{LOCK.read_text()}"


def missing() -> str:
    """Why tests cannot use Kerberos here; empty where they can."""
    absent = [name for name in PROGRAMS if program(name) is None]
    if absent:
        return f"{absent[0]} is not installed: make system-deps"
    if not MARK.exists() or MARK.read_text() != version():
        return "gssapi is not built: python -m tests.peers.gssapi_package"
    return ""


def use() -> None:
    """This process, and those that it starts, find the package."""
    folder = str(FOLDER)
    if folder not in sys.path:
        sys.path.append(folder)
    others = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    if folder not in others:
        os.environ["PYTHONPATH"] = os.pathsep.join([*others, folder])


def main() -> None:
    if which("krb5-config") is None:
        print("gssapi is not built, and tests of Kerberos are skipped: MIT Kerberos' headers are not here")
        return
    if MARK.exists() and MARK.read_text() == version():
        return
    print(f"building gssapi into {FOLDER}", flush=True)
    rmtree(FOLDER, ignore_errors=True)
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes",
        "--no-deps", "--no-build-isolation", "--target", str(FOLDER), "-r", str(LOCK),
    ]  # fmt: skip
    # Nobody measures it here, so the compiler need not think.
    subprocess.run(command, check=True, env={**os.environ, "GSSAPI_COMPILER_ARGS": "-O0 -g0"})
    MARK.write_text(version())


if __name__ == "__main__":
    main()
