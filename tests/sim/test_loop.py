"""Virtual time: it passes when nothing is left to do, and a run that stands still or spins ends with a reason."""

from __future__ import annotations

import asyncio
import time

import pytest

from headrace.sim.loop import LivelockError, SimLoop, StandstillError


def test_a_day_takes_no_time() -> None:
    loop = SimLoop()
    began = time.monotonic()
    loop.run_until_complete(asyncio.sleep(86_400))
    assert loop.time() == pytest.approx(86_400)
    assert time.monotonic() - began < 5


def test_timers_come_in_their_order() -> None:
    loop = SimLoop()
    came: list[str] = []
    for delay, name in ((0.3, "c"), (0.1, "a"), (0.2, "b")):
        loop.call_later(delay, came.append, name)
    loop.run_until_complete(asyncio.sleep(1))
    assert came == ["a", "b", "c"]


def test_waiting_for_nobody_is_a_standstill() -> None:
    loop = SimLoop()
    with pytest.raises(StandstillError):
        loop.run_until_complete(loop.create_future())


def test_calling_oneself_for_ever_is_a_livelock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.sim.loop.TURNS_MAX", 1000)
    loop = SimLoop()

    def again() -> None:
        loop.call_soon(again)

    again()
    with pytest.raises(LivelockError):
        loop.run_until_complete(asyncio.sleep(1))


def test_what_a_callback_raises_ends_the_run() -> None:
    loop = SimLoop()
    loop.call_soon(lambda: 1 / 0)
    loop.run_until_complete(asyncio.sleep(1))
    assert isinstance(loop.failure, ZeroDivisionError)
