"""Buckets that are not used die, and there are never more than allowed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.security.quotas.buckets import Buckets


def buckets(most: int = 3) -> Buckets[int, list[int]]:
    return Buckets(list, most, idle_ms=1000)


def test_who_uses_a_bucket_keeps_it_while_others_come_and_go() -> None:
    held = buckets()
    held.use(0, 0).append(7)
    for number in range(1, 50):
        held.use(number, number)
        assert held.use(0, number) == [7]
        assert len(held) <= 3
    assert 49 in held and 47 not in held


def test_an_idle_bucket_dies() -> None:
    held = buckets()
    held.use(1, 0)
    held.use(2, 600)
    held.expire(999)
    assert len(held) == 2
    held.expire(1000)
    assert 1 not in held and 2 in held
    held.use(2, 1500)
    held.expire(2400)
    assert 2 in held
    held.expire(2500)
    assert not len(held)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 400)), max_size=100))
def test_what_is_left_is_what_was_used_last(uses: list[tuple[int, int]]) -> None:
    held, now_ms = buckets(), 0
    last: dict[int, int] = {}
    for name, step_ms in uses:
        now_ms += step_ms
        held.use(name, now_ms)
        last.pop(name, None)
        last[name] = now_ms
        held.expire(now_ms)
        assert [each for each in last if each in held] == [
            each for each in list(last)[-3:] if now_ms - last[each] < 1000
        ]
