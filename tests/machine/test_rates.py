"""A token bucket lets one request go into debt, and keeps its rate over time."""

from __future__ import annotations

from math import ceil, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.machine.rates import TokenBucket


def test_a_full_bucket_pays_and_the_rest_is_owed() -> None:
    bucket = TokenBucket(11_000)
    assert bucket.tokens(2.0, 1_000_000) == 22.0
    bucket.take(20, 2.0, 1_000_000)
    assert bucket.wait_ms(2.0, 1_000_000) == 0
    bucket.take(20, 2.0, 1_000_000)
    assert bucket.tokens(2.0, 1_000_000) == -18.0
    assert bucket.wait_ms(2.0, 1_000_000) == 9000
    assert bucket.wait_ms(2.0, 1_008_999) == pytest.approx(1)
    assert bucket.wait_ms(2.0, 1_009_000) == 0


def test_another_rate_counts_at_once() -> None:
    bucket = TokenBucket(11_000)
    bucket.take(31, 1.0, 0)
    assert bucket.wait_ms(1.0, 0) == 20_000
    assert bucket.wait_ms(10.0, 0) == 2000
    assert bucket.tokens(10.0, 100_000) == 110.0
    assert bucket.tokens(1.0, 100_000) == 11.0
    bucket.take(12, 1.0, 100_000)
    assert bucket.wait_ms(1e-12, 100_000) == 1e15


@given(
    st.floats(0.01, 1000), st.lists(st.tuples(st.integers(0, 20_000), st.integers(1, 500)), min_size=1, max_size=100)
)
def test_whoever_waits_while_there_is_a_debt_keeps_the_rate(rate: float, wanted: list[tuple[int, int]]) -> None:
    bucket, now_ms, taken = TokenBucket(11_000), 0, 0
    for idle_ms, count in wanted:
        now_ms += ceil(bucket.wait_ms(rate, now_ms)) + idle_ms
        assert taken <= rate * (now_ms / 1000 + 11 + len(wanted) / 1000) + 1e-6
        bucket.take(count, rate, now_ms)
        taken += count
        assert bucket.tokens(rate, now_ms) <= 11 * rate


def test_what_is_needed_is_waited_for_and_an_old_debt_is_forgotten() -> None:
    bucket = TokenBucket(1000, debt_ms=3000)
    bucket.take(2, 2.0, 0)
    assert bucket.wait_ms(2.0, 0) == 0.0
    assert bucket.wait_ms(2.0, 0, needed=1) == 500.0
    assert bucket.wait_ms(0.0, 0, needed=1) == inf
    bucket.take(1000, 2.0, 0)
    assert bucket.tokens(2.0, 0) == -6.0
    assert bucket.wait_ms(2.0, 0) == 3000.0
