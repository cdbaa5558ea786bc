"""How one member gets from what it has to what it shall have, a heartbeat at a time.

A member first gives up what it shall not keep: until it says that it did, it stays at its epoch and nobody else gets
these partitions. Then it rises to the epoch of the targets and gets what is free; for the rest it asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from typing import TypeAlias

from headrace.groups.consumer.group import PartitionId
from headrace.groups.consumer.records import Current, Held, MemberState, Partitions

Owned: TypeAlias = Mapping[bytes, Collection[int]]
"""What a member says that it has, by topic id."""

IsHeldByOthers: TypeAlias = Callable[[PartitionId], bool]


def reconcile(
    current: Current,
    target_epoch: int,
    target: Partitions,
    topic_ids: Container[bytes],
    owned: Owned | None,
    is_held_by_others: IsHeldByOthers,
    subscription_changed: bool,
) -> Current | None:
    """The next step of a member; the same object where there is none, None where the member has to be fenced.

    `topic_ids` are those that it reads; `owned` is None where its heartbeat does not say.
    """
    if current.state is MemberState.UNKNOWN:
        # Only a member that starts from nothing can be taken on from a state that this release does not know.
        if owned is None or any(owned.values()):
            return None
        return _next(current, target_epoch, target_epoch, target, topic_ids, owned, is_held_by_others)
    if current.state is MemberState.STABLE and current.epoch == target_epoch:
        return _without_unread(current, topic_ids, owned) if subscription_changed else current
    if current.state is MemberState.UNREVOKED and _owns_some(owned, current.revoking):
        return _without_unread(current, topic_ids, owned) if subscription_changed else current
    return _next(current, current.epoch, target_epoch, target, topic_ids, owned, is_held_by_others)


def _next(
    current: Current,
    epoch: int,
    target_epoch: int,
    target: Partitions,
    topic_ids: Container[bytes],
    owned: Owned | None,
    is_held_by_others: IsHeldByOthers,
) -> Current:
    keeps: dict[bytes, dict[int, int]] = {}
    revokes: dict[bytes, dict[int, int]] = {}
    for topic_id, epochs in current.assigned.items():
        wanted = target.get(topic_id, frozenset()) if topic_id in topic_ids else frozenset()
        for partition, since in epochs.items():
            into = keeps if partition in wanted else revokes
            into.setdefault(topic_id, {})[partition] = since
    if revokes and _owns_some(owned, revokes):
        return Current(epoch, current.epoch, MemberState.UNREVOKED, keeps, revokes)
    must_wait = False
    for topic_id, partitions in target.items():
        if topic_id not in topic_ids:
            continue
        for partition in sorted(partitions):
            if partition in keeps.get(topic_id, ()):
                continue
            if is_held_by_others((topic_id, partition)):
                must_wait = True
            else:
                keeps.setdefault(topic_id, {})[partition] = target_epoch
    state = MemberState.UNRELEASED if must_wait else MemberState.STABLE
    return Current(target_epoch, current.epoch, state, keeps)


def _without_unread(current: Current, topic_ids: Container[bytes], owned: Owned | None) -> Current:
    """Topics that a member reads no more are taken from it at once, before there are new targets."""
    gone = {topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id not in topic_ids}
    if not gone:
        return current
    keeps = {topic_id: epochs for topic_id, epochs in current.assigned.items() if topic_id not in gone}
    revoking = {topic_id: dict(epochs) for topic_id, epochs in current.revoking.items()}
    for topic_id, epochs in gone.items():
        revoking.setdefault(topic_id, {}).update(epochs)
    if _owns_some(owned, revoking):
        return Current(current.epoch, current.epoch, MemberState.UNREVOKED, keeps, revoking)
    return Current(current.epoch, current.epoch, current.state, keeps, current.revoking)


def _owns_some(owned: Owned | None, held: Held) -> bool:
    """Whether the member has any of these, or does not say."""
    if owned is None:
        return True
    return any(partition in held.get(topic_id, ()) for topic_id, all_ in owned.items() for partition in all_)
