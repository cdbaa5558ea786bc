"""Members of a classic group: they join, assign, send heartbeats, commit increasing offsets, and die.

Some are static: now and then another process takes over an instance. The former process continues for a while as if
nothing had happened: its requests with an earlier generation or a replaced member id must be refused.

The members of some groups are eager: they give up their partitions before they rejoin. Those of others cooperate
(KIP-429): they keep them, report them when they join, and give up what the next generation assigns to others; then they
join once more, and another member gets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from headrace.client.errors import ClientError
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
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headrace.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from headrace.wire.messages.k15_describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

if TYPE_CHECKING:
    import random

    from headrace.sim.checkers.commits import Commits, Place
    from headrace.sim.checkers.owners import Owners
    from headrace.sim.client import SimClient

SESSION_MS: Final = 6_000
REBALANCE_MS: Final = 10_000
LEASE_S: Final = min(SESSION_MS, REBALANCE_MS) / 1000
"""How long an answer that lets a member stay holds: see `Owners`."""
PROTOCOL: Final = "sim"
COOPERATIVE: Final = 0.5
"""The share of groups whose members cooperate."""
COMES_AGAIN: Final = 0.02
"""How often, of its beats, a member that cooperates wants the partitions shared out in another order."""
OUT: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.ILLEGAL_GENERATION)
"""Who hears this owns nothing any more."""
TAKEN_OVER: Final = 0.1
"""How often, of the beats of a static member, another process is there before the next."""


@dataclass(slots=True)
class Membership:
    """What a member knows of its group."""

    member_id: str = ""
    generation: int = -1
    partitions: list[Place] = field(default_factory=list)
    owned_since: int = -1
    """The generation that gave it its partitions."""
    positions: dict[Place, int] = field(default_factory=dict)


class Member:
    """A member of a consumer group.

    `assigned` is what it takes itself for the owner of; empty while it is not in a generation.
    """

    def __init__(
        self,
        client: SimClient,
        commits: Commits,
        owners: Owners,
        group: str,
        places: Sequence[Place],
        instance: str | None = None,
        haunted: random.Random | None = None,
    ) -> None:
        """`instance` is its name where it is static; `haunted` is given where what it was goes on."""
        self._owners = owners
        self._wishes = 0
        """How often it has come again."""
        self._cooperates = client.world.rng(f"cooperative {group}").random() < COOPERATIVE
        self.instance = instance
        self._haunted = haunted
        self._former: tuple[str, int] | None = None
        """Member id and generation that it had before."""
        self.client = client
        self.commits = commits
        self.group = group
        self.places = list(places)
        self.state = Membership()
        self._generation = -1
        """The last that it was in."""
        self.assigned: list[Place] = []

    async def run(self) -> None:
        """Until its node ends."""
        while True:
            try:
                await self._live()
            except ClientError:
                await self.client.rest()
            if not self._cooperates:
                self._give_up()

    @property
    def _who(self) -> str:
        return self.instance or self.state.member_id

    def _give_up(self) -> None:
        """It owns nothing any more."""
        self.assigned, self.state.partitions, self.state.owned_since = [], [], -1
        self._owners.gives_up(self.group, self._who)

    def die(self) -> None:
        """Its process ends without notice."""
        self.client.die()
        self._give_up()

    async def _live(self) -> None:
        """One generation: from joining it to its end."""
        await self.client.ask(FindCoordinatorRequest(key=self.group, key_type=0), FindCoordinatorResponse, 3)
        joined = await self._join()
        if joined is None:
            await self.client.rest()
            return
        state = self.state
        assignments = []
        if joined.leader == joined.member_id:
            for member_id, mine in self._assign(joined).items():
                assignments.append(SyncGroupRequestAssignment(member_id, _text_of(mine).encode()))
        asked_s, at = self.client.world.loop.time(), self.client.coordinator(OF_GROUPS)
        synced = await self.client.ask(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=state.generation,
                member_id=state.member_id,
                group_instance_id=self.instance,
                assignments=assignments,
            ),
            SyncGroupResponse,
            3,
        )
        if synced.error_code != ErrorCode.NONE:
            self._note(synced.error_code)
            await self.client.rest()
            return
        had, state.partitions = state.partitions, _places_of(bytes(synced.assignment).decode())
        state.owned_since = state.generation
        self._owners.takes(self.group, self._who, state.generation, state.partitions, asked_s, LEASE_S, at)
        if not await self._find_positions():
            return
        self.assigned = state.partitions
        await self._haunt()
        if self._cooperates and not set(had) <= set(state.partitions):
            return  # what it has given up others get when it joins again
        while await self._beat():
            await self.client.rest()
            if self.instance is not None and self._haunted is not None and self._haunted.random() < TAKEN_OVER:
                self._former = state.member_id, state.generation
                self._give_up()
                state.member_id = ""
                return
            if self.client.rng.random() < 0.7 and not await self._commit():
                return
            if self._cooperates and self.client.rng.random() < COMES_AGAIN:
                self._wishes += 1
                return

    def _assign(self, joined: JoinGroupResponse) -> dict[str, list[Place]]:
        """By member, as the leader of a generation shares the partitions out: one that another member says it owns has
        to be given up first. Who had it in a later generation owns it."""
        ids = sorted(member.member_id for member in joined.members)
        owner: dict[Place, tuple[int, str]] = {}
        shift = 0
        for member in joined.members if self._cooperates else ():
            since, wishes, owned = bytes(member.metadata).decode().split(";")
            shift += int(wishes)
            for place in _places_of(owned):
                owner[place] = max(owner.get(place, (-1, "")), (int(since), member.member_id))
        assigned: dict[str, list[Place]] = {}
        for i, member_id in enumerate(ids):
            wanted = self.places[(i + shift) % len(ids) :: len(ids)]
            assigned[member_id] = [each for each in wanted if owner.get(each, (0, member_id))[1] == member_id]
        return assigned

    async def _join(self) -> JoinGroupResponse | None:
        owned = f"{self.state.owned_since};{self._wishes};{_text_of(self.state.partitions)}"
        at = self.client.coordinator(OF_GROUPS)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.state.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(PROTOCOL, owned.encode() if self._cooperates else b"")],
        )
        joined = await self.client.ask(request, JoinGroupResponse, 5)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.state.member_id = request.member_id = joined.member_id
            joined = await self.client.ask(request, JoinGroupResponse, 5)
        if joined.error_code != ErrorCode.NONE:
            self._note(joined.error_code)
            return None
        self._owners.claims(self.group, self._who, joined.generation_id, at)
        if self.state.member_id and -1 < self._generation < joined.generation_id:
            self._former = self.state.member_id, self._generation
        self.state.member_id = joined.member_id
        self.state.generation = self._generation = joined.generation_id
        if self._former == (self.state.member_id, self.state.generation):
            self._former = None  # a coordinator that ends before SyncGroup loads the generation before, as in Kafka
        return joined

    async def _haunt(self) -> None:
        """What it was before knows nothing of what it is now."""
        if self._haunted is None or self._former is None or not self.state.partitions:
            return
        (member_id, generation), self._former = self._former, None
        beat = HeartbeatRequest(
            group_id=self.group, generation_id=generation, member_id=member_id, group_instance_id=self.instance
        )
        error = (await self.client.ask(beat, HeartbeatResponse, 3)).error_code
        was = f"group {self.group}: {member_id} of generation {generation}"
        text = f"{was} may stay, though {self.state} has taken its place"
        self.client.world.demand(error != ErrorCode.NONE, text)
        place = self._haunted.choice(self.state.partitions)
        request = self._offset_commit(place, self.commits.floor(self.group, place))
        request.generation_id_or_member_epoch, request.member_id = generation, member_id
        answer = await self.client.ask(request, OffsetCommitResponse, 8)
        is_taken = answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        self.client.world.demand(not is_taken, f"{was} may commit, though {self.state} has taken its place")

    def _note(self, error: int) -> None:
        """What an error says of the membership."""
        if error in OUT:
            self._give_up()
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.state.member_id = ""
        self.state.generation = -1

    async def _find_positions(self) -> bool:
        by_topic: dict[str, list[int]] = {}
        for topic, index in self.state.partitions:
            by_topic.setdefault(topic, []).append(index)
        if not by_topic:
            return True
        floors = {place: self.commits.floor(self.group, place) for place in self.state.partitions}
        topics = [OffsetFetchRequestTopics(name=name, partition_indexes=wanted) for name, wanted in by_topic.items()]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self.group, topics=topics)])
        answer = (await self.client.ask(request, OffsetFetchResponse, 8)).groups[0]
        if answer.error_code != ErrorCode.NONE:
            self._note(answer.error_code)
            await self.client.rest()
            return False
        for found in answer.topics:
            for partition in found.partitions:
                place = (found.name, partition.partition_index)
                if partition.error_code != ErrorCode.NONE:
                    return False
                self.commits.reads(self.group, place, partition.committed_offset, floors[place])
                self.state.positions[place] = max(partition.committed_offset, 0)
        return True

    async def _beat(self) -> bool:
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.state.generation,
            member_id=self.state.member_id,
            group_instance_id=self.instance,
        )
        asked_s, at = self.client.world.loop.time(), self.client.coordinator(OF_GROUPS)
        error = (await self.client.ask(request, HeartbeatResponse, 3)).error_code
        if error != ErrorCode.NONE:
            self._note(error)
            return False
        self._owners.keeps(self.group, self._who, self.state.generation, asked_s, LEASE_S, at)
        return True

    async def _commit(self) -> bool:
        if not self.state.partitions:
            return True
        place = self.client.rng.choice(self.state.partitions)
        offset = self.state.positions[place] + self.client.rng.randint(1, 5)
        request = self._offset_commit(place, offset)
        error = (await self.client.ask(request, OffsetCommitResponse, 8)).topics[0].partitions[0].error_code
        if error == ErrorCode.NONE:
            self.commits.acknowledges(self.group, place, offset)
            self.state.positions[place] = offset
        elif error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
            self._note(error)
            return False
        return True

    def _offset_commit(self, place: Place, offset: int) -> OffsetCommitRequest:
        partition = OffsetCommitRequestPartition(partition_index=place[1], committed_offset=offset)
        return OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.state.generation,
            member_id=self.state.member_id,
            group_instance_id=self.instance,
            topics=[OffsetCommitRequestTopic(name=place[0], partitions=[partition])],
        )


def _text_of(places: Sequence[Place]) -> str:
    return ",".join(f"{topic}/{index}" for topic, index in places)


def _places_of(text: str) -> list[Place]:
    parts = [each.partition("/") for each in text.split(",") if each]
    return [(topic, int(index)) for topic, _, index in parts]


async def is_settled(client: SimClient, group: str, members: Sequence[Member]) -> bool:
    """Whether the coordinator and the members that live agree: one generation, every partition with one of them."""
    described = (await client.insist(DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse, 5)).groups[0]
    if described.error_code != ErrorCode.NONE or described.group_state != "Stable":
        return False
    if {member.member_id for member in described.members} != {member.state.member_id for member in members}:
        return False
    owned = sorted(place for member in members for place in member.assigned)
    return owned == sorted(members[0].places)
