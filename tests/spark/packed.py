"""The package as a cluster gets it: a zip of its Python files, a Python with its dependencies alone, and an environment
in an archive."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import version
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"
PACKAGES = ("headrace", "pyspark_headrace")
BESIDE_SPARK = ("fastavro", "pandas", "protobuf", "pyarrow")
"""What the source and the sink need, and Python rows of Spark; PySpark itself is the cluster's."""


def zipped(directory: Path) -> Path:
    """An archive for `--py-files`; it holds no compiled module, as none can be imported from it."""
    made = directory / "headrace.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for path in sorted((SOURCE / package).rglob("*.py")):
                archive.write(path, path.relative_to(SOURCE))
    return made


def python_without_it(directory: Path) -> Path:
    """A Python with all packages of this one but headrace, which is installed here as a link to its source."""
    where = directory / "without"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(where)], check=True)
    (packages,) = where.glob("lib/python*/site-packages")
    # what .pth files in that folder say is not done for a folder that is named in one
    (packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return where / "bin" / "python"


def environment_in_an_archive(directory: Path) -> Path:
    """What `venv-pack` makes of a virtual environment with the package as a wheel."""
    where = directory / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(where)], check=True)
    python, quiet = str(where / "bin" / "python"), ("--quiet", "--disable-pip-version-check")
    wheels = directory / "wheels"
    build = ("wheel", *quiet, "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(SOURCE.parent))
    subprocess.run([sys.executable, "-m", "pip", *build], check=True)
    (wheel,) = wheels.glob("headrace-*.whl")
    install = ("install", *quiet, "--constraint", str(versions_here(directory)), str(wheel), *BESIDE_SPARK, "venv-pack")
    subprocess.run([python, "-m", "pip", *install], check=True)
    archive = directory / "environment.tar.gz"
    pack = [str(where / "bin" / "venv-pack"), "--quiet", "--compress-level", "1", "-p", str(where), "-o", str(archive)]
    subprocess.run(pack, check=True)
    return archive


def versions_here(directory: Path) -> Path:
    """The releases of the packages that this Python has, for pip."""
    made = directory / "constraints.txt"
    made.write_text("".join(f"{name}=={version(name)}\n" for name in BESIDE_SPARK))
    return made
