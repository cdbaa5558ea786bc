"""A throttle keeps to its rate, whatever the traffic is like."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.replicas.throttle import UNLIMITED, Throttle

BURST_MS, MEMORY_MS = 1000, 11_000


@given(st.integers(1, 10_000_000), st.lists(st.tuples(st.integers(1, 2_000_000), st.integers(0, 3000)), max_size=50))
def test_whoever_waits_as_told_keeps_the_rate(rate: int, sent: list[tuple[int, int]]) -> None:
    throttle = Throttle(BURST_MS, 10**12)  # nothing is forgotten within the longest wait
    now_ms = total = 0
    for byte_count, idle_ms in sent:
        wait_ms = throttle.wait_ms(rate, now_ms)
        now_ms += int(wait_ms) + (1 if wait_ms else 0) + idle_ms
        assert throttle.wait_ms(rate, now_ms) == 0.0
        assert total <= rate * (now_ms + BURST_MS) / 1000 + 1, "more than the rate, a burst, and what came last"
        throttle.passed(byte_count, rate, now_ms)
        total += byte_count


def test_what_went_over_is_forgotten_after_a_while_and_what_was_not_used_too() -> None:
    throttle = Throttle(BURST_MS, MEMORY_MS)
    throttle.passed(1_000_000, 1000, 0)
    assert throttle.wait_ms(1000, 1) == pytest.approx(MEMORY_MS, abs=2)
    assert throttle.wait_ms(1000, 100_000) == 0.0
    throttle.passed(1001, 1000, 100_000)
    assert throttle.wait_ms(1000, 100_000) > 0.0


def test_another_rate_holds_at_once() -> None:
    throttle = Throttle(BURST_MS, MEMORY_MS)
    throttle.passed(5000, 1000, 0)
    assert throttle.wait_ms(1000, 0) > 4000
    assert throttle.wait_ms(UNLIMITED, 0) == 0.0
    assert throttle.wait_ms(0, 1) == float("inf")
    assert throttle.wait_ms(2000, 2) == 0.0
