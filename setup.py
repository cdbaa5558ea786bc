"""The native modules: the same Python files, compiled by Cython where it and a C compiler are at hand.

Everything else about the package is in pyproject.toml. HEADRACE_NATIVE=no leaves them uncompiled. Without a compiler
that works the wheel holds the Python files alone, and fits every Python.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, setup

MODULES = [
    "headrace.wire._walk",
    "headrace.wire._codec",
    "headrace.wire._produce",
    "headrace.arrow._columns",
    "headrace.arrow._rows",
]

PROCESSES = os.cpu_count() or 1


def why_not_compiled() -> str:
    """Why nothing can be compiled here, in a line: no compiler, one that fails, no headers of Python's."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text("#include <Python.h>\n")
        command = [*compiler, f"-I{sysconfig.get_path('include')}", "-c", str(source), "-o", f"{folder}/probe.o"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            return f"{compiler[0]}: {error.strerror}"
    if done.returncode == 0:
        return ""
    return f"{compiler[0]} fails: {next(iter(done.stderr.splitlines()), 'it does not say why')}"


def extensions() -> list[Extension]:
    if os.environ.get("HEADRACE_NATIVE", "yes") == "no":
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    why = why_not_compiled()
    if why:
        print(f"headrace is not compiled, and slower for it ({why})", file=sys.stderr)
        return []
    flags = ["-O3", "-g0"]
    native = [Extension(name, [f"src/{name.replace('.', '/')}.py"], extra_compile_args=flags) for name in MODULES]
    result: list[Extension] = cythonize(native, build_dir="build/native", language_level=3)
    for each in result:
        # a compiler that fails all the same leaves the Python file, which does the same; cythonize forgets this
        each.optional = True
    return result


setup(ext_modules=extensions(), options={"build_ext": {"parallel": PROCESSES}})
