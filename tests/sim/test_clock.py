"""Steady clocks drift and leap, and never go back; timers run by them."""

from __future__ import annotations

import random
from asyncio import sleep

import pytest

from headrace.sim.clock import RATES, SteadyClock
from headrace.sim.cluster_run import run_cluster_seed
from headrace.sim.disk import SimDisk
from headrace.sim.found_at import seeds_of
from headrace.sim.node import SimNode
from headrace.sim.sabotage import PLANTED_IN_CLOCKS, planted
from headrace.sim.world import World


class _Drifting:
    """A node whose machine's clock drifts."""

    def __init__(self) -> None:
        self.world = World(1)
        self.steady = SteadyClock(self.world)
        self.node = SimNode(self.world, "one", SimDisk(random.Random(1)), random.Random(1), self.steady)
        self.steady.on_change = self.node.clock_changed
        self.rang: list[tuple[float, float]] = []
        """What the clock showed when a timer came, and when it was due."""

    def later(self, owner_name: str, delay_s: float) -> None:
        due_s = self.node.clock.monotonic() + delay_s
        owner = self.node.owner(owner_name)
        owner.later(delay_s, lambda: self.rang.append((self.node.clock.monotonic(), due_s)))

    def run(self, seconds: float) -> None:
        self.world.loop.run_until_complete(sleep(seconds))


def test_a_clock_keeps_the_worlds_time_until_it_drifts() -> None:
    one = _Drifting()
    one.later("a", 2.0)
    one.run(3.0)
    assert one.node.clock.monotonic() == one.world.loop.time()
    [(shown_s, due_s)] = one.rang
    assert shown_s == pytest.approx(2.0, abs=1e-6) and due_s == 2.0


def test_a_clock_never_goes_back_and_keeps_within_its_rates() -> None:
    one = _Drifting()
    one.steady.drift(random.Random(1))
    rates = set()
    for _ in range(300):
        before = one.node.clock.monotonic()
        one.run(1.0)
        assert RATES[0] - 1e-9 <= one.node.clock.monotonic() - before <= RATES[1] + 1e-9
        rates.add(one.steady.rate)
    assert len(rates) > 10


def test_timers_come_when_their_own_clock_says_so_whatever_it_does_meanwhile() -> None:
    one = _Drifting()
    one.steady.drift(random.Random(2))
    for delay in range(1, 200):
        one.later(f"timer {delay}", float(delay))
    one.run(300.0)
    assert len(one.rang) == 199
    assert all(due_s <= shown_s < due_s + 1e-6 for shown_s, due_s in one.rang)


def test_a_leap_brings_what_was_to_come_in_it() -> None:
    one = _Drifting()
    one.later("in it", 20.0)
    one.later("after it", 40.0)
    one.world.loop.call_later(5.0, one.steady.leap, 30.0)
    one.run(5.1)
    [(shown_s, due_s)] = one.rang
    assert shown_s == pytest.approx(35.0, abs=1e-6) and due_s == 20.0
    one.run(5.0)
    assert [due_s for _, due_s in one.rang] == [20.0, 40.0]


def test_a_cancelled_timer_does_not_come_with_a_change() -> None:
    one = _Drifting()
    timer = one.node.owner("a").later(10.0, lambda: one.rang.append((0.0, 0.0)))
    timer.cancel()
    one.steady.leap(60.0)
    one.run(1.0)
    assert one.rang == []


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTED_IN_CLOCKS)
def test_only_clocks_that_differ_find_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with planted(name):
        found = (seed for seed in seeds_of(name) if run_cluster_seed(seed).objection is not None)
        seed = next(found)
        for differs in ("drift", "leap"):
            monkeypatch.setattr(SteadyClock, differs, lambda *_: None)
        assert run_cluster_seed(seed).objection is None
