"""The consumer groups of a mirror's source, at its target: committed where they would go on reading there."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Final

from headrace.client.cluster import Client
from headrace.client.errors import BrokerError, ClientError
from headrace.client.groups import Committed, GroupListing, commit_offsets, fetch_offsets, list_groups
from headrace.client.metadata import TopicPartition
from headrace.client.reading import EARLIEST, list_offsets
from headrace.spark.delivery import markers
from headrace.wire.errors import ErrorCode
from headrace_pipelines.mirror_offsets import Runs, is_due, mark_of, translated

SYNC_S: Final = 5.0
"""Between two looks at the groups of the source."""
MIRROR_GROUPS: Final = "headrace-mirror"
"""How the groups begin that show how far mirrors are; those are not mirrored."""
IDLE: Final = ("", "Empty", "Dead")
"""The states of a group without members; brokers before 2.6 name none."""
MEMBERS: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH)
"""What a coordinator answers to a commit from outside a group that has members."""

Copies = Mapping[TopicPartition, Runs]
"""The offsets of the copies, by the source's partitions; every mirrored partition is there."""


class GroupSync:
    """Commits at the target what the source's groups have read.

    A group with members at the target is left alone. A refused commit is warned about, once, and tried again.
    """

    def __init__(self, source: Client, target: Client, pattern: str, prefix: str, warn: Callable[[str], None]) -> None:
        """`pattern` is a regular expression for whole names of groups."""
        self.source = source
        self.target = target
        self.pattern = re.compile(pattern)
        self.prefix = prefix
        self.warn = warn
        self._warned: set[str] = set()
        self._done: dict[str, dict[TopicPartition, tuple[int, int | None]]] = {}
        self._looked = -SYNC_S

    def look(self, copies: Copies) -> None:
        """`sync`, if it is time again."""
        if time.monotonic() - self._looked >= SYNC_S:
            self.sync(copies)
            self._looked = time.monotonic()

    def sync(self, copies: Copies) -> None:
        """Bring every group up to date that can be."""
        try:
            groups = [group.group_id for group in list_groups(self.source) if self._is_mirrored(group)]
            states = {group.group_id: group.state for group in list_groups(self.target)} if groups else {}
            for group in groups:
                if states.get(group, "") in IDLE:
                    self._sync(group, copies)
                else:
                    self._has_members(group)
        except ClientError as error:
            self._warn_once("", f"cannot mirror the offsets of groups now: {error}")
        else:
            self._warned.discard("")

    def _is_mirrored(self, group: GroupListing) -> bool:
        consumes = group.protocol_type in ("", "consumer") and group.type.lower() in ("", "classic", "consumer")
        own = group.group_id.startswith(MIRROR_GROUPS)
        return consumes and not own and self.pattern.fullmatch(group.group_id) is not None

    def _sync(self, group: str, copies: Copies) -> None:
        try:
            self._move(group, copies)
        except BrokerError as error:
            self._done.pop(group, None)
            if error.code in MEMBERS:
                self._has_members(group)
            else:
                self._warn_once(group, f"cannot mirror the offsets of group {group} now: {error}")
        else:
            self._warned.discard(group)

    def _move(self, group: str, copies: Copies) -> None:
        read = {
            at: found.offset
            for at, found in fetch_offsets(self.source, group).items()
            # the number of a query's batch is no place in a topic
            if at in copies and markers.parsed(found) is None
        }
        wanted = {at: (offset, translated(copies[at], offset)) for at, offset in read.items()}
        if not wanted or wanted == self._done.get(group):
            return
        names = {at: (self.prefix + at[0], at[1]) for at in wanted}
        begins = list_offsets(self.target, dict.fromkeys(names.values(), EARLIEST))
        there = fetch_offsets(self.target, group, names.values())
        due: dict[TopicPartition, Committed] = {}
        for at, (offset, translation) in wanted.items():
            name = names[at]
            # below the known runs, and below the log start, it is everything: a deleted offset may mean the end
            translation = max(translation or 0, begins[name].offset)
            found = there.get(name)
            if found is None or is_due(offset, translation, found.offset, found.metadata):
                due[name] = Committed(translation, metadata=mark_of(offset))
        commit_offsets(self.target, group, due)
        self._done[group] = wanted

    def _has_members(self, group: str) -> None:
        self._done.pop(group, None)
        self._warn_once(group, f"group {group} has members at the target: the mirror waits until they leave")

    def _warn_once(self, about: str, text: str) -> None:
        if about not in self._warned:
            self._warned.add(about)
            self.warn(text)
