"""The state of one group after each batch of committed records, as a classic or a consumer group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from headrace.groups.consumer.records import ConsumerRecord, CurrentAssignment, Kind, MemberState
from headrace.groups.modern.epochs import AssignmentEpoch, GroupEpoch
from headrace.groups.records import GroupRecord, StoredGroup
from headrace.groups.subscription import read_assignment

Place: TypeAlias = tuple[str, int]

FIRST_EPOCH: Final = 1
"""Of a consumer group of which no record says one: none of its members has a topic as yet."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a member has."""

    epoch: int = 0
    """Its member epoch, or the generation of a classic group."""
    assigned: frozenset[Place] = frozenset()
    revoking: frozenset[Place] = frozenset()
    is_stable: bool = True
    """Whether it has all that it is to have."""

    @property
    def held(self) -> frozenset[Place]:
        """What nobody else may be given."""
        return self.assigned | self.revoking


@dataclass(slots=True)
class GroupState:
    """The state of one group by its committed records."""

    topics: Mapping[bytes, str]
    """Names by topic id."""
    epoch: int = FIRST_EPOCH
    target_epoch: int = FIRST_EPOCH
    members: set[str] = field(default_factory=set)
    currents: dict[str, CurrentAssignment] = field(default_factory=dict)
    classic: StoredGroup | None = None
    is_modern: bool = False

    def apply(self, record: GroupRecord | ConsumerRecord) -> None:
        """Takes in one record."""
        if isinstance(record, GroupRecord):
            self.classic = record.stored
            return
        value = record.value
        if record.kind is Kind.EPOCH:
            self.is_modern = value is not None
            self.epoch = value.epoch if isinstance(value, GroupEpoch) else FIRST_EPOCH
        elif record.kind is Kind.TARGET_EPOCH:
            self.target_epoch = value.epoch if isinstance(value, AssignmentEpoch) else FIRST_EPOCH
        elif record.kind is Kind.MEMBER:
            (self.members.discard if value is None else self.members.add)(record.name)
        elif record.kind is Kind.CURRENT:
            self.currents.pop(record.name, None)
            if isinstance(value, CurrentAssignment):
                self.currents[record.name] = value

    def shares(self) -> dict[str, Share]:
        """What each member has."""
        if self.classic is not None:
            generation = self.classic.generation
            return {
                each.member_id: Share(generation, self._assigned(bytes(each.assignment)))
                for each in self.classic.members
            }
        return {each: self._share(self.currents.get(each, CurrentAssignment())) for each in self.members}

    def group_epoch(self) -> int:
        """The epoch of the group, or its generation."""
        return self.epoch if self.classic is None else self.classic.generation

    def is_both(self) -> bool:
        """Whether there are records of a classic group and a consumer group at once."""
        return self.classic is not None and (self.is_modern or bool(self.members or self.currents))

    def _assigned(self, assignment: bytes) -> frozenset[Place]:
        given = read_assignment(assignment).assigned_partitions
        return frozenset((each.topic, index) for each in given for index in each.partitions)

    def _share(self, current: CurrentAssignment) -> Share:
        is_stable = current.state is MemberState.STABLE and current.epoch == self.target_epoch == self.epoch
        return Share(current.epoch, self._places(current.assigned), self._places(current.revoking), is_stable)

    def _places(self, held: Mapping[bytes, Mapping[int, int]]) -> frozenset[Place]:
        return frozenset((self.topics.get(topic, topic.hex()), index) for topic, all_ in held.items() for index in all_)
