"""A rate holds whoever waits as told to its bound, and forgets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.security.quotas.rate import THROTTLE_MS_MAX, Rate

SAMPLES, SAMPLE_MS = 11, 1000


def rate() -> Rate:
    return Rate(SAMPLES, SAMPLE_MS)


def test_a_burst_of_ten_seconds_is_free_and_more_waits_in_proportion() -> None:
    fresh = rate()
    fresh.record(10_000, 0)
    assert fresh.throttle_ms(1000, 0) == 0
    fresh.record(1000, 0)
    assert fresh.window_ms(0) == 10_000
    assert fresh.throttle_ms(1000, 0) == 1000
    fresh.record(11_000, 0)
    assert fresh.throttle_ms(1000, 0) == 12_000


def test_what_was_used_is_forgotten_after_eleven_seconds() -> None:
    used = rate()
    used.record(1_000_000, 0)
    assert used.throttle_ms(1000, 10_999) > 0
    assert used.throttle_ms(1000, 11_000) == 0


def test_what_is_taken_back_was_not_used() -> None:
    used = rate()
    used.record(50_000, 5)
    used.record(-50_000, 5)
    assert used.per_second(5) == 0.0


def test_another_bound_counts_at_once() -> None:
    used = rate()
    used.record(100_000, 0)
    assert used.throttle_ms(1000, 0) == 90_000
    assert used.throttle_ms(10_000, 0) == 0
    assert used.throttle_ms(1e-9, 0) == THROTTLE_MS_MAX
    assert used.throttle_ms(0, 0) == THROTTLE_MS_MAX


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 10**6)), max_size=200), st.integers(1, 20))
def test_samples_are_bounded_and_the_rate_is_never_negative(used: list[tuple[int, int]], samples: int) -> None:
    counted, now_ms = Rate(samples, SAMPLE_MS), 0
    for step_ms, value in used:
        now_ms += step_ms
        counted.record(value, now_ms)
        assert counted.per_second(now_ms) >= 0.0
        assert len(counted._samples) <= samples + 1
        assert counted.window_ms(now_ms) <= (samples + 2) * SAMPLE_MS + max(step for step, _ in used)


@given(st.integers(100, 100_000), st.lists(st.tuples(st.integers(1, 2_000_000), st.integers(0, 500)), max_size=60))
def test_whoever_waits_as_told_stays_near_the_bound(bound: int, sent: list[tuple[int, int]]) -> None:
    counted, now_ms, total, largest = rate(), 0, 0, 0
    for value, idle_ms in sent:
        now_ms += counted.throttle_ms(bound, now_ms) + idle_ms
        counted.record(value, now_ms)
        total, largest = total + value, max(largest, value)
        # A client has a burst of a window, what came last, and what one window forgets of a request beyond it.
        assert total <= bound * (now_ms / 1000 + 2 * SAMPLES) * 2 + 12 * largest


@pytest.mark.parametrize("bound", [1.0, 1000.0, 12.5])
def test_after_the_wait_the_rate_is_not_above_the_bound(bound: float) -> None:
    counted = rate()
    counted.record(bound * 13, 100)
    wait_ms = counted.throttle_ms(bound, 100)
    assert wait_ms == pytest.approx(3000, abs=1)
    assert counted.throttle_ms(bound, 100 + 10_000 + wait_ms) == 0
