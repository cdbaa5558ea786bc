"""How much of the time the loop uses no processor."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.telemetry.loop_share import INTERVAL_S, MARKS, LoopShare


class Machine:
    """A node and an owner whose times go on by hand."""

    def __init__(self) -> None:
        self.now_s, self.used_s = 50.0, 7.0
        self.due: list[Callable[[], Any]] = []
        self.clock = SimpleNamespace(monotonic=lambda: self.now_s)

    def processor_s(self) -> float:
        return self.used_s

    def later(self, delay_s: float, callback: Callable[[], Any]) -> None:
        assert delay_s == INTERVAL_S
        self.due.append(callback)

    def passes(self, busy: float) -> None:
        self.now_s += INTERVAL_S
        self.used_s += INTERVAL_S * busy
        self.due.pop()()


def test_the_share_of_the_last_minute() -> None:
    machine = Machine()
    share = LoopShare(machine, machine)  # type: ignore[arg-type]
    assert share.idle() == 1.0, "before it looks"
    share.start()
    assert share.idle() == 1.0, "no time has passed"
    for _ in range(4):
        machine.passes(busy=0.25)
    assert share.idle() == pytest.approx(0.75)
    for _ in range(MARKS):
        machine.passes(busy=0.9)
    assert share.idle() == pytest.approx(0.1), "what is older is forgotten"
    machine.now_s += INTERVAL_S * (MARKS - 1)
    assert share.idle() == pytest.approx(0.55), "up to this moment"


def test_it_stays_a_share() -> None:
    machine = Machine()
    share = LoopShare(machine, machine)  # type: ignore[arg-type]
    share.start()
    machine.passes(busy=1.001)
    assert share.idle() == 0.0
