"""The slower half of the uniform assignor: balances a group whose members read different topics.

Topics take turns, those with the most partitions for each reader first. Within a topic's turn its readers are sorted,
the least loaded first. Partitions are given to the left end of the row level by level, and taken from the right end
level by level, until the two levels meet.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Final

ROUNDS_MAX: Final = 16
"""The limit of rounds over all topics: with overlapping subscriptions each round about halves the imbalance."""

_NOBODY: Final = -1


class Balance:
    """The state of one balancing. Members are numbers: their places in the order in which they are served."""

    def __init__(self, readers: Mapping[bytes, list[int]], counts: Mapping[bytes, int], member_count: int) -> None:
        """Creates a state without owners. `readers` of each topic are ascending."""
        self._readers = readers
        self._loads = [0] * member_count
        """The number of partitions of each member."""
        self.owners = {topic_id: [_NOBODY] * counts[topic_id] for topic_id in readers}
        """The owner of each partition, by topic."""

    def keep(self, topic_id: bytes, partition: int, member: int) -> None:
        """Keeps partitions with their previous owners."""
        if partition < len(self.owners[topic_id]):
            self._give(topic_id, partition, member)

    def assign_the_rest(self) -> None:
        """Assigns unowned partitions to their least loaded readers."""
        for topic_id in self._in_turn(self.owners):
            owners = self.owners[topic_id]
            free = [partition for partition, owner in enumerate(owners) if owner == _NOBODY]
            if free:
                row = _Row(self._readers[topic_id], self._loads)
                for partition in free:
                    self._give(topic_id, partition, row.next_receiver())

    def level(self) -> None:
        """Moves partitions from the most loaded readers to the least loaded, until that no longer helps."""
        topics = self._in_turn(topic_id for topic_id, readers in self._readers.items() if len(readers) > 1)
        last_moved = _NOBODY
        for _ in range(ROUNDS_MAX):
            for turn, topic_id in enumerate(topics):
                if turn == last_moved:
                    return  # every topic has had its turn since, and nothing moved
                if self._level_topic(topic_id) or last_moved == _NOBODY:
                    last_moved = turn

    def _level_topic(self, topic_id: bytes) -> bool:
        """Levels one topic; returns whether anything moved."""
        load_of = self._loads.__getitem__
        readers, owners = self._readers[topic_id], self.owners[topic_id]
        if max(map(load_of, owners), default=0) - min(map(load_of, readers)) <= 1:
            return False  # the first move would improve nothing
        row = _Row(readers, self._loads)
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            owned.setdefault(owner, []).append(partition)
        moved = False
        while True:
            giver = row.next_giver()
            while giver is not None and not owned.get(giver):
                row.exclude_giver()
                giver = row.next_giver()
            if giver is None:
                return moved
            receiver = row.next_receiver()
            if row.levels_meet:
                return moved
            self._give(topic_id, owned[giver].pop(), receiver)
            moved = True

    def _give(self, topic_id: bytes, partition: int, member: int) -> None:
        owners = self.owners[topic_id]
        if owners[partition] != _NOBODY:
            self._loads[owners[partition]] -= 1
        owners[partition] = member
        self._loads[member] += 1

    def _in_turn(self, topics: Iterable[bytes]) -> list[bytes]:
        """Most partitions for each reader first, then fewest readers, then by id, as its two signed halves compare."""
        return sorted(topics, key=self._rank)

    def _rank(self, topic_id: bytes) -> tuple[float, int, int, int]:
        readers = len(self._readers[topic_id])
        high = int.from_bytes(topic_id[:8], "big", signed=True)
        low = int.from_bytes(topic_id[8:], "big", signed=True)
        return -len(self.owners[topic_id]) / readers, readers, high, low


class _Row:
    """The readers of a topic, the least loaded first, and how far its two ends have come.

    Equally loaded readers keep the order in which they are served.
    """

    def __init__(self, readers: list[int], loads: list[int]) -> None:
        self._loads = loads
        self._row = row = sorted(readers, key=loads.__getitem__)
        self._low_end = 0
        """Index after the last member at the low level, or rising to it."""
        self._low_level = loads[row[0]] - 1
        self._receiver = 0
        self._high_start = self._high_end = len(row)
        """Index of the last member at the high level, or sinking to it; members after it have nothing to give."""
        self._high_level = loads[row[-1]] + 1
        self._giver = len(row) - 1

    @property
    def levels_meet(self) -> bool:
        """Returns whether another move would improve nothing."""
        return self._high_level - self._low_level <= 1

    def next_receiver(self) -> int:
        """Returns the next receiver of a partition."""
        if self._receiver >= self._low_end:
            self._low_level += 1
            # After the low end the order is as at the start, up to the members at the high level.
            self._low_end = bisect_right(self._row, self._low_level, self._low_end, key=self._loads.__getitem__)
            self._receiver = 0
        self._receiver += 1
        return self._row[self._receiver - 1]

    def next_giver(self) -> int | None:
        """Returns the next giver of a partition; None if none has one left."""
        if self._giver < self._high_start:
            if self._high_end <= self._high_start and self._high_start > 0:
                self._high_level = self._load_at(self._high_start - 1)
            else:
                self._high_level -= 1
            while self._high_start > 0 and self._load_at(self._high_start - 1) == self._high_level:
                self._high_start -= 1
            self._giver = self._high_end - 1
        if self._giver < 0:
            return None
        self._giver -= 1
        return self._row[self._giver + 1]

    def exclude_giver(self) -> None:
        """Excludes the last giver, which had nothing to give: it changes places with the last remaining candidate."""
        self._high_end -= 1
        row, here, there = self._row, self._giver + 1, self._high_end
        row[here], row[there] = row[there], row[here]

    def _load_at(self, place: int) -> int:
        return self._loads[self._row[place]]
