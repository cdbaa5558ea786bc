"""Who is released by a watermark that moves, and by time."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from headrace.replicas.waiters import OffsetWaiters


@given(st.lists(st.integers(0, 20), max_size=30), st.lists(st.integers(0, 20), max_size=10))
def test_waiters_are_released_once_in_order(offsets: list[int], marks: list[int]) -> None:
    waiters: OffsetWaiters[tuple[int, int]] = OffsetWaiters()
    for arrival, offset in enumerate(offsets):
        waiters.add(offset, (offset, arrival))
    left = sorted((offset, arrival) for arrival, offset in enumerate(offsets))
    for mark in marks:
        due = [each for each in left if each[0] <= mark]
        assert waiters.reached(mark) == due
        left = [each for each in left if each not in due]
        assert len(waiters) == len(left)
    assert waiters.take_all() == left


DEADLINES = st.one_of(st.just(inf), st.integers(0, 20))
STEPS = st.lists(st.tuples(st.sampled_from(["add", "reach", "wait"]), st.integers(0, 20), DEADLINES), max_size=40)


@given(STEPS)
def test_who_waits_too_long_leaves_in_order_and_once(steps: list[tuple[str, int, float]]) -> None:
    """`wake_at` is never after the first deadline, and exact once `expire` has looked."""
    waiters: OffsetWaiters[tuple[int, int, float]] = OffsetWaiters()
    left: list[tuple[int, int, float]] = []
    for arrival, (step, value, deadline) in enumerate(steps):
        if step == "add":
            before = waiters.wake_at
            left.append((value, arrival, deadline))
            assert waiters.add(value, left[-1], deadline) == (waiters.wake_at < before)
        elif step == "reach":
            assert waiters.reached(value) == sorted(each for each in left if each[0] <= value)
            left = [each for each in left if each[0] > value]
        else:
            assert waiters.expire(value) == sorted(each for each in left if each[2] <= value)
            left = [each for each in left if each[2] > value]
            assert waiters.wake_at == min((each[2] for each in left), default=inf)
        assert waiters.wake_at <= min((each[2] for each in left), default=inf)
    assert waiters.take_all() == sorted(left)
    assert waiters.wake_at == inf
