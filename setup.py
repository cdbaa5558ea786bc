"""The native modules: the same Python files, compiled by Cython where it and a C compiler are at hand.

Everything else about the package is in pyproject.toml. HEADRACE_NATIVE=no leaves them uncompiled.
"""

from __future__ import annotations

import os

from setuptools import Extension, setup

MODULES = ["headrace.wire._walk", "headrace.arrow._columns", "headrace.arrow._rows"]


def extensions() -> list[Extension]:
    if os.environ.get("HEADRACE_NATIVE", "yes") == "no":
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    native = [
        # optional: a failing compiler leaves the Python file, which does the same
        Extension(name, [f"src/{name.replace('.', '/')}.py"], extra_compile_args=["-O3", "-g0"], optional=True)
        for name in MODULES
    ]
    result: list[Extension] = cythonize(native, build_dir="build/native", language_level=3)
    return result


setup(ext_modules=extensions())
