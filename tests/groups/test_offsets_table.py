"""The offsets of a group: what waits for a transaction is found by its partition and by its producer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.offsets_table import OffsetTable, PendingKey
from headrace.groups.records import Offset
from headrace.machine.timeline import Timeline

OFFSET = Offset(1)
compared = 0


class Name(str):
    """A name of a topic that counts how often it is compared with another."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        global compared
        compared += 1
        return str.__eq__(self, other)


def test_a_removal_does_not_look_at_what_waits_elsewhere() -> None:
    global compared
    table = OffsetTable(Timeline())
    keys = [(Name(f"t{n}"), 0) for n in range(1000)]
    for key in keys:
        table.pending.put((7, key), OFFSET)
    compared = 0
    for name, index in keys:
        table.remove((Name(name), index))
    assert table.is_empty
    assert compared <= 20 * len(keys)


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["put", "remove", "partition", "write", "commit", "revert"]),
        st.integers(1, 3),
        st.integers(0, 2),
    ),
    max_size=40,
)


@given(CHANGES)
def test_what_is_found_is_what_there_is(changes: list[tuple[str, int, int]]) -> None:
    timeline = Timeline()
    table = OffsetTable(timeline)
    for change, producer_id, index in changes:
        key: PendingKey = (producer_id, ("t", index))
        if change == "put":
            table.pending.put(key, OFFSET)
        elif change == "remove":
            table.pending.remove(key)
        elif change == "partition":
            table.remove(key[1])
        elif change == "write":
            timeline.write(timeline.written_offset + 1)
        elif change == "commit":
            timeline.commit(timeline.written_offset)
        else:
            timeline.revert()
        latest = table.pending.latest
        for n in range(4):
            assert set(table.pending.of_producer(n)) == {each for each in latest if each[0] == n}
            assert set(table.pending.of_partition(("t", n))) == {each for each in latest if each[1] == ("t", n)}
