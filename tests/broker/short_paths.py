"""Which Fetch requests the short path takes, for tests that must know."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.broker.net.connection import Connection
from headrace.broker.requests.short_fetch import ShortFetch
from headrace.testing.running import TestBroker

Taken = Callable[[], list[bool]]
"""Whether the short path took a request, of one after the other, so far."""


def note_short_fetches(broker: TestBroker, monkeypatch: pytest.MonkeyPatch) -> Taken:
    """From here on, until the end of the test."""
    answers: list[bool] = []
    answer = ShortFetch.answer

    def noted(
        self: ShortFetch, connection: Connection, view: memoryview, at: int, stop: int, correlation_id: int
    ) -> bool:
        answers.append(answer(self, connection, view, at, stop, correlation_id))
        return answers[-1]

    def so_far() -> list[bool]:
        broker.call(lambda _: None)  # an answer leaves before its request is done with
        return answers

    monkeypatch.setattr(ShortFetch, "answer", noted)
    return so_far
