"""The epochs of a modern group (KIP-848): of the group, of its target assignment, and of each member.

The group epoch rises when the members, their subscriptions or the topics change. The target assignment is computed for
a group epoch, which becomes its assignment epoch. A member reaches the assignment epoch when it is reconciled with its
target, and sends its own epoch in each heartbeat.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headrace.groups.modern.topics import Topics

JOINS: Final = 0
"""The member epoch of a heartbeat that joins, or joins again."""
LEAVES: Final = -1
"""The member epoch of a heartbeat that leaves."""


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """The epoch of a group, and the hash of its topics (KIP-1101) in that epoch."""

    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class AssignmentEpoch:
    """The group epoch that the target assignment was computed for, and when; 0 if the time is not known."""

    epoch: int
    computed_ms: int = 0


NEW_GROUP_EPOCH: Final = GroupEpoch(1)
"""The epoch of a group without a record of it: its first subscription makes it 2, as in Kafka."""
NEW_ASSIGNMENT_EPOCH: Final = AssignmentEpoch(1)
"""The epoch of a target assignment that was never computed."""


def raised(group: GroupEpoch, topics: Topics, subscribed: AbstractSet[str], is_changed: bool) -> GroupEpoch | None:
    """Returns the next epoch of a group that subscribes to these topics; None if neither it (`is_changed`) nor its
    topics changed."""
    metadata_hash = topics.hash(subscribed)
    if not is_changed and metadata_hash == group.metadata_hash:
        return None
    return GroupEpoch(group.epoch + 1, metadata_hash)


def may_compute(last: AssignmentEpoch, interval_ms: int, now_ms: int) -> bool:
    """Returns whether the assignment interval since the last computation is over (KIP-1263)."""
    return not (last.computed_ms and last.computed_ms <= now_ms < last.computed_ms + interval_ms)


class SentEpoch(Enum):
    """How the member epoch of a heartbeat relates to the member's."""

    CURRENT = auto()
    """It is the member's, or the member joins again."""
    PREVIOUS = auto()
    """It is the previous one: the answer with the member's current epoch may have been lost."""
    FENCED = auto()
    """It is neither: FENCED_MEMBER_EPOCH."""


def compare(sent: int, epoch: int, previous_epoch: int) -> SentEpoch:
    """Compares the member epoch of a heartbeat with the epoch of the member and the one before it."""
    if sent in (JOINS, epoch):
        return SentEpoch.CURRENT
    return SentEpoch.PREVIOUS if sent < epoch and sent == previous_epoch else SentEpoch.FENCED
