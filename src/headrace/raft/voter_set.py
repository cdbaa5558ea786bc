"""The voters as a history by offset: a voter set applies once its record is appended, committed or not.

A truncation reverts it; a snapshot carries the set at its end. Any two majorities of consecutive sets share a voter,
because one voter at a time is added or removed. Source: KIP-853.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from headrace.raft.control import ControlRecord, ControlType, Voter, voters_of
from headrace.raft.messages import ReplicaKey

NOT_IN_LOG: Final = -1
"""The offset of the voter set of the settings, or of a fresh format's snapshot."""


def key_of(voter: Voter) -> ReplicaKey:
    """Returns the key of a voter in votes and fetches."""
    return ReplicaKey(voter.id, voter.directory_id)


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters, each node once, and the finalized kraft.version: at 0 they never change, at 1 they may."""

    voters: tuple[Voter, ...] = ()
    kraft_version: int = 1

    def __post_init__(self) -> None:
        assert len({voter.id for voter in self.voters}) == len(self.voters), "a node votes once"

    @property
    def keys(self) -> tuple[ReplicaKey, ...]:
        """The voters' keys."""
        return tuple(key_of(voter) for voter in self.voters)

    @property
    def majority(self) -> int:
        """The size of a majority."""
        return len(self.voters) // 2 + 1

    def of(self, node_id: int) -> Voter | None:
        """Returns a node's voter entry, or None."""
        return next((voter for voter in self.voters if voter.id == node_id), None)

    def names(self, replica: ReplicaKey) -> bool:
        """Returns whether a replica votes. At kraft.version 0 a replica with the id of a voter is that voter."""
        named = self.of(replica.id)
        return named is not None and (self.kraft_version == 0 or key_of(named) == replica)

    def with_voter(self, voter: Voter) -> VoterSet:
        """Returns the set with a voter added or replaced, in the order of ids, as Kafka writes them."""
        others = [each for each in self.voters if each.id != voter.id]
        return replace(self, voters=tuple(sorted([*others, voter])))

    def without(self, key: ReplicaKey) -> VoterSet:
        """Returns the set without a voter."""
        return replace(self, voters=tuple(voter for voter in self.voters if key_of(voter) != key))

    def noting(self, record: ControlRecord) -> VoterSet:
        """Returns the set after a control record."""
        if record.type is ControlType.KRAFT_VERSION:
            return replace(self, kraft_version=record.message.kraft_version)
        if record.type is ControlType.KRAFT_VOTERS:
            return replace(self, voters=voters_of(record.message))
        return self


class VoterHistory:
    """The voter sets of a log, each at the offset of its record.

    `oldest` is the set in force before the log begins, at the last offset before it, or `NOT_IN_LOG`.
    """

    def __init__(self, oldest: VoterSet, offset: int = NOT_IN_LOG) -> None:
        self._offsets = [offset]
        self._sets = [oldest]

    @property
    def newest(self) -> VoterSet:
        """The current voter set."""
        return self._sets[-1]

    @property
    def newest_offset(self) -> int:
        """The offset of its record; `NOT_IN_LOG` if the log has none."""
        return self._offsets[-1]

    def at(self, end_offset: int) -> VoterSet:
        """Returns the set that applies at the end of the log below an offset."""
        return self.since(end_offset)[0]

    def since(self, end_offset: int) -> list[VoterSet]:
        """Returns the set that applies at the end of the log below an offset, and those after it; below 0 all of
        them."""
        return self._sets[max(0, bisect_left(self._offsets, end_offset) - 1) :]

    def note(self, offset: int, record: ControlRecord) -> None:
        """Applies the control record at an offset, if it changes the voters."""
        if record.type in (ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS):
            assert offset > self._offsets[-1], "a log grows at its end"
            self._offsets.append(offset)
            self._sets.append(self.newest.noting(record))

    def note_all(self, base_offset: int, records: Sequence[ControlRecord | None]) -> None:
        """Applies the control records from an offset on; None is one of an unknown type."""
        for at, record in enumerate(records):
            if record is not None:
                self.note(base_offset + at, record)

    def truncate(self, offset: int) -> None:
        """Reverts the sets from an offset on, at which the log was truncated."""
        while len(self._offsets) > 1 and self._offsets[-1] >= offset:
            self._offsets.pop()
            self._sets.pop()
        assert self._offsets[-1] < offset, "a snapshot ends before what may be cut"
        assert len(self._offsets) == len(self._sets), "each set has its offset"

    def shorten(self, start_offset: int) -> None:
        """Drops the sets before the new log start, except the newest of them."""
        at = max(0, bisect_left(self._offsets, start_offset) - 1)
        del self._offsets[:at], self._sets[:at]

    def start_at(self, end_offset: int, voters: VoterSet | None) -> None:
        """Resets the history to a snapshot that replaced the log. None: the snapshot has no voter set."""
        known, offset = (self._sets[0], self._offsets[0]) if voters is None else (voters, end_offset - 1)
        self._offsets, self._sets = [offset], [known]
