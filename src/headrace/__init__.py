"""Headrace: an event log that speaks the Kafka protocol, with its data pipelines on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.arrow.scan import scan as scan

__version__ = "0.1.0"
__all__ = ["__version__", "scan"]


def __getattr__(name: str) -> object:
    """`scan` needs pyarrow, so it is imported when it is first used. Raises ImportError that names the extra."""
    if name == "scan":
        from importlib import import_module

        try:
            return import_module("headrace.arrow.scan").scan
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "pyarrow":
                raise
            raise ImportError("headrace.scan needs pyarrow: pip install 'headrace[arrow]'", name="pyarrow") from error
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
