"""Coordinators whose logs are in a bad state for a while, under the simulator: at every step of their making and of
their loads; and the faults that are planted into loads."""

from __future__ import annotations

import pytest
from peers.tried import tried

from headrace.sim.load_run import MOMENTS, STATES, HeldLogRun, LoadRun, Trouble, run_load_seed
from headrace.sim.sabotage import PLANTED_IN_LOADS, planted

STEPS = 200
EVERY: int = STEPS // tried(12)
"""Of so many steps one is tried each time; all of them by `pytest -m soak`."""
LOADS = [(state, moment) for state in STATES for moment in MOMENTS if (state, moment) != ("unreadable", "made")]
"""Nothing is read while a log is made."""
STEPS_LEAST = {"unreadable": 4, "full disk": 40, "no descriptors": 40}
"""A load that ends sooner is not what was to be tried."""


def meet(state: str, moment: str, steps: range) -> int:
    """Has the state begin at some steps, until a load ends before it; returns that step."""
    for step in steps:
        run = LoadRun(1, None, Trouble(state, moment, step))
        assert run.run().objection is None
        if not run.met:
            return step
    raise AssertionError("a load of these runs is shorter")


@pytest.mark.parametrize(("state", "moment"), LOADS)
def test_coordination_is_back_when_a_bad_state_has_passed(state: str, moment: str) -> None:
    assert meet(state, moment, range(0, STEPS, 3 if state == "unreadable" else EVERY)) >= STEPS_LEAST[state]


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("state", "moment"), LOADS)
def test_coordination_is_back_whichever_step_meets_a_bad_state(state: str, moment: str) -> None:
    assert meet(state, moment, range(STEPS)) >= STEPS_LEAST[state]


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 20))])
def test_a_coordinator_is_elected_whose_log_is_held(seed: int) -> None:
    assert HeldLogRun(seed).run().objection is None


@pytest.mark.parametrize("name", PLANTED_IN_LOADS)
def test_a_fault_planted_into_loads_is_found(name: str) -> None:
    with planted(name):
        assert any(run_load_seed(seed).objection is not None for seed in range(1, 11))


def test_a_coordinator_that_never_waits_for_its_log_is_found_where_logs_are_held() -> None:
    with planted("forgets-to-wait-for-a-log"):
        assert HeldLogRun(1).run().objection is not None


def test_a_seed_does_the_same_twice() -> None:
    assert run_load_seed(3).digest == run_load_seed(3).digest
