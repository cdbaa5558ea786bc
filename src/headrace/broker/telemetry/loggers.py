"""Lists the broker's loggers as a configuration, and alters their levels at run time. Source: KIP-412.

Levels have log4j's names, which Kafka's tools know. They are not stored, and last as long as the process.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from headrace.controller.configs import AlterOperation
from headrace.controller.context import ApiError
from headrace.wire.errors import ErrorCode

ROOT: Final = "root"
_OURS: Final = "headrace"

_LEVELS: Final = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def levels() -> dict[str, str]:
    """Returns the effective levels of headrace's loggers and the root logger, by name."""
    names = [ROOT, *sorted(name for name in logging.root.manager.loggerDict if name.partition(".")[0] == _OURS)]
    return {name: _level_name(_logger(name).getEffectiveLevel()) for name in names}


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(level: int) -> str:
    return next(name for name, least in reversed(_LEVELS.items()) if level >= least or name == "TRACE")


def alter(changes: Sequence[tuple[str, int, str | None]], *, validate_only: bool) -> ApiError:
    """Sets levels, or (DELETE) has loggers inherit from their parents again: all or none."""
    known = levels()
    for name, operation, value in changes:
        if operation not in (AlterOperation.SET, AlterOperation.DELETE):
            return ApiError(ErrorCode.INVALID_REQUEST, "Only SET and DELETE are allowed for the BROKER_LOGGER resource")
        if name not in known:
            return ApiError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if operation == AlterOperation.DELETE:
            if name == ROOT:
                return ApiError(
                    ErrorCode.INVALID_REQUEST, f"Removing the log level of the {ROOT} logger is not allowed"
                )
        elif value not in _LEVELS:
            return ApiError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {value} as it is not a supported log level. "
                f"Valid log levels are {', '.join(_LEVELS)}",
            )
    if not validate_only:
        for name, operation, value in changes:
            deleted = operation == AlterOperation.DELETE
            _logger(name).setLevel(logging.NOTSET if deleted else _LEVELS[value or ""])
    return ApiError(ErrorCode.NONE)
