"""The event loop stays awake after an event where another one tends to follow, and sleeps where none does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from headrace.env.posix_network import BUSY_POLL_MISSES_MAX, CONTENDED_S, BusyPoll

WINDOW_S = 0.0001


class Loop:
    """Runs what is scheduled a turn at a time; every turn takes a tenth of the window."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.scheduled: list[Callable[[], None]] = []
        self.yields = 0
        self.others_run_s = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(os, "sched_yield", self.sched_yield)

    def sched_yield(self) -> None:
        self.yields += 1
        self.now += self.others_run_s

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.scheduled.append(callback)

    def turn(self) -> bool:
        """Whether the loop stays awake after it."""
        self.now += WINDOW_S / 10
        scheduled, self.scheduled = self.scheduled, []
        for callback in scheduled:
            callback()
        return bool(self.scheduled)

    def turns_awake(self) -> int:
        turns = 0
        while self.scheduled:
            self.turn()
            turns += 1
        return turns


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(monkeypatch)


def poll_on(loop: Any) -> BusyPoll:
    return BusyPoll(WINDOW_S, loop)


def test_it_is_awake_for_the_window_and_lets_others_run(loop: Loop) -> None:
    poll = poll_on(loop)
    poll.served(loop.now)
    assert 9 <= loop.turns_awake() <= 11
    assert loop.yields >= 8


def test_an_event_within_the_window_begins_it_anew(loop: Loop) -> None:
    poll = poll_on(loop)
    poll.served(loop.now)
    for _ in range(50):
        for _ in range(5):
            assert loop.turn()
        poll.served(loop.now)
    assert len(loop.scheduled) == 1, "one look a turn"
    loop.turns_awake()
    poll.served(loop.now)
    assert loop.scheduled, "it paid: the next event is followed by another try"


def test_vain_tries_become_rare(loop: Loop) -> None:
    poll = poll_on(loop)
    tries = 0
    for _ in range(10_000):
        poll.served(loop.now)
        tries += bool(loop.turns_awake())
    assert tries <= BUSY_POLL_MISSES_MAX + 10_000 / (1 << BUSY_POLL_MISSES_MAX) + 1


def test_a_try_that_pays_ends_the_pauses(loop: Loop) -> None:
    poll = poll_on(loop)
    for _ in range(5000):
        poll.served(loop.now)
        loop.turns_awake()
    while not loop.scheduled:
        poll.served(loop.now)
    poll.served(loop.now)  # within the window
    loop.turns_awake()
    for _ in range(10):
        poll.served(loop.now)
        assert loop.scheduled
        poll.served(loop.now)
        loop.turns_awake()


def test_it_makes_way_for_those_who_have_work(loop: Loop) -> None:
    poll = poll_on(loop)
    loop.others_run_s = CONTENDED_S + 1e-6
    tries = 0
    for _ in range(1000):
        poll.served(loop.now)
        if loop.scheduled:
            tries += 1
            poll.served(loop.now)  # something came, but the processor was somebody else's meanwhile
            assert loop.turns_awake() == 1
    assert tries <= BUSY_POLL_MISSES_MAX + 1000 / (1 << BUSY_POLL_MISSES_MAX) + 1
    loop.others_run_s = CONTENDED_S / 2
    while not loop.scheduled:
        poll.served(loop.now)
    assert loop.turns_awake() > 1
