"""Transactional offsets found in the log: they count when the marker says so, and hold up stable reads until then."""

from __future__ import annotations

from groups.scripted import Coordinator

from headrace.groups.records import Offset, OffsetRecord
from headrace.groups.shard import GroupShard


def shard_with_pending() -> tuple[Coordinator, GroupShard]:
    machine = Coordinator()
    machine.do("commit g x t-0=1 t-1=1")
    machine.shard.apply(OffsetRecord("g", "t", 0, Offset(9)), 10, producer_id=77)
    machine.shard.apply(OffsetRecord("new", "t", 0, Offset(5)), 11, producer_id=77)
    return machine, machine.shard


def test_a_stable_read_waits_for_the_end() -> None:
    machine, shard = shard_with_pending()
    assert machine.do("fetch g t-0 t-1 stable=yes") == ["t-0 = -1 UNSTABLE_OFFSET_COMMIT", "t-1 = 1"]
    assert machine.do("fetch g t-0") == ["t-0 = 1"]
    shard.apply_marker(77, committed=True)
    assert machine.do("fetch g t-0 t-1 stable=yes") == ["t-0 = 9", "t-1 = 1"]
    assert machine.do("fetch new") == ["t-0 = 5"]
    assert not shard.state.open_transactions.latest


def test_an_aborted_transaction_leaves_nothing() -> None:
    machine, shard = shard_with_pending()
    shard.apply_marker(77, committed=False)
    assert machine.do("fetch g stable=yes") == ["t-0 = 1", "t-1 = 1"]
    assert machine.do("fetch new") == []
    assert "new" not in shard.state.offsets.latest


def test_a_later_plain_commit_wins() -> None:
    machine, shard = shard_with_pending()
    shard.apply(OffsetRecord("g", "t", 0, Offset(20)), 12)
    shard.apply_marker(77, committed=True)
    assert machine.do("fetch g t-0") == ["t-0 = 20"]


def test_a_marker_of_a_stranger_changes_nothing() -> None:
    machine, shard = shard_with_pending()
    shard.apply_marker(78, committed=True)
    assert machine.do("fetch g t-0 stable=yes") == ["t-0 = -1 UNSTABLE_OFFSET_COMMIT"]


def test_pending_offsets_neither_expire_nor_survive_their_group() -> None:
    machine, shard = shard_with_pending()
    machine.do("time 700000000")
    assert machine.do("fetch g t-0") == ["t-0 = 1"]
    machine.do("delete g")
    shard.apply_marker(77, committed=True)
    assert machine.do("fetch g") == []
