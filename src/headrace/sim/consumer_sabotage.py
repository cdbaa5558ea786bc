"""Planted faults in consumer groups: the protocol of KIP-848, conversions, and loads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headrace.groups.consumer import classic_members, conversion, fencing, member_timers, offsets, reconcile
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.kind import ConsumerKind
from headrace.groups.consumer.member_timers import AWAY
from headrace.groups.consumer.member_update import MemberUpdate
from headrace.groups.consumer.reconcile import Owned
from headrace.groups.consumer.records import ConsumerRecord, CurrentAssignment, Held
from headrace.groups.records import Record, decode
from headrace.groups.shard import GroupShard
from headrace.groups.subscription import write_assignment
from headrace.machine.timed_steps import TimedSteps
from headrace.wire.errors import ErrorCode

Real = Callable[..., Any]


def _owns_what_it_says(owned: Owned | None, held: Held) -> bool:
    """A member that does not say what it has is taken for one that has nothing."""
    return owned is not None and any(
        partition in held.get(topic_id, ()) for topic_id, all_ in owned.items() for partition in all_
    )


def _hold_what_is_assigned(real: Real) -> Real:
    """What a member has yet to give up is free."""

    def hold(self: ConsumerGroup, member_id: str, new: CurrentAssignment | None) -> None:
        real(self, member_id, new and replace(new, revoking={}))

    return hold


def _forget_what_is_given_up(key: bytes, value: bytes | None) -> Record | None:
    """A coordinator that loads does not know what members have yet to give up."""
    record = decode(key, value)
    if isinstance(record, ConsumerRecord) and isinstance(record.value, CurrentAssignment):
        return replace(record, value=replace(record.value, revoking={}))
    return record


def _take_from_anybody(real: Real) -> Real:
    """A commit is taken from a member that is not in the group any longer."""

    def check(*given: Any) -> ErrorCode:
        error: ErrorCode = real(*given)
        return ErrorCode.NONE if error is ErrorCode.UNKNOWN_MEMBER_ID else error

    return check


def _take_older(real: Real) -> Real:
    """A commit at an older epoch is taken, whatever the member was assigned at that epoch."""

    def check(group: ConsumerGroup, request: Any, *given: Any) -> ErrorCode:
        error: ErrorCode = real(group, request, *given)
        is_older = request.generation_id_or_member_epoch < group.current(request.member_id).epoch
        return ErrorCode.NONE if error is ErrorCode.STALE_MEMBER_EPOCH and is_older else error

    return check


def _nothing(*_: object) -> None:
    """No member of a group that is upgraded has a session."""


def _no_steps(_shard: object, _group: object, now_ms: int) -> TimedSteps[int]:
    """No member of a group that is loaded has a session."""
    yield from ()
    return now_ms


def _nobody_away(real: Real) -> Real:
    """A static member that left for a while may come back whenever it likes."""

    def expired(state: Any, group: ConsumerGroup, which: str, member_id: str, *given: Any) -> None:
        if group.current(member_id).epoch != AWAY:
            real(state, group, which, member_id, *given)

    return expired


def _write_no_tombstones(real: Real) -> Real:
    """A static member that is replaced stays in the group."""

    def replace_static(self: MemberUpdate, holder: str) -> None:
        real(self, holder)
        self.out.records = [each for each in self.out.records if getattr(each, "value", each) is not None]

    return replace_static


def _always(*_: object) -> bool:
    """A group may become a classic one."""
    return True


def _nothing_at_all(*_: object) -> dict[bytes, frozenset[int]]:
    """Members of the classic group had nothing."""
    return {}


def _write_nothing(_: object, metadata: bytes) -> bytes:
    """Members of the classic group have nothing."""
    return write_assignment([], metadata)


def _ask_nobody(real: Real) -> Real:
    """A classic member of a consumer group never hears that it has to join again."""

    def heartbeat(*given: Any) -> ErrorCode:
        error: ErrorCode = real(*given)
        return ErrorCode.NONE if error is ErrorCode.REBALANCE_IN_PROGRESS else error

    return heartbeat


def consumer_plants() -> dict[str, list[tuple[Any, str, Any]]]:
    """By name: whose attributes, which, and what takes their place."""
    check = vars(offsets)["check_commit"]
    return {
        "takes-silence-for-a-revocation": [(reconcile, "owns_any", _owns_what_it_says)],
        "gives-on-what-is-not-given-up": [
            (ConsumerGroup, "_hold", _hold_what_is_assigned(vars(ConsumerGroup)["_hold"]))
        ],
        "loads-without-what-is-given-up": [(GroupShard, "decode", staticmethod(_forget_what_is_given_up))],
        "takes-commits-of-expired-members": [(offsets, "check_commit", _take_from_anybody(check))],
        "takes-commits-of-older-epochs": [(offsets, "check_commit", _take_older(check))],
        "loads-without-sessions": [(member_timers, "restarting", _no_steps)],
        "never-expires-who-is-away": [(fencing, "expired", _nobody_away(fencing.expired))],
        "lets-a-replaced-member-stay": [
            (MemberUpdate, "replace_static", _write_no_tombstones(vars(MemberUpdate)["replace_static"]))
        ],
        "loses-shares-at-an-upgrade": [(conversion, "_share", _nothing_at_all)],
        "starts-no-sessions-at-an-upgrade": [(conversion, "touch", _nothing)],
        "loses-shares-at-a-downgrade": [(conversion, "write_assignment", _write_nothing)],
        "downgrades-whatever-the-policy": [(conversion, "_may_downgrade", _always)],
        "asks-no-classic-member-to-rejoin": [
            (ConsumerKind, "heartbeat", staticmethod(_ask_nobody(classic_members.heartbeat)))
        ],
    }
