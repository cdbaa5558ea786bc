"""Planted faults in the loads of coordinators."""

from __future__ import annotations

from typing import Any

from headrace.broker.coordinators.load_retries import LoadRetries


def _for_good(*_: object, **__: object) -> None:
    """What failed once fails for ever, it says."""


def load_plants() -> dict[str, list[tuple[Any, str, Any]]]:
    """By name: whose attributes, which, and what takes their place."""
    return {
        "takes-a-failed-load-for-final": [(LoadRetries, "failed", _for_good), (LoadRetries, "no_log", _for_good)],
        "forgets-to-wait-for-a-log": [(LoadRetries, "log_is_here", _for_good)],
        "tries-no-load-again": [(LoadRetries, "failed", _for_good)],
    }
