"""One consumer group as the log tells it: tables that `apply` alone fills, and counts over them.

Everything lies on the shard's timeline: decisions use the latest state, descriptions the committed one, and lost
records are taken back. Counts are kept up to date as records come in, so that no heartbeat walks over the members.
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
"""What a member has that has only joined."""
NO_PARTITIONS: Final[Partitions] = {}
PartitionId: TypeAlias = tuple[bytes, int]
"""(topic id, partition)"""


class ConsumerState(Enum):
    """A consumer group's state; the value is the name that Kafka's tools show."""

    EMPTY = "Empty"
    """No members."""
    ASSIGNING = "Assigning"
    """The group's epoch is above that of the targets: they are to be computed."""
    RECONCILING = "Reconciling"
    """Somebody has not reached what it shall have."""
    STABLE = "Stable"
    """Everybody has."""


class MemberTable(TimelineTable[str, Member]):
    """member id -> member; what they keep is counted with each change."""

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
        """Takes back a change that was lost."""
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
    """The records of one consumer group, and what follows from them."""

    __slots__ = ("checked_topics", "classic_protocols", "currents", "epochs", "holders", "id", "instances",
                 "known_topics", "look_up", "looked_ms", "made", "members", "readers", "regex_readers",
                 "regexes", "target_epochs", "targets", "votes")  # fmt: skip

    type: Final = "consumer"

    def __init__(self, group_id: str, timeline: Timeline, usage: MemberUsage | None = None) -> None:
        """`usage` is where the bytes of its members count; None if they do not."""
        self.id = group_id
        self.epochs: TimelineTable[None, GroupEpoch] = TimelineTable(timeline)
        self.known_topics: TimelineTable[None, bytes] = TimelineTable(timeline)
        """What an older release wrote of the group's topics: to be removed."""
        self.members = MemberTable(group_id, timeline, usage)
        self.target_epochs: TimelineTable[None, AssignmentEpoch] = TimelineTable(timeline)
        self.targets: TimelineTable[str, Partitions] = TimelineTable(timeline)
        self.currents: TimelineTable[str, CurrentAssignment] = TimelineTable(timeline)
        self.regexes: TimelineTable[str, Resolved] = TimelineTable(timeline)
        # What follows from them:
        self.holders: TimelineTable[PartitionId, str] = TimelineTable(timeline)
        """Who has a partition, or has not given it up: nobody else gets it."""
        self.instances: TimelineTable[str, str] = TimelineTable(timeline)
        """instance id -> the member that goes by it"""
        self.readers: TimelineTable[str, int] = TimelineTable(timeline)
        """topic name -> how many members name it"""
        self.regex_readers: TimelineTable[str, int] = TimelineTable(timeline)
        """regular expression -> how many members subscribe to it"""
        self.votes: TimelineTable[str, int] = TimelineTable(timeline)
        """assignor -> how many members ask for it"""
        self.classic_protocols: TimelineTable[str | None, int] = TimelineTable(timeline)
        """protocol -> how many of the members that speak the classic protocol support it; None -> how many these are"""
        self.made: TimelineTable[Kind, int] = TimelineTable(timeline)
        """Bytes of the targets, and of what the regular expressions mean."""
        self.checked_topics: object = None
        """The topics of the cluster that the group's hash was last compared with: in memory alone."""
        self.looked_ms = -1_000_000
        """When its regular expressions were last looked up here: in memory alone."""
        self.look_up: object = None
        """The look-up under way, if there is one: in memory alone."""

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
        """What the targets take in memory, as decisions see it."""
        return self.made.latest.get(Kind.TARGET, 0)

    @property
    def assignment_bytes(self) -> int:
        """Memory that the targets take, and the topics that the regular expressions mean, in bytes."""
        return sum(self.made.latest.values())

    @property
    def has_uncommitted_members(self) -> bool:
        """Whether a member, or its assignment, differs from the committed one."""
        return self.members.is_uncommitted or self.currents.is_uncommitted

    @property
    def has_members(self) -> bool:
        """Whether anybody is in it."""
        return bool(self.members.latest)

    @property
    def is_gone(self) -> bool:
        """Whether the log holds nothing of it any more."""
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
        """The state's name, as far as the committed records tell it."""
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
        """How many members speak the classic protocol."""
        return self.classic_protocols.latest.get(None, 0)

    def supports_classic(self, protocols: Iterable[str]) -> bool:
        """Whether all members of the classic protocol support one of these."""
        supported, everyone = self.classic_protocols.latest, self.classic_count
        return any(supported.get(name, 0) == everyone for name in protocols)

    def current(self, member_id: str) -> CurrentAssignment:
        """What a member has, as decisions see it."""
        return self.currents.latest.get(member_id, NO_ASSIGNMENT)

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member reads the topic, as decisions see it."""
        return topic in self.readers.latest or any(topic in found.topics for found in self.regexes.latest.values())

    def topics(self) -> set[str]:
        """Every topic that a member reads, by name or as one of its regular expression's."""
        names = set(self.readers.latest)
        for regex in self.regex_readers.latest:
            found = self.regexes.latest.get(regex)
            if found is not None:
                names |= found.topics
        return names

    def topics_with(self, before: Member, now: Member) -> set[str]:
        """The same, where one member says something else now."""
        return self.topics_without((before,)) | self.topics_of(now)

    def topics_without(self, gone: Iterable[Member]) -> set[str]:
        """The same, where these members are out."""
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
        """The topics that one member reads. A regular expression that is not resolved yet means none."""
        found = self.regexes.latest.get(member.regex) if member.regex else None
        return member.topics if found is None else member.topics | found.topics

    def tombstones(self) -> list[ConsumerRecord]:
        """Removes every record of the group, the group itself last, and, as Kafka does, what an older release may have
        written."""
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
        """Takes in one record of the group. A tombstone of an unknown key has no effect: compaction leaves such."""
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
        # In a compacted log a member's newest record may precede that of the partition's earlier owner: a member only
        # ends its own holdings.
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
