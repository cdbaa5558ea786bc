"""The native modules of `wire` as they run without a compiler."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import headrace.wire


def plain(name: str) -> ModuleType:
    """A module's source file."""
    spec = importlib.util.spec_from_file_location(f"plain{name}", Path(headrace.wire.__file__).parent / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
