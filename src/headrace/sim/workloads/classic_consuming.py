"""Consumers of the classic protocol, like Kafka's, in a classic group or a consumer group: each gives up all partitions
before it rejoins, and in a classic group one of them assigns."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from headrace.groups.subscription import read_assignment, write_assignment
from headrace.sim.workloads.consuming import COORDINATOR_MOVED, LEAVES, REVOKES_S, REVOKES_SLOWLY_S, SLOW, Consumer
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from headrace.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headrace.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from headrace.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

if TYPE_CHECKING:
    from headrace.sim.checkers.commits import Place
    from headrace.sim.cluster_client import ClusterClient
    from headrace.sim.workloads.consuming import Group

SESSION_MS: Final = 3_000
REBALANCE_MS: Final = 4_000
SUBSCRIPTION_VERSION: Final = 3
NOT_YET: Final = -1


class ClassicConsumer(Consumer):
    """A consumer of the classic protocol. Its epoch is its generation."""

    protocol = "range"

    def __init__(self, client: ClusterClient, group: Group, instance: str | None = None) -> None:
        super().__init__(client, group, instance)
        self.epoch = NOT_YET
        self._rejoins_at: float | None = 0.0
        """When it has given up what it has; None while nothing asks for that."""

    @property
    def is_at_rest(self) -> bool:
        """See Consumer."""
        return self.epoch > 0 and self._rejoins_at is None

    async def _live(self) -> None:
        if self._rejoins_at is not None and self.client.world.loop.time() >= self._rejoins_at:
            await self._rejoin()
            return
        await self._beat()
        if self.epoch > 0:
            await self._commit_some()
        await self._haunt()

    # --- a generation

    async def _rejoin(self) -> None:
        self._give_up_first()
        joined = await self._join()
        if joined is None:
            return
        self.member_id = joined.member_id
        synced = await self._sync(joined)
        if synced is None:
            return
        self.epoch, self._rejoins_at = joined.generation_id, None
        given = read_assignment(bytes(synced.assignment)).assigned_partitions
        self._take({(each.topic, index) for each in given for index in each.partitions})

    def _give_up_first(self) -> None:
        """What it has to before it joins again."""
        self._forget()

    def _take(self, given: set[Place]) -> None:
        """It is in a generation, and has what that gives it."""
        self._gain(given)

    def _subscription(self) -> ConsumerProtocolSubscription:
        return ConsumerProtocolSubscription([self.group.topic])

    def _metadata(self) -> bytes:
        return struct.pack(">h", SUBSCRIPTION_VERSION) + self._subscription().encode(SUBSCRIPTION_VERSION)

    def _share_out(self, joined: JoinGroupResponse) -> dict[str, list[int]]:
        """As the leader: the partitions of each member."""
        ids = sorted(member.member_id for member in joined.members)
        count = self.group.partitions[self.group.topic]
        return {member_id: list(range(i, count, len(ids))) for i, member_id in enumerate(ids)}

    def _forget(self) -> None:
        """It has nothing any longer, and joins again."""
        self._remember()
        self._lose_all()
        self.epoch, self._rejoins_at = NOT_YET, 0.0

    async def _join(self) -> JoinGroupResponse | None:
        request = JoinGroupRequest(
            group_id=self.group.id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(self.protocol, self._metadata())],
        )
        joined = await self.client.ask(request, JoinGroupResponse, 5)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = request.member_id = joined.member_id
            joined = await self.client.ask(request, JoinGroupResponse, 5)
        return None if self._is_over_with(joined.error_code) else joined

    async def _sync(self, joined: JoinGroupResponse) -> SyncGroupResponse | None:
        assignments = []
        if joined.leader == joined.member_id:
            for member_id, indexes in self._share_out(joined).items():
                share = write_assignment([(self.group.topic, indexes)], self._metadata())
                assignments.append(SyncGroupRequestAssignment(member_id, share))
        request = SyncGroupRequest(
            group_id=self.group.id,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance,
            assignments=assignments,
        )
        synced = await self.client.ask(request, SyncGroupResponse, 3)
        return None if self._is_over_with(synced.error_code) else synced

    async def _beat(self) -> None:
        request = HeartbeatRequest(
            group_id=self.group.id,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        error = (await self.client.ask(request, HeartbeatResponse, 3)).error_code
        if error != ErrorCode.REBALANCE_IN_PROGRESS:
            self._is_over_with(error)
        elif self._rejoins_at is None:
            rng = self.client.rng
            # A static member that does not join in time stays in a classic group, and others are given what it has.
            is_slow = self.instance is None and rng.random() < SLOW
            takes_s = rng.uniform(*(REVOKES_SLOWLY_S if is_slow else REVOKES_S))
            self._rejoins_at = self.client.world.loop.time() + takes_s

    def _is_over_with(self, error: int) -> bool:
        """Whether an error ends what it was."""
        if error == ErrorCode.NONE:
            return False
        if error in COORDINATOR_MOVED:
            self.client.moved(None)
            return True
        self._forget()
        if error == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif error == ErrorCode.FENCED_INSTANCE_ID:
            self.is_over = True
        elif error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL and not self.group.is_mixed:
            pass  # it waits until the members of the other protocol are out
        elif error not in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            self._object_to(error)
        return True

    async def _say_goodbye(self, epoch: int) -> None:
        member_id = self.member_id
        self._forget()
        if epoch == LEAVES and member_id:
            request = LeaveGroupRequest(group_id=self.group.id, members=[MemberIdentity(member_id, self.instance)])
            await self.client.ask(request, LeaveGroupResponse, 3)
            await self._haunt()
