"""Moments that no client sees and no look now and then would catch: who listens hears of each call of a method."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any


@contextmanager
def before_each(owner: type, name: str, hear: Callable[..., None]) -> Iterator[None]:
    """`hear(self, ...)` is called before each call of a method, with what that is called with, inside the block."""
    real = vars(owner)[name]

    @wraps(real)
    def call(self: Any, *given: Any, **named: Any) -> Any:
        hear(self, *given, **named)
        return real(self, *given, **named)

    with _in_place(owner, name, call):
        yield


@contextmanager
def after_each(owner: type, name: str, hear: Callable[..., None]) -> Iterator[None]:
    """The same, called after each call."""
    real = vars(owner)[name]

    @wraps(real)
    def call(self: Any, *given: Any, **named: Any) -> Any:
        found = real(self, *given, **named)
        hear(self, *given, **named)
        return found

    with _in_place(owner, name, call):
        yield


@contextmanager
def _in_place(owner: type, name: str, call: Callable[..., Any]) -> Iterator[None]:
    real = vars(owner)[name]
    setattr(owner, name, call)
    try:
        yield
    finally:
        setattr(owner, name, real)
