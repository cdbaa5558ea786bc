"""Which changes are new to a table, and which of a key is applied."""

from __future__ import annotations

import random

import pyarrow as pa

from headrace_pipelines.tables.changes import beyond, last_of_each_key, positions_after
from headrace_pipelines.tables.layout import layout_of

from .batches import PRICES, batch


def kept(changes: pa.Table) -> set[tuple[int, int]]:
    return set(zip(changes["partition"].to_pylist(), changes["offset"].to_pylist(), strict=True))


def test_what_is_below_its_partitions_position_is_not_new() -> None:
    changes = batch((0, 4, 1, None), (0, 5, 1, None), (2, 5, 2, None), (7, 0, 3, None))
    assert beyond(changes, {}) is changes
    assert kept(beyond(changes, {0: 5, 1: 100, 2: 6})) == {(0, 5), (7, 0)}
    assert positions_after(changes, {1: 100, 0: 3}) == {0: 6, 1: 100, 2: 6, 7: 1}
    assert positions_after(changes.slice(0, 0), {1: 100}) == {1: 100}


def test_the_last_change_of_each_key_counts_in_whatever_order_they_come() -> None:
    layout = layout_of("a STRING, b INT", "n INT")
    changes = [(n % 3, n, (f"k{n % 3 + 3 * (n % 7)}", n % 3), (n,) if n % 5 else None) for n in range(300)]
    wanted = {change[2]: (change[1], change[3] is None) for change in changes}
    random.shuffle(changes)
    found = last_of_each_key(batch(*changes, layout=layout), layout)
    columns = (found[name].to_pylist() for name in ("c0", "c1", "offset", "deleted"))
    assert {(a, b): (offset, deleted) for a, b, offset, deleted in zip(*columns, strict=True)} == wanted
    assert len(found) == len(wanted)
    assert last_of_each_key(changes_of_nothing(), PRICES).num_rows == 0


def changes_of_nothing() -> pa.Table:
    return batch()


def test_a_key_in_two_partitions_is_as_it_was_written_last() -> None:
    """By the time; within a partition by the offset, whatever the times say."""
    changes = batch((5, 1, 7, ("new partition", 1.0)), (0, 90, 7, ("old", 2.0)), (1, 3, 8, None), (1, 2, 8, ("x", 3.0)))
    assert kept(last_of_each_key(changes, PRICES)) == {(0, 90), (1, 3)}
