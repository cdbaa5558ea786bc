"""Errors that Spark shows to a user: one sentence, without the calls inside the source that led to it.

Spark copies the traceback of its Python process into the message of its own error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def in_one_sentence(method: Callable[P, R]) -> Callable[P, R]:
    """Drops the traceback of a ValueError, ClientError or DataLossError of `method`. Defects keep theirs."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            if not _is_sentence(error):
                raise
            sentence = error
        raise sentence.with_traceback(None) from None

    return call


def _is_sentence(error: Exception) -> bool:
    from headrace.client.errors import ClientError
    from headrace.spark.planning import DataLossError

    return type(error) is ValueError or isinstance(error, (ClientError, DataLossError))
