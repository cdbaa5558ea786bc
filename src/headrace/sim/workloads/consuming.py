"""The common part of all consumers of a group: they own partitions, fetch their committed offsets, commit higher ones
with their epoch, and report everything to the checkers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.client.errors import ClientError
from headrace.sim.checkers.shares import tag_of
from headrace.sim.client import OF_GROUPS
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from headrace.sim.checkers.commits import Commits, Place
    from headrace.sim.checkers.shares import Shares
    from headrace.sim.cluster_client import ClusterClient

LEAVES: Final = -1
LEAVES_FOR_A_WHILE: Final = -2
"""The epochs that say goodbye in the protocol of KIP-848."""
COMMITS: Final = 0.6
"""How often a consumer commits between two heartbeats."""
REVOKES_S: Final = (0.0, 1.0)
"""How long it takes to give something up."""
REVOKES_SLOWLY_S: Final = (5.0, 8.0)
SLOW: Final = 0.05
"""How often it takes so long that the coordinator loses patience."""
HAUNTS: Final = 0.5
"""How often a process that lost all goes on as what it was."""
COMMITS_VERSION: Final = 9
"""The version whose generation may be a member epoch; it names topics by their names."""
COORDINATOR_MOVED: Final = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)
"""Another broker may have to be asked, or the same one later."""
NOT_ITS_OWN: Final = frozenset(
    (
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.GROUP_ID_NOT_FOUND,
    )
)
"""The member learns more from its next heartbeat."""


@dataclass(slots=True)
class Group:
    """What the members of one group have in common."""

    id: str
    topic: str
    """Which all of them read."""
    partitions: Mapping[str, int]
    """How many, by the topics that a member may read."""
    commits: Commits
    shares: Shares
    is_restless: bool = False
    """Whether members change what they subscribe to."""
    is_mixed: bool = True
    """Whether members of both protocols may be in it at a time."""


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    """The partitions of each topic, in order."""
    found: dict[str, list[int]] = {}
    for topic, index in sorted(places):
        found.setdefault(topic, []).append(index)
    return found


class Consumer(ABC):
    """A consumer of a group, of either protocol."""

    def __init__(self, client: ClusterClient, group: Group, instance: str | None = None) -> None:
        """`instance` is its name, if it is a static member."""
        self.client = client
        self.group = group
        self.instance = instance
        self.topics = {group.topic}
        """What it subscribes to."""
        self.member_id = ""
        self.epoch = 0
        self.owned: set[Place] = set()
        self.positions: dict[Place, int] = {}
        """Where it goes on, of those that it owns and has asked about."""
        self.confirmed = 0
        """Commits."""
        self.is_over = False
        """Whether another process has its instance id, or it has left."""
        self._former: tuple[str, int, list[Place]] | None = None
        """What it was when it lost all: its member id, its epoch, and what it had."""
        self._leaves: int | None = None
        """The epoch with which it is to leave."""
        self._numbers = 0

    @property
    @abstractmethod
    def is_at_rest(self) -> bool:
        """Whether it owns all that it is to own, and the coordinator knows."""

    @abstractmethod
    async def _live(self) -> None:
        """The next thing that it does. Raises ClientError."""

    @abstractmethod
    async def _say_goodbye(self, epoch: int) -> None:
        """Gives everything up and leaves: with LEAVES for good. Raises ClientError."""

    async def run(self) -> None:
        """Until its node ends, or it is over."""
        while not self.is_over:
            try:
                if not await self.client.find(OF_GROUPS, self.group.id):
                    pass
                elif self._leaves is None:
                    await self._live()
                else:
                    self.is_over = True
                    await self._say_goodbye(self._leaves)
            except ClientError:
                pass  # what became of its request is not known
            await self.client.rest()

    def leave(self, epoch: int = LEAVES) -> None:
        """It leaves as soon as it has the answer that it waits for; a static one may leave for a while."""
        self._leaves = epoch

    def die(self) -> None:
        """Its process ends without notice."""
        self.group.shares.ended(self.group.id, self.member_id)
        self.client.die()

    # --- what it owns

    def _gain(self, places: set[Place]) -> None:
        if places:
            self.owned |= places
            self.group.shares.gained(self.group.id, self.member_id, self.epoch, places)

    def _lose(self, places: set[Place]) -> None:
        if places:
            self.owned -= places
            for place in places:
                self.positions.pop(place, None)
            self.group.shares.lost(self.group.id, self.member_id, places)

    def _lose_all(self) -> None:
        self._lose(set(self.owned))

    # --- its offsets

    async def _commit_some(self) -> None:
        if not self.owned or self.client.rng.random() > COMMITS:
            return
        unknown = self.owned - self.positions.keys()
        if unknown and not await self._find_positions(sorted(unknown)):
            return
        place = self.client.rng.choice(sorted(self.owned))
        await self._commit(place, self.positions[place] + self.client.rng.randint(1, 5))

    async def _find_positions(self, places: Sequence[Place]) -> bool:
        group, commits = self.group, self.group.commits
        floors = {place: commits.floor(group.id, place) for place in places}
        topics = [
            OffsetFetchRequestTopics(name=name, partition_indexes=all_) for name, all_ in by_topic(places).items()
        ]
        asked = OffsetFetchRequestGroup(group.id, self.member_id, self.epoch, topics)
        answer = (await self._ask_offsets(asked)).groups[0]
        if self._is_refused(answer.error_code):
            return False
        for name, partition in ((each.name, found) for each in answer.topics for found in each.partitions):
            if self._is_refused(partition.error_code):
                return False
            place = name, partition.partition_index
            commits.reads(group.id, place, partition.committed_offset, floors[place])
            self.positions[place] = max(partition.committed_offset, 0)
        return True

    async def _ask_offsets(self, asked: OffsetFetchRequestGroup) -> OffsetFetchResponse:
        return await self.client.ask(OffsetFetchRequest(groups=[asked]), OffsetFetchResponse, COMMITS_VERSION)

    async def _commit(self, place: Place, offset: int) -> None:
        self._numbers += 1
        tag = tag_of(self.member_id, self.epoch, self._numbers)
        shares = self.group.shares
        shares.unanswered.add(tag)
        self.positions[place] = offset  # where it goes on, whatever becomes of the commit
        error = await self.commit_as(self.member_id, self.epoch, place, offset, tag)
        if error not in COORDINATOR_MOVED:
            shares.unanswered.discard(tag)
        if error == ErrorCode.NONE:
            self.confirmed += 1
            self.group.commits.acknowledges(self.group.id, place, offset)
        else:
            self._is_refused(error)

    async def commit_as(self, member_id: str, epoch: int, place: Place, offset: int, tag: str) -> int:
        """Commits one offset as this member at this epoch; the error that comes back. Raises ClientError."""
        partition = OffsetCommitRequestPartition(place[1], offset, committed_metadata=tag)
        request = OffsetCommitRequest(
            group_id=self.group.id,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            group_instance_id=self.instance,
            topics=[OffsetCommitRequestTopic(name=place[0], partitions=[partition])],
        )
        answer = await self.client.ask(request, OffsetCommitResponse, COMMITS_VERSION)
        return int(answer.topics[0].partitions[0].error_code)

    def _remember(self) -> None:
        """It is about to lose all that it has."""
        if self.epoch > 0 and self.owned:
            self._former = self.member_id, self.epoch, sorted(self.owned)

    async def _haunt(self) -> None:
        """Sometimes what it was commits something that it has lost: the checker of the records objects if that is
        taken. Raises ClientError."""
        if self._former is None or self.client.rng.random() > HAUNTS:
            return
        (member_id, epoch, had), self._former = self._former, None
        lost = [place for place in had if place not in self.owned]
        if not lost:
            return
        place = self.client.rng.choice(lost)
        tag = tag_of(member_id, epoch, 0)
        self.group.shares.unanswered.add(tag)
        await self.commit_as(member_id, epoch, place, self.group.commits.floor(self.group.id, place), tag)

    def _is_refused(self, error: int) -> bool:
        """Whether a request was refused: what that says about the coordinator is noted."""
        if error == ErrorCode.NONE:
            return False
        if error in COORDINATOR_MOVED:
            self.client.moved(None)
        elif error not in NOT_ITS_OWN and error != ErrorCode.UNSTABLE_OFFSET_COMMIT:
            self._object_to(error)
        return True

    def _object_to(self, error: int) -> None:
        self.client.world.object(f"{self.client.host} ({self.member_id} at {self.epoch}) is answered {error}")
