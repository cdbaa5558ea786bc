"""Tables on a timeline: what is committed, what is latest, and back."""

from __future__ import annotations

import random

import pytest

from headrace.machine.timeline import Timeline, TimelineTable


def table() -> tuple[Timeline, TimelineTable[str, int]]:
    timeline = Timeline()
    return timeline, TimelineTable(timeline)


def test_what_is_committed_with_the_append_leaves_no_trace() -> None:
    timeline, numbers = table()
    timeline.commit(10)
    timeline.write(1)
    numbers.put("a", 1)
    timeline.write(10)
    numbers.remove("a")
    numbers.put("b", 2)
    assert len(timeline) == 0
    assert numbers.latest == dict(numbers.committed_items()) == {"b": 2}


def test_a_change_is_told_once_the_log_is_committed_beyond_it() -> None:
    timeline, numbers = table()
    timeline.write(1)
    numbers.put("a", 1)
    timeline.write(3)
    numbers.put("a", 2)
    numbers.put("b", 2)
    assert numbers.latest == {"a": 2, "b": 2}
    assert numbers.committed("a") is None and numbers.committed_items() == []
    assert numbers
    timeline.commit(2)
    assert numbers.committed("a") == 1 and numbers.committed("b") is None
    timeline.commit(3)
    assert numbers.committed("a") == 2 and len(timeline) == 0


def test_a_removal_is_told_once_it_is_committed() -> None:
    timeline, numbers = table()
    numbers.put("a", 1)
    timeline.write(1)
    numbers.remove("a")
    numbers.remove("a")
    assert not numbers.latest and numbers.committed_items() == [("a", 1)]
    assert numbers, "others are still told of it"
    timeline.commit(1)
    assert not numbers and numbers.committed("a") is None


def test_what_is_lost_was_never_there() -> None:
    timeline, numbers = table()
    timeline.commit(2)
    timeline.write(2)
    numbers.put("a", 1)
    timeline.write(4)
    numbers.put("a", 2)
    numbers.remove("a")
    numbers.put("a", 3)
    numbers.put("b", 1)
    timeline.revert()
    assert numbers.latest == {"a": 1} and numbers.committed_items() == [("a", 1)]
    assert timeline.written_offset == 2 and timeline.is_level and len(timeline) == 0


def test_half_an_append_that_is_committed_is_lost_as_a_whole() -> None:
    """What the tables hold ends where the append before it ended: the log, which keeps the half, ends elsewhere."""
    timeline, numbers = table()
    timeline.commit(1)
    timeline.write(1)
    numbers.put("a", 1)
    timeline.write(5)
    numbers.put("a", 2)
    timeline.commit(3)
    assert numbers.committed("a") == 1
    timeline.revert()
    assert numbers.latest == {"a": 1} and timeline.written_offset == 1


def test_a_log_is_written_forward() -> None:
    timeline, _ = table()
    timeline.write(5)
    with pytest.raises(AssertionError):
        timeline.write(4)


@pytest.mark.parametrize("seed", range(200))
def test_any_order_of_events_gives_what_a_log_gives(seed: int) -> None:
    """Beside the tables a list of appends, from which both views are computed anew after each step."""
    rng = random.Random(seed)
    timeline, numbers = table()
    appends: list[tuple[int, list[tuple[str, int | None]]]] = []
    committed = 0

    def replayed(up_to: int) -> dict[str, int]:
        state: dict[str, int] = {}
        for end, changes in appends:
            if end <= up_to:
                for key, value in changes:
                    if value is None:
                        state.pop(key, None)
                    else:
                        state[key] = value
        return state

    for _ in range(rng.randint(1, 60)):
        end = appends[-1][0] if appends else 0
        step = rng.random()
        if step < 0.6:
            keys = [rng.choice("abc") for _ in range(rng.randint(1, 3))]
            changes = [(key, rng.choice([None, rng.randint(0, 9)])) for key in keys]
            appends.append((end + len(changes), changes))
            timeline.write(end + len(changes))
            for key, value in changes:
                if value is None:
                    numbers.remove(key)
                else:
                    numbers.put(key, value)
        elif step < 0.9:
            committed = rng.randint(committed, max(committed, end))
            timeline.commit(committed)
        else:
            timeline.revert()
            appends = [append for append in appends if append[0] <= committed]
            if timeline.written_offset < committed:
                break  # half an append is left in the log: whoever goes on has to load it
        assert numbers.latest == replayed(1 << 30)
        assert dict(numbers.committed_items()) == replayed(timeline.committed_offset)
        assert {key: numbers.committed(key) for key in "abc" if numbers.committed(key) is not None} == replayed(
            timeline.committed_offset
        )


def test_an_append_that_is_committed_at_once_settles_what_was_before_it() -> None:
    timeline, numbers = table()
    timeline.write(1)
    numbers.put("a", 1)
    timeline.append(2, committed_offset=2)
    numbers.put("a", 2)
    assert len(timeline) == 0
    assert numbers.committed("a") == 2
    timeline.write(3)
    numbers.put("a", 3)
    timeline.revert()
    assert numbers.latest == {"a": 2}
