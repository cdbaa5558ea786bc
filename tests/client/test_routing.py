"""Conversations driven by hand: what is waited for, without a socket or a clock that goes by itself."""

from __future__ import annotations

from random import Random

import pytest

from headrace.client.conversation import Await, Connect, Pause, Step, Steps
from headrace.client.errors import RefusedError, UnreachableError
from headrace.client.routing import Patience, Router


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        return int(self.now * 1e9)


def refused(router: Router, clock: Clock) -> tuple[list[Step], UnreachableError]:
    """Every step of a conversation to which nobody answers, and its failure."""
    steps: Steps[object] = router.refresh([])
    seen: list[Step] = []
    with pytest.raises(UnreachableError) as failed:
        step = next(steps)
        while True:
            seen.append(step)
            assert not isinstance(step, Await), "there is no connection to wait for"
            if isinstance(step, Pause):
                clock.now += step.seconds
                step = steps.send(None)
            else:
                step = steps.throw(RefusedError(f"cannot connect to {step.host}:{step.port}: refused"))
    return seen, failed.value


def test_each_address_is_tried_once_if_nothing_is_known_of_the_cluster() -> None:
    clock = Clock()
    seen, failure = refused(Router([("a", 1), ("b", 2)], Patience(), clock, Random(1)), clock)
    assert seen == [Connect("a", 1, 5.0), Connect("b", 2, 5.0)]
    assert str(failure) == "no broker answers: a:1: refused; b:2: refused"
    assert clock.now == 100.0


def test_a_client_that_awaits_its_bootstrap_pauses_for_longer_each_time_until_its_time_is_over() -> None:
    clock = Clock()
    patience = Patience(timeout_s=3.0, await_bootstrap=True)
    seen, _ = refused(Router([("a", 1)], patience, clock, Random(1)), clock)
    pauses = [step.seconds for step in seen if isinstance(step, Pause)]
    assert len(seen) == 2 * len(pauses) + 1
    assert all(0.8 * 0.02 * 2**at <= pause <= 1.2 * 0.02 * 2**at for at, pause in enumerate(pauses[:5]))
    assert 102.0 < clock.now < 103.0
