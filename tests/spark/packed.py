"""The package as a cluster gets it: a zip of its Python files, and a Python with its dependencies alone."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"
PACKAGES = ("headrace", "pyspark_headrace")


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
