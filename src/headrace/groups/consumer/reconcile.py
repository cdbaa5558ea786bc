"""One member's steps from its current assignment to its target, a heartbeat at a time (KIP-848, "Reconciliation").

A member first revokes what its target does not name: until it confirms that, it stays at its epoch and no other member
gets these partitions. Then it rises to the assignment epoch and gets the released partitions; the rest follows with
later heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from typing import TypeAlias

from headrace.groups.consumer.group import PartitionId
from headrace.groups.consumer.records import CurrentAssignment, MemberState, Partitions
from headrace.groups.modern.reconciliation import add_released, owns_any, split, without_unsubscribed

Owned: TypeAlias = Mapping[bytes, Collection[int]]
"""The partitions that a member reports as owned, by topic id."""


def reconcile(
    current: CurrentAssignment,
    assignment_epoch: int,
    target: Partitions,
    subscribed: Container[bytes],
    owned: Owned | None,
    is_unreleased: Callable[[PartitionId], bool],
    subscription_changed: bool,
) -> CurrentAssignment | None:
    """Returns the next assignment of a member: the same object if nothing changes, None if it has to be fenced.

    `subscribed` are the ids of its topics; `owned` is None if its heartbeat does not say.
    """
    if current.state is MemberState.UNKNOWN:
        # From a state of a newer release, a member can go on only if it owns nothing.
        if owned is None or any(owned.values()):
            return None
        return _next(current, assignment_epoch, assignment_epoch, target, subscribed, owned, is_unreleased)
    if current.state is MemberState.STABLE and current.epoch == assignment_epoch:
        return _unsubscribed(current, subscribed, owned) if subscription_changed else current
    if current.state is MemberState.UNREVOKED and owns_any(owned, current.revoking):
        return _unsubscribed(current, subscribed, owned) if subscription_changed else current
    return _next(current, current.epoch, assignment_epoch, target, subscribed, owned, is_unreleased)


def _next(
    current: CurrentAssignment,
    epoch: int,
    assignment_epoch: int,
    target: Partitions,
    subscribed: Container[bytes],
    owned: Owned | None,
    is_unreleased: Callable[[PartitionId], bool],
) -> CurrentAssignment:
    kept, revoked = split(current.assigned, target, subscribed)
    if revoked and owns_any(owned, revoked):
        return CurrentAssignment(epoch, current.epoch, MemberState.UNREVOKED, kept, revoked)
    is_short = add_released(kept, target, subscribed, assignment_epoch, is_unreleased)
    state = MemberState.UNRELEASED if is_short else MemberState.STABLE
    return CurrentAssignment(assignment_epoch, current.epoch, state, kept)


def _unsubscribed(current: CurrentAssignment, subscribed: Container[bytes], owned: Owned | None) -> CurrentAssignment:
    """Revokes topics that a member no longer subscribes to, before there is a new target."""
    kept, gone = without_unsubscribed(current.assigned, subscribed)
    if not gone:
        return current
    revoking = {topic_id: dict(epochs) for topic_id, epochs in current.revoking.items()}
    for topic_id, epochs in gone.items():
        revoking.setdefault(topic_id, {}).update(epochs)
    if owns_any(owned, revoking):
        return CurrentAssignment(current.epoch, current.epoch, MemberState.UNREVOKED, kept, revoking)
    return CurrentAssignment(current.epoch, current.epoch, current.state, kept, current.revoking)
