"""The coordinator's assignors, as pure functions of the group and of its current assignment.

With the same members in the same order and the same topics the result is that of Apache Kafka 4.3. Kafka walks its
members in the order of a hash table, so names may differ between two brokers, while balance and stickiness do not.
Racks are ignored, as there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeAlias

from headrace.groups.consumer.heterogeneous import Balance
from headrace.groups.consumer.records import Partitions


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as an assignor sees it."""

    id: str
    instance_id: str | None
    topics: frozenset[bytes]
    """The ids of its subscribed topics that exist."""
    has: Partitions = field(default_factory=dict)
    """Its previous target."""


Assignment: TypeAlias = dict[str, Partitions]
"""The target partitions of every member."""

PartitionCounts: TypeAlias = Mapping[bytes, int]
"""The number of partitions of each topic, by id."""

Assignor: TypeAlias = Callable[[Sequence[Subscriber], PartitionCounts], Assignment]


def assign_ranges(members: Sequence[Subscriber], counts: PartitionCounts) -> Assignment:
    """Cuts each topic into as many contiguous ranges as it has readers; the first ones are one longer.

    Static members come first, in the order of their instance ids, then the others by member id, so topics with the same
    readers and as many partitions are cut alike. Previous targets are ignored.
    """
    in_order = sorted(members, key=_rank)
    assigned: list[dict[bytes, frozenset[int]]] = [{} for _ in in_order]
    cuts: dict[tuple[int, int], list[frozenset[int]]] = {}
    for topic_id, row in _readers(in_order).items():
        shape = counts[topic_id], len(row)
        ranges = cuts.get(shape)
        if ranges is None:
            ranges = cuts[shape] = _cut(*shape)
        for at, partitions in zip(row, ranges):  # the last readers may get nothing
            assigned[at][topic_id] = partitions
    return {member.id: shall_have for member, shall_have in zip(in_order, assigned)}


def _readers(members: Sequence[Subscriber]) -> dict[bytes, list[int]]:
    """Returns the indexes of each topic's readers, ascending. Most members of a large group read the same topics."""
    alike: dict[frozenset[bytes], list[int]] = {}
    for at, member in enumerate(members):
        alike.setdefault(member.topics, []).append(at)
    readers: dict[bytes, list[int]] = {}
    for topics, places in alike.items():
        for topic_id in topics:
            readers.setdefault(topic_id, []).extend(places)
    for row in readers.values():
        row.sort()
    return readers


def _cut(count: int, parts: int) -> list[frozenset[int]]:
    """Returns the ranges of a topic for its first `parts` readers, or for fewer."""
    each, longer = divmod(count, parts)
    ends = [turn * each + min(turn, longer) for turn in range(min(parts, count) + 1)]
    return [frozenset(range(start, end)) for start, end in pairwise(ends)]


def _rank(member: Subscriber) -> tuple[bool, bytes]:
    """Returns the sort key of a member: Kafka compares strings by their UTF-16 units."""
    if member.instance_id is not None:
        return False, member.instance_id.encode("utf-16-be", "surrogatepass")
    return True, member.id.encode("utf-16-be", "surrogatepass")


def assign_uniformly(members: Sequence[Subscriber], counts: PartitionCounts) -> Assignment:
    """Assigns equal numbers of partitions, give or take one, and keeps as much of the previous targets as possible."""
    if not members:
        return {}
    topics = members[0].topics
    if all(member.topics is topics or member.topics == topics for member in members):
        return _share_out(members, sorted(topics), counts)
    return _balance(members, counts)


ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
"""The assignors by name; the first is the default."""


# --- uniform, everybody reads the same topics ------------------------------------------------------------------------


def _share_out(members: Sequence[Subscriber], topics: list[bytes], counts: PartitionCounts) -> Assignment:
    """Revokes what exceeds a member's quota, and assigns it with the unassigned partitions to members below theirs."""
    had = {(topic_id, partition) for member in members for topic_id, all_ in member.has.items() for partition in all_}
    free = [
        (topic, partition) for topic in topics for partition in range(counts[topic]) if (topic, partition) not in had
    ]
    each, extras = divmod(sum(counts[topic] for topic in topics), len(members))
    assigned: Assignment = {}
    short: list[tuple[str, int]] = []
    for at, member in enumerate(members):
        gets_extra = extras > 0
        room = each + gets_extra
        keeps: dict[bytes, frozenset[int]] = {}
        for topic_id, partitions in sorted(member.has.items()):
            if topic_id not in counts or topic_id not in member.topics:
                continue
            in_order = sorted(partitions)
            if in_order[:room]:
                keeps[topic_id] = frozenset(in_order[:room])
            free += [(topic_id, partition) for partition in in_order[room:]]
            room = max(0, room - len(in_order))
        if room and gets_extra and len(members) - at > extras:
            # A later member may need the extra partition that this one would be given.
            room -= 1
            gets_extra = False
        extras -= gets_extra
        if room:
            short.append((member.id, room))
        assigned[member.id] = keeps
    left = iter(free)
    for member_id, room in short:
        gets: dict[bytes, set[int]] = {topic_id: set(all_) for topic_id, all_ in assigned[member_id].items()}
        for _, (topic_id, partition) in zip(range(room), left):
            gets.setdefault(topic_id, set()).add(partition)
        assigned[member_id] = {topic_id: frozenset(all_) for topic_id, all_ in gets.items()}
    return assigned


# --- uniform, members read different topics --------------------------------------------------------------------------


def _balance(members: Sequence[Subscriber], counts: PartitionCounts) -> Assignment:
    """Keeps partitions that are still subscribed; gives the rest to the least loaded members; then moves from the most
    loaded to these.
    """
    balance = Balance(_readers(members), counts, len(members))
    for at, member in enumerate(members):
        for topic_id, partitions in member.has.items():
            if topic_id in member.topics:
                for partition in partitions:
                    balance.keep(topic_id, partition, at)
    balance.assign_the_rest()
    balance.level()
    assigned: list[dict[bytes, set[int]]] = [{} for _ in members]
    for topic_id, owners in balance.owners.items():
        for partition, owner in enumerate(owners):
            assigned[owner].setdefault(topic_id, set()).add(partition)
    return {
        member.id: {topic_id: frozenset(all_) for topic_id, all_ in shall_have.items()}
        for member, shall_have in zip(members, assigned)
    }
