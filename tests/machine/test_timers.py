"""Timers against the dumbest thing that could be right: a dict, searched each time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.machine.timers import TimerKey, Timers

KEYS = st.sampled_from([("a",), ("b",), ("c", "d")])
STEPS = st.lists(
    st.tuples(st.just("schedule"), KEYS, st.integers(0, 50))
    | st.tuples(st.just("cancel"), KEYS, st.just(0))
    | st.tuples(st.just("due"), st.just(()), st.integers(0, 60))
    | st.tuples(st.just("shift"), st.just(()), st.integers(-5, 5)),
    max_size=60,
)


@given(STEPS)
def test_due_keys_come_in_order_and_once(steps: list[tuple[str, TimerKey, int]]) -> None:
    timers, model = Timers(), dict[TimerKey, int]()
    for verb, key, number in steps:
        if verb == "schedule":
            timers.schedule(key, number)
            model[key] = number
        elif verb == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        elif verb == "shift":
            timers.shift(number)
            model = {each: deadline + number for each, deadline in model.items()}
        else:
            fired = []
            while (due := timers.due(number)) is not None:
                fired.append((model.pop(due), due))
            assert [deadline for deadline, _ in fired] == sorted(deadline for deadline, _ in fired)
            assert all(deadline <= number for deadline, _ in fired)
            assert all(deadline > number for deadline in model.values())
        assert len(timers) == len(model)
        wake = timers.deadline_ms()
        assert (wake is None) == (not model)
        assert wake is None or wake <= min(model.values())


def test_many_cancelled_timers_leave_no_memory_behind() -> None:
    timers = Timers()
    for at in range(10_000):
        timers.schedule(("session", str(at)), at)
        timers.cancel(("session", str(at)))
    assert len(timers._heap) < 100


def test_a_renewed_session_is_one_entry() -> None:
    timers = Timers()
    for at in range(10_000):
        timers.schedule(("session",), 10_000 + at)
    assert len(timers._heap) == 1
    assert timers.due(19_998) is None
    assert timers.due(19_999) == ("session",)
