"""The regular expressions of members: the topics that they match, and when to resolve them again.

A heartbeat is answered before its regular expression is resolved; then all those of the group are resolved at once, and
the group's epoch rises if their topics have changed. Topics that the requesting principal may not Describe are
excluded, for the whole group.

Nothing is matched here. A `LookUp` holds the expressions and the topics, and the shell matches them on a worker:
`found` takes each expression's topics, and `finished` ends the look-up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.records import ConsumerRecord, Kind, Resolved
from headrace.groups.modern.epochs import GroupEpoch
from headrace.machine.outcome import Outcome
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.groups.consumer.settings import ConsumerSettings
    from headrace.groups.modern.topics import Topics
    from headrace.groups.shard_state import GroupShardState

LOOK_INTERVAL_MS: Final = 10_000
"""The minimum time between two look-ups of a group."""
GROUP_REGEXES_MAX: Final = 100
"""The limit of distinct regular expressions of one group; beyond it a member is refused with GROUP_MAX_SIZE_REACHED."""
PRINCIPAL_REGEXES_MAX: Final = 10_000
"""The limit of regular expressions that one principal's members add in all groups of a broker."""

MayDescribe: TypeAlias = Callable[[str], bool]
"""Returns whether the requesting principal may see the topic of this name."""


def everybody_may(_topic: str) -> bool:
    """Allows every topic."""
    return True


@dataclass(slots=True, eq=False)
class LookUp:
    """The resolution of a group's regular expressions."""

    group: ConsumerGroup
    regexes: tuple[str, ...]
    topics: Topics
    """The topics to match."""
    principal: str
    """The requesting principal."""
    may_describe: MayDescribe
    changed: bool = False
    """Whether an expression matches other topics than before."""


def is_one_too_many(shard: GroupShardState, group: ConsumerGroup, before: str, principal: str, now_ms: int) -> str:
    """Returns why a member may not replace `before` with an expression that is new to the group; empty if it may."""
    readers = group.regex_readers.latest
    if len(readers) - (readers.get(before) == 1) >= GROUP_REGEXES_MAX:
        return f"Group {group.id} subscribes to {GROUP_REGEXES_MAX} different regular expressions already."
    if shard.regexes_held.reaches(principal, PRINCIPAL_REGEXES_MAX, now_ms):
        return f"Groups of {principal} subscribe to {PRINCIPAL_REGEXES_MAX} different regular expressions already."
    return ""


def is_due(group: ConsumerGroup, topics: Topics, settings: ConsumerSettings, now_ms: int) -> bool:
    """Returns whether to resolve now: an expression is new, there are new topics, or the last look-up is too old."""
    if group.look_up is not None or not group.regex_readers.latest:
        return False
    if group.looked_ms <= now_ms < group.looked_ms + LOOK_INTERVAL_MS:
        return False
    for regex in group.regex_readers.latest:
        found = group.regexes.latest.get(regex)
        if found is None or found.metadata_version < topics.last_created_version:
            return True
        if not found.resolved_ms <= now_ms < found.resolved_ms + settings.regex_refresh_interval_ms:
            return True
    return False


def look_after(shard: GroupShardState, group_id: str, principal: str, may_describe: MayDescribe, out: Outcome) -> None:
    """Starts a look-up once a heartbeat is stored and answered."""

    def stored(error: ErrorCode, now_ms: int) -> Outcome:
        group = shard.modern.latest.get(group_id)
        if error is not ErrorCode.NONE or not isinstance(group, ConsumerGroup):
            return Outcome()
        if not is_due(group, shard.topics, shard.settings_of(group_id), now_ms):
            return Outcome()  # another heartbeat came first
        group.looked_ms = now_ms
        regexes = tuple(sorted(group.regex_readers.latest))
        group.look_up = LookUp(group, regexes, shard.topics, principal, may_describe)
        return Outcome(question=group.look_up)

    out.then = stored


def found(shard: GroupShardState, look_up: LookUp, regex: str, means: frozenset[str], now_ms: int) -> Outcome:
    """Stores the topics of one regular expression, unless it has lost its last subscriber."""
    out, group = Outcome(), look_up.group
    if _is_current(shard, look_up) and regex in group.regex_readers.latest:
        value = Resolved(means, look_up.topics.version, now_ms)
        before = group.regexes.latest.get(regex)
        growth = value.size - (0 if before is None else before.size)
        if growth > 0 and not shard.take_for_assignments(group.id, growth, now_ms):
            out.note("a regular expression means what it meant: there is no room for more topics", group=group.id)
            return out
        look_up.changed = look_up.changed or means != (frozenset() if before is None else before.topics)
        out.records.append(ConsumerRecord(group.id, Kind.REGEX, regex, value))
    return out


def finished(shard: GroupShardState, look_up: LookUp) -> Outcome:
    """Ends a resolution: the group's epoch rises if a result has changed."""
    out, group = Outcome(), look_up.group
    if _is_current(shard, look_up):
        group.look_up = None
        group.checked_topics = None  # results may not have been stored: the next heartbeat compares
        if look_up.changed:
            epoch = GroupEpoch(group.epoch.epoch + 1, shard.topics.hash(group.topics()))
            out.records.append(ConsumerRecord(group.id, Kind.EPOCH, "", epoch))
    return out


def _is_current(shard: GroupShardState, look_up: LookUp) -> bool:
    """Returns whether the group still exists and waits for this look-up."""
    group = look_up.group
    return group.look_up is look_up and shard.modern.latest.get(group.id) is group
