"""Groups that were loaded are restored some members at a time, so that others get their turns."""

from __future__ import annotations

import pytest

from headrace.groups.classic.group import session_key
from headrace.groups.consumer.member_timers import session_key as consumer_session_key
from headrace.groups.consumer.records import ConsumerRecord, Kind, Member
from headrace.groups.modern.epochs import GroupEpoch
from headrace.groups.offsets import PARTITIONS_PER_PART
from headrace.groups.records import GroupRecord, Offset, OffsetRecord, Record, StoredGroup
from headrace.groups.settings import GroupSettings
from headrace.groups.shard import GroupShard
from headrace.machine.runtime import START_STEPS, LoadedRecord, LogPiece, RuntimeSettings, ShardRuntime
from headrace.wire.messages.group_records import MemberMetadata

SETTINGS = GroupSettings()
GROUPS = 1_000
MEMBERS = 5


def loaded(records: list[Record]) -> ShardRuntime[GroupShard]:
    """A shard whose log is applied, and not started."""
    runtime = ShardRuntime(0, 0, GroupShard(GroupSettings(), lambda: ""), RuntimeSettings())
    runtime.begin(0, len(records))
    said = [LoadedRecord(record, offset, -1) for offset, record in enumerate(records)]
    assert runtime.load(LogPiece(said, len(said), len(said)), len(records))
    return runtime


def classic(group_id: str, count: int) -> list[Record]:
    members = [MemberMetadata(f"m{at}", None, "c", "/h", 60_000, 10_000, b"", b"share") for at in range(count)]
    stored = StoredGroup(protocol_type="consumer", generation=3, protocol="range", leader="m0", members=members)
    return [GroupRecord(group_id, stored)]


def consumers(group_id: str, count: int) -> list[Record]:
    members: list[Record] = [ConsumerRecord(group_id, Kind.MEMBER, f"m{at}", Member()) for at in range(count)]
    return [*members, ConsumerRecord(group_id, Kind.EPOCH, "", GroupEpoch(5))]


@pytest.mark.parametrize("of_kind", [classic, consumers])
@pytest.mark.parametrize(("groups", "members"), [(GROUPS, MEMBERS), (1, 3 * START_STEPS)])
def test_no_turn_restores_many_members(of_kind: object, groups: int, members: int) -> None:
    assert callable(of_kind)
    runtime = loaded([record for at in range(groups) for record in of_kind(f"g{at}", members)])
    timers, now_ms, turns = runtime.shard.state.timers, 0, 0
    is_started = False
    while not is_started:
        before = len(timers)
        assert before == 0 or not runtime.is_active
        is_started = runtime.start(now_ms)
        assert len(timers) - before <= START_STEPS
        now_ms, turns = now_ms + 1, turns + 1
    assert turns >= groups * members // START_STEPS
    key = session_key if of_kind is classic else consumer_session_key
    assert all(key(f"g{at}", f"m{member}") in timers for at in range(groups) for member in range(members))


def test_a_session_begins_in_the_turn_that_restores_its_member() -> None:
    runtime = loaded(classic("g", 2 * START_STEPS))
    assert not runtime.start(0)
    while not runtime.start(4_000):
        pass
    first, last = session_key("g", "m0"), session_key("g", f"m{2 * START_STEPS - 1}")
    assert runtime.shard.state.timers.due(10_000) is not None and first not in runtime.shard.state.timers
    while runtime.shard.state.timers.due(13_999) is not None:
        pass
    assert last in runtime.shard.state.timers


def test_a_group_is_restored_from_its_newest_generation() -> None:
    runtime = loaded([*classic("g", 3), *classic("g", 2), *classic("h", 1), GroupRecord("h", None)])
    assert runtime.start(0)
    assert runtime.shard.group_count == 1
    assert [each.member_id for each in runtime.shard.describe_group("g").members] == ["m0", "m1"]


def test_offsets_are_compared_with_topics_some_groups_at_a_time() -> None:
    each = PARTITIONS_PER_PART // 2
    runtime = loaded([OffsetRecord(f"g{at}", "t", p, Offset(1)) for at in range(5) for p in range(each)])
    assert runtime.start(0)
    assert runtime.shard.parts() == [["g0", "g1"], ["g2", "g3"], ["g4"]]


def test_what_has_expired_is_removed_some_groups_a_turn() -> None:
    each = PARTITIONS_PER_PART // 2
    runtime = loaded([OffsetRecord(f"g{at}", "t", p, Offset(1)) for at in range(5) for p in range(each)])
    assert runtime.start(0)
    now_ms, shard, removed = SETTINGS.offsets_retention_ms, runtime.shard, []
    for _ in range(3):
        out = shard.due(now_ms)
        assert out is not None and shard.due(now_ms) is None
        removed.append({record.group_id for record in out.records})
        assert len(out.records) == (each + 1) * len(removed[-1])
        now_ms += 1
    assert removed == [{"g4"}, {"g2", "g3"}, {"g0", "g1"}]
    assert shard.due(now_ms) is None
    assert shard.deadline_ms() == now_ms - 1 + SETTINGS.retention_check_interval_ms


def test_a_shard_that_is_given_up_while_it_starts_gives_back_what_members_keep() -> None:
    runtime = loaded(classic("g", 2 * START_STEPS))
    assert not runtime.start(0)
    assert runtime.shard.state.member_bytes.by_member
    runtime.resign(0)
    assert not runtime.shard.state.member_bytes.by_member
