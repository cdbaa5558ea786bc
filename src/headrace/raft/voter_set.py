"""Who votes, as a history by offset: a voter set takes effect when its record is appended, committed or not.

A truncation takes it back; a snapshot carries the one that is in force at its end. Of two sets that follow one another
any two majorities have a voter in common, for one voter alone comes or goes at a time. Source: KIP-853.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from headrace.raft.control import ControlRecord, ControlType, Voter, voters_of
from headrace.raft.messages import ReplicaKey

NOT_IN_LOG: Final = -1
"""The offset of the voter set that the settings, or a fresh format's snapshot, name."""


def key_of(voter: Voter) -> ReplicaKey:
    """How a voter is named in votes and fetches."""
    return ReplicaKey(voter.id, voter.directory_id)


@dataclass(frozen=True, slots=True)
class VoterSet:
    """The voters, each node once, and the finalized kraft.version: 0, and they never change; 1, and they may."""

    voters: tuple[Voter, ...] = ()
    kraft_version: int = 1

    def __post_init__(self) -> None:
        assert len({voter.id for voter in self.voters}) == len(self.voters), "a node votes once"

    @property
    def keys(self) -> tuple[ReplicaKey, ...]:
        """The voters' names."""
        return tuple(key_of(voter) for voter in self.voters)

    @property
    def majority(self) -> int:
        """How many of them decide."""
        return len(self.voters) // 2 + 1

    def of(self, node_id: int) -> Voter | None:
        """The voter that a node is."""
        return next((voter for voter in self.voters if voter.id == node_id), None)

    def names(self, replica: ReplicaKey) -> bool:
        """Whether a replica votes. At kraft.version 0 a replica with the id of a voter is that voter."""
        named = self.of(replica.id)
        return named is not None and (self.kraft_version == 0 or key_of(named) == replica)

    def with_voter(self, voter: Voter) -> VoterSet:
        """With one more, or with another entry of one; in the order of their ids, as Kafka writes them."""
        others = [each for each in self.voters if each.id != voter.id]
        return replace(self, voters=tuple(sorted([*others, voter])))

    def without(self, key: ReplicaKey) -> VoterSet:
        """With one fewer."""
        return replace(self, voters=tuple(voter for voter in self.voters if key_of(voter) != key))

    def noting(self, record: ControlRecord) -> VoterSet:
        """What a control record makes of it."""
        if record.type is ControlType.KRAFT_VERSION:
            return replace(self, kraft_version=record.message.kraft_version)
        if record.type is ControlType.KRAFT_VOTERS:
            return replace(self, voters=voters_of(record.message))
        return self


class VoterHistory:
    """The voter sets of a log, each at the offset of the record that brought it.

    `oldest` is the set in force before the log begins, at the last offset before it, or `NOT_IN_LOG`.
    """

    def __init__(self, oldest: VoterSet, offset: int = NOT_IN_LOG) -> None:
        self._offsets = [offset]
        self._sets = [oldest]

    @property
    def newest(self) -> VoterSet:
        """Who votes now."""
        return self._sets[-1]

    @property
    def newest_offset(self) -> int:
        """The offset of the record that set it; `NOT_IN_LOG` if no record of the log did."""
        return self._offsets[-1]

    def at(self, end_offset: int) -> VoterSet:
        """The set that the log below an offset brings."""
        return self.since(end_offset)[0]

    def since(self, end_offset: int) -> list[VoterSet]:
        """The set that the log below an offset brings, and those that follow; below 0 all of them."""
        return self._sets[max(0, bisect_left(self._offsets, end_offset) - 1) :]

    def note(self, offset: int, record: ControlRecord) -> None:
        """Takes in the control record at an offset, if it tells of the voters."""
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
        """Takes back the sets from an offset on, at which the log was truncated."""
        while len(self._offsets) > 1 and self._offsets[-1] >= offset:
            self._offsets.pop()
            self._sets.pop()
        assert self._offsets[-1] < offset, "a snapshot ends before what may be cut"
        assert len(self._offsets) == len(self._sets), "each set has its offset"

    def shorten(self, start_offset: int) -> None:
        """The log begins at an offset: of the sets before it the newest stays."""
        at = max(0, bisect_left(self._offsets, start_offset) - 1)
        del self._offsets[:at], self._sets[:at]

    def start_at(self, end_offset: int, voters: VoterSet | None) -> None:
        """A snapshot that ends here has taken the place of the log. None: it does not say who votes."""
        known, offset = (self._sets[0], self._offsets[0]) if voters is None else (voters, end_offset - 1)
        self._offsets, self._sets = [offset], [known]
