"""What the native modules ask of `cython` where they run uncompiled and it is not installed."""

from __future__ import annotations

from typing import Any, Final

compiled: Final = False


def address(item: Any) -> Any:
    """Only compiled code has addresses."""
    raise AssertionError(item)
