"""A table of many entries grows in small steps."""

from __future__ import annotations

from headrace.machine.split_table import PARTS, SplitTable

MANY = 64_000


def test_it_is_a_dictionary() -> None:
    table: SplitTable[tuple[int, str], int] = SplitTable()
    assert not table and len(table) == 0 and (1, "a") not in table and table.get((1, "a")) is None
    for number in range(1000):
        table[number, "a"] = number
    table[7, "a"] = 70
    assert table and len(table) == 1000 and table[7, "a"] == 70 and table.get((8, "a")) == 8
    table.discard((7, "a"))
    table.discard((7, "a"))
    assert (7, "a") not in table and len(table) == 999


def test_no_part_has_many_of_its_entries() -> None:
    """What grows at once is a part: that of numbers, of names and of pairs alike."""
    kinds = (lambda n: n, lambda n: f"n{n}", lambda n: (2, f"n{n}"))
    for key_of in kinds:
        table: SplitTable[object, None] = SplitTable()
        for number in range(MANY):
            table[key_of(number)] = None
        assert max(map(len, table.parts)) < 2 * MANY / PARTS
