"""The coordinator's assignors: who reads which partitions, as pure functions of the group and of what it has.

With the same members in the same order and the same topics the outcome is Apache Kafka's 4.3. Kafka walks its members
in the order of a hash table, so that between two brokers names may differ, while balance and stickiness do not. Racks
are of no concern, as there.
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
    """A member, as an assignor sees it."""

    id: str
    instance_id: str | None
    topics: frozenset[bytes]
    """The ids of the topics that it reads: those that exist."""
    has: Partitions = field(default_factory=dict)
    """What it was to have until now."""


Assignment: TypeAlias = dict[str, Partitions]
"""For every member the partitions that it shall have."""

PartitionCounts: TypeAlias = Mapping[bytes, int]
"""How many partitions a topic has, by its id."""

Assignor: TypeAlias = Callable[[Sequence[Subscriber], PartitionCounts], Assignment]


def assign_ranges(members: Sequence[Subscriber], counts: PartitionCounts) -> Assignment:
    """Each topic is cut into as many contiguous ranges as it has readers; the first ones are one longer.

    Static members come first, in the order of their instance ids, then the others in that of their ids: topics with the
    same readers and as many partitions are cut alike. What members had is of no concern.
    """
    in_order = sorted(members, key=_rank)
    assigned: list[dict[bytes, frozenset[int]]] = [{} for _ in in_order]
    cuts: dict[tuple[int, int], list[frozenset[int]]] = {}
    for topic_id, row in _readers(in_order).items():
        shape = counts[topic_id], len(row)
        ranges = cuts.get(shape)
        if ranges is None:
            ranges = cuts[shape] = _cut(*shape)
        for at, partitions in zip(row, ranges):  # the last ones may get nothing
            assigned[at][topic_id] = partitions
    return {member.id: shall_have for member, shall_have in zip(in_order, assigned)}


def _readers(members: Sequence[Subscriber]) -> dict[bytes, list[int]]:
    """The places of those who read a topic, in ascending order. Most members of a large group read the same topics."""
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
    """The ranges of a topic that has something for the first `parts` readers, or for fewer."""
    each, longer = divmod(count, parts)
    ends = [turn * each + min(turn, longer) for turn in range(min(parts, count) + 1)]
    return [frozenset(range(start, end)) for start, end in pairwise(ends)]


def _rank(member: Subscriber) -> tuple[bool, bytes]:
    """Kafka compares strings by their UTF-16 units."""
    if member.instance_id is not None:
        return False, member.instance_id.encode("utf-16-be", "surrogatepass")
    return True, member.id.encode("utf-16-be", "surrogatepass")


def assign_uniformly(members: Sequence[Subscriber], counts: PartitionCounts) -> Assignment:
    """Everybody gets as many partitions as anybody else, give or take one, and keeps of what it had what it can."""
    if not members:
        return {}
    topics = members[0].topics
    if all(member.topics is topics or member.topics == topics for member in members):
        return _share_out(members, sorted(topics), counts)
    return _balance(members, counts)


ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
"""By name; the first is the default."""


# --- uniform, everybody reads the same topics ------------------------------------------------------------------------


def _share_out(members: Sequence[Subscriber], topics: list[bytes], counts: PartitionCounts) -> Assignment:
    """Quotas first: what exceeds a member's is taken, and goes with what nobody had to those who have less."""
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
            # One behind it may have a use for the extra partition that this one would have to be given.
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
