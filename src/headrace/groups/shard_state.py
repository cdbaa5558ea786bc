"""The state of a shard of groups, which decisions are based on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.groups.classic.group import Group
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.modern.topics import NO_TOPICS, Topics
from headrace.groups.offsets_table import OffsetTable
from headrace.groups.records import StoredGroup
from headrace.groups.tally import Tally
from headrace.groups.usage import MemberUsage, Usage
from headrace.machine.timeline import Timeline, TimelineTable
from headrace.machine.timers import Timers

if TYPE_CHECKING:
    from headrace.groups.consumer.settings import ConsumerSettings
    from headrace.groups.modern.group import ModernGroup
    from headrace.groups.settings import GroupSettings

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""How long a first JoinGroup may wait before its member is removed: nothing else would notice that its client died."""


PENDING_MEMBERS_MAX: Final = 10_000
"""The limit of unused member ids of a group; beyond it GROUP_MAX_SIZE_REACHED."""


GROUPS_RESERVED: Final = 10
"""One in this many groups of the limit is reserved for principals with few groups..."""
GROUPS_FEW: Final = 100
"""...that is fewer than one in this many of the limit, so that no principal locks out all others."""

MEMBER_BYTES_MAX: Final = 256 * 1024 * 1024
"""The memory of a broker for the members of all its groups: protocols with their metadata, topics, ids, assignments.
Beyond it a member is answered COORDINATOR_NOT_AVAILABLE."""
PRINCIPAL_MEMBER_BYTES_MAX: Final = MEMBER_BYTES_MAX // 2
"""The memory for the members of one principal."""
ASSIGNMENT_BYTES_MAX: Final = 2 * 1024 * 1024 * 1024
"""The memory of a broker for what it computes for consumer groups: assignments (four million partitions), and the
topics of regular expressions. Beyond it a group keeps its targets."""
PRINCIPAL_ASSIGNMENT_BYTES_MAX: Final = ASSIGNMENT_BYTES_MAX // 2
"""The memory for the computed state of the groups that one principal created."""


class Tallies(NamedTuple):
    """The usage of each principal in all shards of a broker."""

    groups: Tally
    regexes: Tally
    """The number of regular expressions."""
    member_bytes: Usage
    """The memory of members."""
    assignment_bytes: Tally


class GroupShardState:
    """The state of one shard of groups, upon which the functions of this package decide.

    The tables mirror the log, and only `GroupShard.apply` writes them; `groups` and `timers` are in memory only.
    """

    __slots__ = ("assignment_bytes", "assignments_held", "classic", "group_count", "group_owners", "groups",
                 "groups_held", "is_loading", "member_bytes", "modern", "new_id", "offsets",
                 "open_transactions", "regex_owners", "regexes_held", "settings", "settings_of", "timeline",
                 "timers", "topics")  # fmt: skip

    def __init__(
        self,
        settings: GroupSettings,
        new_id: Callable[[], str],
        group_count: Callable[[], int],
        settings_of: Callable[[str], ConsumerSettings] | None = None,
        tallies: Tallies | None = None,
    ) -> None:
        self.settings = settings
        tallies = tallies or Tallies(
            Tally(self.count_groups),
            Tally(self.count_regexes),
            Usage(),
            Tally(self.count_assignment_bytes),
        )
        self.groups_held = tallies.groups
        self.group_owners: dict[str, str] = {}
        """group id -> the principal that created it, if this coordinator saw it."""
        self.member_bytes = MemberUsage(tallies.member_bytes)
        self.regexes_held = tallies.regexes
        """The number of regular expressions of each principal, in all shards of the broker."""
        self.regex_owners: dict[tuple[str, str], str] = {}
        """(group id, regular expression) -> the principal that added it, if this coordinator saw it."""
        self.settings_of = settings_of or (lambda _: self.settings.consumer)
        """The settings of a consumer group; called each time, because a group's own settings take effect at once."""
        self.topics: Topics = NO_TOPICS
        """The topics of the cluster; `GroupShard.know_topics` sets them."""
        self.new_id = new_id
        """Draws the text of a random UUID."""
        self.group_count = group_count
        """Returns the number of groups of all kinds, in all shards of the broker."""
        self.assignments_held = tallies.assignment_bytes
        self.timeline = timeline = Timeline()
        self.assignment_bytes: TimelineTable[None, int] = TimelineTable(timeline)
        """This shard's part of ASSIGNMENT_BYTES_MAX."""
        self.classic: TimelineTable[str, StoredGroup] = TimelineTable(timeline)
        """Classic groups, each with its last stored generation, or SIMPLE_GROUP."""
        self.modern: TimelineTable[str, ModernGroup] = TimelineTable(timeline)
        self.offsets: TimelineTable[str, OffsetTable] = TimelineTable(timeline)
        """Committed offsets by group id, whatever the type of the group."""
        self.open_transactions: TimelineTable[int, frozenset[str]] = TimelineTable(timeline)
        """producer id -> the groups in which it has pending offsets"""
        self.groups: dict[str, Group] = {}
        """Classic groups in memory: those of `classic`, and those whose first record is in flight."""
        self.timers = Timers()
        self.is_loading = True
        """Whether the log is still being loaded: the shard serves no client yet."""

    def add_group(self, group: Group) -> None:
        """Adds a classic group in memory; replaces one of the same id."""
        self.remove_group(group.id)
        self.groups[group.id] = group
        group.join_usage(self.member_bytes)

    def remove_group(self, group_id: str) -> Group | None:
        """Removes a classic group from memory, and returns it."""
        group = self.groups.pop(group_id, None)
        if group is not None:
            group.leave_usage()
        return group

    def has_room_for(self, principal: str, amount: int) -> bool:
        """Returns whether members of a principal may keep this many more bytes."""
        return self.member_bytes.has_room(principal, amount, PRINCIPAL_MEMBER_BYTES_MAX, MEMBER_BYTES_MAX)

    def take_for_assignments(self, group_id: str, amount: int, now_ms: int) -> bool:
        """Returns whether a group may keep this many more bytes, and charges its principal if so."""
        owner = self.group_owners.get(group_id, "")
        share = PRINCIPAL_ASSIGNMENT_BYTES_MAX if owner else ASSIGNMENT_BYTES_MAX
        if not self.assignments_held.has_room(owner, amount, share, ASSIGNMENT_BYTES_MAX, now_ms):
            return False
        self.assignments_held.add(owner, amount)
        return True

    def count_assignment_bytes(self) -> Counter[str]:
        """Returns the bytes kept in this shard for the groups of each principal."""
        held: Counter[str] = Counter()
        for group_id, modern in self.modern.latest.items():
            if isinstance(modern, ConsumerGroup):
                held[self.group_owners.get(group_id, "")] += modern.assignment_bytes
        return held

    def count_regexes(self) -> Counter[str]:
        """Returns the number of regular expressions that each principal has added in this shard."""
        self.regex_owners = {each: by for each, by in self.regex_owners.items() if self._is_subscribed(*each)}
        return Counter(self.regex_owners.values())

    def _is_subscribed(self, group_id: str, regex: str) -> bool:
        group = self.modern.latest.get(group_id)
        return isinstance(group, ConsumerGroup) and regex in group.regex_readers.latest

    def has_room_for_group(self, principal: str, now_ms: int) -> bool:
        """Returns whether a principal may create another group. The last tenth of the limit is reserved for principals
        with few."""
        count, room = self.group_count(), self.settings.groups_max
        if count < room - room // GROUPS_RESERVED:
            return True
        return count < room and not self.groups_held.reaches(principal, max(1, room // GROUPS_FEW), now_ms)

    def group_made(self, group_id: str, principal: str) -> None:
        """Counts a group whose first record is in flight."""
        self.groups_held.add(principal)
        self.group_owners[group_id] = principal

    def count_groups(self) -> Counter[str]:
        """Returns the number of groups of this shard that each principal created."""
        here = self.groups.keys() | self.modern.latest.keys()
        self.group_owners = {each: by for each, by in self.group_owners.items() if each in here}
        return Counter(self.group_owners.values())
