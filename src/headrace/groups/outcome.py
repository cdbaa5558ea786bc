"""What deciding about groups yields, and the shard state that is decided upon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from headrace.groups.group import Group, Waiter
from headrace.groups.offsets_table import OffsetTable
from headrace.groups.records import MODERN_MEMBER_KEYS, SHARE_KEYS, STREAMS_KEYS, ModernRecord, Record
from headrace.groups.timers import Timers
from headrace.wire.errors import ErrorCode

Then: TypeAlias = "Callable[[ErrorCode, int], Outcome]"
"""What to decide once an outcome's records are committed, or could not be: (error, now_ms)."""


@dataclass(slots=True, eq=False)
class Outcome:
    """What the shell owes the machine after one step, in this order.

    1. append `records`, all or none, and apply them; 2. once they are committed, send `reply` to whoever asked; 3. send
    `released` to those who waited; 4. call `then`, and do what it says. Without records all of it happens at once. If
    the records cannot be appended, an error takes the place of `reply` (`released` goes out all the same), and `then`
    hears of it.
    """

    reply: Any = None
    """The response to the request; None when the machine kept its waiter."""
    records: list[Record] = field(default_factory=list)
    released: list[tuple[Waiter, Any]] = field(default_factory=list)
    """Answers to requests that waited, this one among them perhaps."""
    then: Then | None = None
    notes: list[str] = field(default_factory=list)
    """Sentences for the log: the machine writes none itself."""
    is_atomic: bool = True
    """False for tidying up, whose records may be appended in parts: what could not be is decided again another time."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """The broker's settings that the machine obeys; the defaults are Kafka's."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    initial_rebalance_delay_ms: int = 3_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    retention_check_interval_ms: int = 600_000
    groups_max: int = 100_000
    """Groups of all shards of a broker; whoever would make another is told COORDINATOR_NOT_AVAILABLE."""


NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000
"""How long a first JoinGroup may wait before its member is given up: nobody else would notice that it died."""


PENDING_MEMBERS_MAX: Final = 10_000
"""Member ids that a group has given out and that were not used yet; beyond it: GROUP_MAX_SIZE_REACHED."""


@dataclass(slots=True, eq=False)
class ModernGroup:
    """A consumer, share or streams group found in the log: kept, listed, and otherwise left alone."""

    id: str
    type: str
    """As ListGroups names it: "consumer", "share" or "streams"."""
    keys: dict[bytes, ModernRecord] = field(default_factory=dict)
    """Its live records, for their tombstones should the group be deleted."""
    member_count: int = 0

    @property
    def state(self) -> str:
        """The state's name, as far as the records tell it."""
        return "Stable" if self.member_count else "Empty"

    def apply(self, record: ModernRecord) -> None:
        """Takes in one record of the group."""
        had = self.keys.pop(record.key, None) is not None
        if record.value is not None:
            self.keys[record.key] = record
        if record.kind in MODERN_MEMBER_KEYS:
            self.member_count += (record.value is not None) - had


def modern_type(kind: int) -> str:
    """The group type that a record's key type belongs to."""
    if kind in SHARE_KEYS:
        return "share"
    return "streams" if kind in STREAMS_KEYS else "consumer"


@dataclass(slots=True, eq=False)
class ShardState:
    """Everything that one coordinator shard knows; the functions of this package decide upon it."""

    settings: GroupSettings
    new_id: Callable[[], str]
    """Entropy, as the text of a random UUID."""
    group_count: Callable[[], int]
    """Groups of all kinds, in all shards of the broker."""
    groups: dict[str, Group] = field(default_factory=dict)
    modern: dict[str, ModernGroup] = field(default_factory=dict)
    offsets: dict[str, OffsetTable] = field(default_factory=dict)
    """Committed offsets by group id, whatever the type of the group."""
    open_transactions: dict[int, set[str]] = field(default_factory=dict)
    """producer id -> the groups in which it has offsets pending"""
    timers: Timers = field(default_factory=Timers)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another group."""
        return self.group_count() >= self.settings.groups_max


def tombstones(modern: ModernGroup) -> list[ModernRecord]:
    """Records that remove every record of a group of the newer kinds, members before the group itself."""
    return [
        ModernRecord(modern.id, record.kind, record.key, None)
        for record in sorted(modern.keys.values(), key=lambda record: (-record.kind, record.key))
    ]
