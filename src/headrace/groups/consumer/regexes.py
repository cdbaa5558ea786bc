"""The regular expressions that members subscribe to: which topics they mean, and when to look again.

A heartbeat is answered before its regular expression is looked up; all those of a group are then looked up at once, and
the group's epoch rises where their topics are others than before. Topics that whoever asked may not Describe are left
out, for the whole group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.records import ConsumerRecord, GroupEpoch, Kind, Resolved
from headrace.machine.outcome import Outcome
from headrace.machine.patterns import PatternError, check, matching
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.groups.consumer.settings import ConsumerSettings
    from headrace.groups.consumer.topics import Topics
    from headrace.groups.outcome import ShardState

LOOK_INTERVAL_MS: Final = 10_000
"""The least time between two looks at a group's regular expressions."""

MayDescribe: TypeAlias = Callable[[str], bool]
"""Whether somebody may see the topic of this name."""


def everybody_may(_topic: str) -> bool:
    """No topic is kept from anybody."""
    return True


def what_is_wrong(regex: str) -> str:
    """Why a regular expression cannot be understood; empty when it can."""
    try:
        check(regex)
    except PatternError as error:
        return str(error)
    return ""


def is_due(group: ConsumerGroup, topics: Topics, settings: ConsumerSettings, now_ms: int) -> bool:
    """Whether to look now: one is new, there are new topics, or the last look is long ago."""
    if not group.regex_readers.latest or group.looked_ms <= now_ms < group.looked_ms + LOOK_INTERVAL_MS:
        return False
    for regex in group.regex_readers.latest:
        found = group.regexes.latest.get(regex)
        if found is None or found.metadata_version < topics.last_created_version:
            return True
        if not found.resolved_ms <= now_ms < found.resolved_ms + settings.regex_refresh_interval_ms:
            return True
    return False


def look_after(shard: ShardState, group_id: str, may_describe: MayDescribe, out: Outcome) -> None:
    """Looks when a heartbeat is stored and answered."""

    def stored(error: ErrorCode, now_ms: int) -> Outcome:
        group = shard.modern.latest.get(group_id)
        if error is not ErrorCode.NONE or not isinstance(group, ConsumerGroup):
            return Outcome()
        if not is_due(group, shard.topics, shard.settings_of(group_id), now_ms):
            return Outcome()  # another heartbeat came first
        return look(shard, group, may_describe, now_ms)

    out.then = stored


def look(shard: ShardState, group: ConsumerGroup, may_describe: MayDescribe, now_ms: int) -> Outcome:
    """Finds the topics of every regular expression of a group."""
    topics, out = shard.topics, Outcome()
    group.looked_ms = now_ms
    reads, changed = set(group.readers.latest), False
    for regex in sorted(group.regex_readers.latest):
        means: frozenset[str] = frozenset()
        if not what_is_wrong(regex):  # another broker's coordinator may have taken what we do not understand
            means = frozenset(filter(may_describe, matching(regex, topics.by_name)))
        before = group.regexes.latest.get(regex)
        changed = changed or means != (frozenset() if before is None else before.topics)
        reads |= means
        out.records.append(ConsumerRecord(group.id, Kind.REGEX, regex, Resolved(means, topics.version, now_ms)))
    if changed:
        epoch = GroupEpoch(group.epoch.epoch + 1, topics.hash(reads))
        out.records.append(ConsumerRecord(group.id, Kind.EPOCH, "", epoch))
    return out
