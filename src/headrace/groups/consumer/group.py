"""One consumer group as in the log: tables that only `apply` fills, and counts over them.

Everything is on the shard's timeline: decisions use the latest state, descriptions the committed one, and lost records
are reverted. Counts are updated with each record, so that no heartbeat scans the members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final, TypeAlias

from headrace.groups.consumer.records import (
    ConsumerRecord,
    CurrentAssignment,
    Held,
    Kind,
    Member,
    MemberState,
    Partitions,
    Resolved,
    target_size,
)
from headrace.groups.modern.epochs import NEW_ASSIGNMENT_EPOCH, NEW_GROUP_EPOCH, AssignmentEpoch, GroupEpoch
from headrace.groups.usage import MemberUsage
from headrace.machine.timeline import Timeline, TimelineTable, add_to

NO_ASSIGNMENT: Final = CurrentAssignment()
"""The assignment of a member that has only joined."""
NO_PARTITIONS: Final[Partitions] = {}
PartitionId: TypeAlias = tuple[bytes, int]
"""(topic id, partition)"""


class ConsumerState(Enum):
    """A consumer group's state; the value is the name that Kafka's tools show."""

    EMPTY = "Empty"
    """No members."""
    ASSIGNING = "Assigning"
    """The group's epoch is above that of the targets, which have to be computed."""
    RECONCILING = "Reconciling"
    """A member has not reached its target."""
    STABLE = "Stable"
    """All members have reached their targets."""


class MemberTable(TimelineTable[str, Member]):
    """member id -> member; their memory is counted with each change."""

    __slots__ = ("_group_id", "_usage")

    def __init__(self, group_id: str, timeline: Timeline, usage: MemberUsage | None) -> None:
        super().__init__(timeline)
        self._group_id = group_id
        self._usage = usage

    def put(self, key: str, value: Member) -> None:
        """Sets a member."""
        super().put(key, value)
        self._count(key)

    def remove(self, key: str) -> None:
        """Removes a member."""
        super().remove(key)
        self._count(key)

    def undo(self, key: str, old: Member) -> None:
        """Reverts a lost change."""
        super().undo(key, old)
        self._count(key)

    def _count(self, member_id: str) -> None:
        if self._usage is None:
            return
        member = self.latest.get(member_id)
        if member is None:
            self._usage.release(self._group_id, member_id)
        else:
            self._usage.hold(self._group_id, member_id, member.size)


class ConsumerGroup:
    """The records of one consumer group, and the tables derived from them."""

    __slots__ = ("checked_topics", "classic_protocols", "currents", "epochs", "holders", "id", "instances",
                 "known_topics", "look_up", "looked_ms", "made", "members", "readers", "regex_readers",
                 "regexes", "target_epochs", "targets", "votes")  # fmt: skip

    type: Final = "consumer"

    def __init__(self, group_id: str, timeline: Timeline, usage: MemberUsage | None = None) -> None:
        """Creates a group without records. `usage` counts the bytes of its members; None if they do not count."""
        self.id = group_id
        self.epochs: TimelineTable[None, GroupEpoch] = TimelineTable(timeline)
        self.known_topics: TimelineTable[None, bytes] = TimelineTable(timeline)
        """The topic metadata that an older release wrote, to be removed."""
        self.members = MemberTable(group_id, timeline, usage)
        self.target_epochs: TimelineTable[None, AssignmentEpoch] = TimelineTable(timeline)
        self.targets: TimelineTable[str, Partitions] = TimelineTable(timeline)
        self.currents: TimelineTable[str, CurrentAssignment] = TimelineTable(timeline)
        self.regexes: TimelineTable[str, Resolved] = TimelineTable(timeline)
        # Derived tables:
        self.holders: TimelineTable[PartitionId, str] = TimelineTable(timeline)
        """The holder of each partition, until it has revoked it: no other member gets it before."""
        self.instances: TimelineTable[str, str] = TimelineTable(timeline)
        """instance id -> the member that owns it"""
        self.readers: TimelineTable[str, int] = TimelineTable(timeline)
        """topic name -> how many members name it"""
        self.regex_readers: TimelineTable[str, int] = TimelineTable(timeline)
        """regular expression -> how many members subscribe to it"""
        self.votes: TimelineTable[str, int] = TimelineTable(timeline)
        """assignor -> the number of members that prefer it"""
        self.classic_protocols: TimelineTable[str | None, int] = TimelineTable(timeline)
        """protocol -> how many of the members that speak the classic protocol support it; None -> how many these are"""
        self.made: TimelineTable[Kind, int] = TimelineTable(timeline)
        """The memory of the targets and of the resolved regular expressions, in bytes."""
        self.checked_topics: object = None
        """The topics with which the group's hash was last compared: in memory only."""
        self.looked_ms = -1_000_000
        """When its regular expressions were last resolved here: in memory only."""
        self.look_up: object = None
        """The running look-up, if any: in memory only."""

    # --- what it says ------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> GroupEpoch:
        """The group's epoch, as decisions see it."""
        return self.epochs.latest.get(None, NEW_GROUP_EPOCH)

    @property
    def target_epoch(self) -> AssignmentEpoch:
        """The epoch of the targets, as decisions see it."""
        return self.target_epochs.latest.get(None, NEW_ASSIGNMENT_EPOCH)

    @property
    def target_bytes(self) -> int:
        """The memory of the targets, as decisions see it."""
        return self.made.latest.get(Kind.TARGET, 0)

    @property
    def assignment_bytes(self) -> int:
        """The memory of the targets and of the resolved regular expressions, in bytes."""
        return sum(self.made.latest.values())

    @property
    def has_uncommitted_members(self) -> bool:
        """Whether a member, or its assignment, differs from the committed one."""
        return self.members.is_uncommitted or self.currents.is_uncommitted

    @property
    def has_members(self) -> bool:
        """Whether the group has members."""
        return bool(self.members.latest)

    @property
    def is_gone(self) -> bool:
        """Whether none of its records is left in the log."""
        return not (
            self.epochs.latest
            or self.members.latest
            or self.currents.latest
            or self.targets.latest
            or self.target_epochs.latest
            or self.regexes.latest
            or self.known_topics.latest
        )

    @property
    def committed_state(self) -> str:
        """The name of the state that the committed records imply."""
        members = self.members.committed_items()
        if not members:
            return ConsumerState.EMPTY.value
        target_epoch = (self.target_epochs.committed(None) or NEW_ASSIGNMENT_EPOCH).epoch
        if (self.epochs.committed(None) or NEW_GROUP_EPOCH).epoch > target_epoch:
            return ConsumerState.ASSIGNING.value
        for member_id, _ in members:
            current = self.currents.committed(member_id) or NO_ASSIGNMENT
            if current.state is not MemberState.STABLE or current.epoch != target_epoch:
                return ConsumerState.RECONCILING.value
        return ConsumerState.STABLE.value

    @property
    def classic_count(self) -> int:
        """The number of members of the classic protocol."""
        return self.classic_protocols.latest.get(None, 0)

    def supports_classic(self, protocols: Iterable[str]) -> bool:
        """Returns whether all classic members support one of these protocols."""
        supported, everyone = self.classic_protocols.latest, self.classic_count
        return any(supported.get(name, 0) == everyone for name in protocols)

    def current(self, member_id: str) -> CurrentAssignment:
        """Returns the assignment of a member, as decisions see it."""
        return self.currents.latest.get(member_id, NO_ASSIGNMENT)

    def is_subscribed(self, topic: str) -> bool:
        """Returns whether a member subscribes to the topic, as decisions see it."""
        return topic in self.readers.latest or any(topic in found.topics for found in self.regexes.latest.values())

    def topics(self) -> set[str]:
        """Returns every subscribed topic, by name or by regular expression."""
        names = set(self.readers.latest)
        for regex in self.regex_readers.latest:
            found = self.regexes.latest.get(regex)
            if found is not None:
                names |= found.topics
        return names

    def topics_with(self, before: Member, now: Member) -> set[str]:
        """Returns every subscribed topic if one member's subscription changes."""
        return self.topics_without((before,)) | self.topics_of(now)

    def topics_without(self, gone: Iterable[Member]) -> set[str]:
        """Returns every subscribed topic if these members are removed."""
        named = Counter[str]()
        regexes = Counter[str]()
        for member in gone:
            named.update(member.topics)
            regexes.update((member.regex,))
        rest = {topic for topic, count in self.readers.latest.items() if count > named[topic]}
        for regex, count in self.regex_readers.latest.items():
            found = self.regexes.latest.get(regex)
            if found is not None and count > regexes[regex]:
                rest |= found.topics
        return rest

    def topics_of(self, member: Member) -> frozenset[str]:
        """Returns the subscribed topics of one member. An unresolved regular expression matches none."""
        found = self.regexes.latest.get(member.regex) if member.regex else None
        return member.topics if found is None else member.topics | found.topics

    def tombstones(self) -> list[ConsumerRecord]:
        """Returns the tombstones of every record, that of the group last, and, as in Kafka, of what an older release
        may have written."""
        by_kind: tuple[tuple[Kind, Iterable[str | None]], ...] = (
            (Kind.CURRENT, self.currents.latest),
            (Kind.TARGET, self.targets.latest),
            (Kind.TARGET_EPOCH, self.target_epochs.latest),
            (Kind.MEMBER, self.members.latest),
            (Kind.REGEX, self.regexes.latest),
            (Kind.PARTITION_METADATA, (None,)),
            (Kind.EPOCH, self.epochs.latest),
        )
        return [
            ConsumerRecord(self.id, kind, name, None)
            for kind, names in by_kind
            for name in sorted(name or "" for name in names)
        ]

    # --- the one writer ----------------------------------------------------------------------------------------------

    def apply(self, record: ConsumerRecord) -> None:
        """Applies a record of the group. A tombstone of an unknown key has no effect: compaction leaves such."""
        value = record.value
        if record.kind is Kind.CURRENT:
            assert value is None or isinstance(value, CurrentAssignment)
            self._hold(record.name, value)
            _set(self.currents, record.name, value)
        elif record.kind is Kind.MEMBER:
            assert value is None or isinstance(value, Member)
            self._count(record.name, value)
            _set(self.members, record.name, value)
        elif record.kind is Kind.TARGET:
            had, has = self.targets.latest.get(record.name, NO_PARTITIONS), NO_PARTITIONS if value is None else value
            assert isinstance(has, Mapping)
            add_to(self.made, Kind.TARGET, target_size(has) - target_size(had))
            _set(self.targets, record.name, value)
        elif record.kind is Kind.REGEX:
            assert value is None or isinstance(value, Resolved)
            meant = self.regexes.latest.get(record.name)
            add_to(self.made, Kind.REGEX, (value.size if value else 0) - (meant.size if meant else 0))
            _set(self.regexes, record.name, value)
        elif record.kind is Kind.TARGET_EPOCH:
            _set(self.target_epochs, None, value)
        elif record.kind is Kind.EPOCH:
            _set(self.epochs, None, value)
        else:
            _set(self.known_topics, None, value)

    def _hold(self, member_id: str, new: CurrentAssignment | None) -> None:
        old = self.currents.latest.get(member_id)
        before = set() if old is None else _partitions(old.assigned) | _partitions(old.revoking)
        after = set() if new is None else _partitions(new.assigned) | _partitions(new.revoking)
        # In a compacted log a member's newest record may precede that of the partition's earlier holder: a record only
        # ends the holdings of its own member.
        for partition in sorted(before - after):
            if self.holders.latest.get(partition) == member_id:
                self.holders.remove(partition)
        for partition in sorted(after - before):
            self.holders.put(partition, member_id)

    def _count(self, member_id: str, new: Member | None) -> None:
        old = self.members.latest.get(member_id)
        if old is not None:
            if old.instance_id is not None and self.instances.latest.get(old.instance_id) == member_id:
                self.instances.remove(old.instance_id)
            self._count_one(old, -1)
        if new is not None:
            if new.instance_id is not None:
                self.instances.put(new.instance_id, member_id)
            self._count_one(new, 1)

    def _count_one(self, member: Member, by: int) -> None:
        for topic in sorted(member.topics):
            add_to(self.readers, topic, by)
        if member.regex:
            add_to(self.regex_readers, member.regex, by)
        if member.assignor is not None:
            add_to(self.votes, member.assignor, by)
        if member.classic is not None:
            add_to(self.classic_protocols, None, by)
            for name in sorted({each.name for each in member.classic.supported_protocols}):
                add_to(self.classic_protocols, name, by)


def _set(table: TimelineTable[Any, Any], key: str | None, value: object) -> None:
    if value is None:
        table.remove(key)
    else:
        table.put(key, value)


def _partitions(held: Held) -> set[PartitionId]:
    return {(topic_id, partition) for topic_id, epochs in held.items() for partition in epochs}
