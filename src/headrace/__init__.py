"""Headrace: an event log that speaks the Kafka protocol, with its data pipelines on Spark.

`scan` reads a topic into an Arrow table. `headrace.client` is a blocking client, `headrace.testing` starts brokers in
tests, and `headrace.spark` has the source and the sink for PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.version import __version__

if TYPE_CHECKING:
    from headrace.arrow.scan import scan as scan

__all__ = ["__version__", "scan"]


def __getattr__(name: str) -> object:
    """Imports `scan` when it is first used: commands that need no client start faster."""
    if name == "scan":
        from importlib import import_module

        return import_module("headrace.arrow.scan").scan
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
