"""A client machine of a simulated cluster: it finds the leader of a partition and the coordinator of a group, and looks
again after an error that tells it to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.client.async_connection import AsyncConnection
from headrace.client.channel import Request, Response
from headrace.client.errors import ClientError, UnreachableError
from headrace.client.security import PLAIN_CONNECTION, ConnectionSecurity
from headrace.sim.client import CONNECT_S, OF_GROUPS, OF_TRANSACTIONS, SimClient
from headrace.sim.machine import PORT
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k00_produce import ProduceRequest
from headrace.wire.messages.k01_fetch import FetchRequest
from headrace.wire.messages.k02_list_offsets import ListOffsetsRequest
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headrace.wire.messages.k08_offset_commit import OffsetCommitRequest
from headrace.wire.messages.k09_offset_fetch import OffsetFetchRequest
from headrace.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.messages.k11_join_group import JoinGroupRequest
from headrace.wire.messages.k12_heartbeat import HeartbeatRequest
from headrace.wire.messages.k13_leave_group import LeaveGroupRequest
from headrace.wire.messages.k14_sync_group import SyncGroupRequest
from headrace.wire.messages.k15_describe_groups import DescribeGroupsRequest
from headrace.wire.messages.k21_delete_records import DeleteRecordsRequest
from headrace.wire.messages.k22_init_producer_id import InitProducerIdRequest
from headrace.wire.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest
from headrace.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.wire.messages.k26_end_txn import EndTxnRequest
from headrace.wire.messages.k28_txn_offset_commit import TxnOffsetCommitRequest
from headrace.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.k19900_headrace_group_end_txn import HeadraceGroupEndTxnRequest

if TYPE_CHECKING:
    from headrace.sim.checkers.history import Place
    from headrace.sim.world import World

R = TypeVar("R", bound=Response)

_OF_COORDINATORS: Final[dict[type, int]] = {
    OffsetCommitRequest: OF_GROUPS,
    OffsetFetchRequest: OF_GROUPS,
    JoinGroupRequest: OF_GROUPS,
    HeartbeatRequest: OF_GROUPS,
    SyncGroupRequest: OF_GROUPS,
    LeaveGroupRequest: OF_GROUPS,
    ConsumerGroupHeartbeatRequest: OF_GROUPS,
    DescribeGroupsRequest: OF_GROUPS,
    TxnOffsetCommitRequest: OF_GROUPS,
    InitProducerIdRequest: OF_TRANSACTIONS,
    AddPartitionsToTxnRequest: OF_TRANSACTIONS,
    AddOffsetsToTxnRequest: OF_TRANSACTIONS,
    EndTxnRequest: OF_TRANSACTIONS,
    HeadraceGroupEndTxnRequest: OF_TRANSACTIONS,
}
"""Whose coordinator is asked."""


def place_of(request: Any) -> Place | None:
    """The one partition that a request of these runs is about."""
    if isinstance(request, ProduceRequest):
        return request.topic_data[0].name, request.topic_data[0].partition_data[0].index
    if isinstance(request, FetchRequest):
        return request.topics[0].topic, request.topics[0].partitions[0].partition
    if isinstance(request, (ListOffsetsRequest, DeleteRecordsRequest)):
        return request.topics[0].name, request.topics[0].partitions[0].partition_index
    return None


def error_of(response: Any) -> int:
    """What a partition's answer says."""
    if hasattr(response, "responses"):
        topic = response.responses[0]
        parts = getattr(topic, "partition_responses", None) or topic.partitions
        return int(parts[0].error_code)
    return int(response.topics[0].partitions[0].error_code)


class ClusterClient(SimClient):
    """A client machine that finds leaders and coordinators."""

    def __init__(
        self,
        world: World,
        host: str,
        brokers: Sequence[str],
        port: int = PORT,
        security: ConnectionSecurity = PLAIN_CONNECTION,
    ) -> None:
        """`port` is that of a listener of every broker, `security` what connections to it are opened with."""
        super().__init__(world, host, brokers[0], port)
        self._security = security
        self.brokers = list(brokers)
        self._at = self.rng.randrange(len(self.brokers))
        self._links: dict[str, AsyncConnection] = {}
        self._leaders: dict[Place, tuple[str, int]] = {}
        """Where the leader of a partition is, and its epoch."""
        self._coordinators: dict[int, str] = {}
        """By key type: a client has one group and one transactional id at most."""

    async def ask(self, request: Request, response_class: type[R], version: int | None = None) -> R:
        """Sends a request as `SimClient` does, to the broker that serves it."""
        place = place_of(request)
        if isinstance(request, DescribeGroupsRequest):
            await self.find(OF_GROUPS, request.groups[0], refresh=True)
        coordinator = self._coordinators.get(_OF_COORDINATORS.get(type(request), -1))
        try:
            link = await (self._link(coordinator) if coordinator is not None else self.connection(place))
            answer = await self._exchange(link, request, response_class, version)
        except ClientError:
            self.moved(place)
            raise
        if isinstance(request, FindCoordinatorRequest) and isinstance(answer, FindCoordinatorResponse):
            self._coordinators.pop(request.key_type, None)
            if answer.error_code == ErrorCode.NONE:
                self._coordinators[request.key_type] = answer.host
        elif place is not None and error_of(answer) != ErrorCode.NONE:
            self.moved(place)
        return answer

    async def find(self, key_type: int, key: str, *, refresh: bool = False) -> bool:
        """Looks for a coordinator, if it is not known already; whether it is now. Raises ClientError."""
        if refresh or key_type not in self._coordinators:
            self._coordinators.pop(key_type, None)
            await self.ask(FindCoordinatorRequest(key=key, key_type=key_type), FindCoordinatorResponse, 3)
        return key_type in self._coordinators

    def coordinator(self, key_type: int) -> str | None:
        """See SimClient."""
        return self._coordinators.get(key_type)

    async def connection(self, place: Place | None = None) -> AsyncConnection:
        """See SimClient: to the leader of a partition, or to any broker. Raises ClientError."""
        if place is None:
            return await self._link(None)
        leader = self._leaders.get(place)
        if leader is None:
            leader = self._leaders[place] = await self._find_leader(place)
        return await self._link(leader[0])

    def moved(self, place: Place | None) -> None:
        """See SimClient: this broker may not be the one to ask."""
        if place is not None:
            self._leaders.pop(place, None)
        self._coordinators.clear()
        self._at = (self._at + 1) % len(self.brokers)

    async def ask_each(self, request: Request, response_class: type[R], version: int | None = None) -> list[R]:
        """The same of every broker. Raises ClientError."""
        return [await self.ask_at(each, request, response_class, version) for each in self.brokers]

    async def ask_at(self, broker: str, request: Request, response_class: type[R], version: int | None = None) -> R:
        """Sends one request to this broker, even if another one serves it. Raises ClientError."""
        return await self._exchange(await self._link(broker), request, response_class, version)

    async def _link(self, host: str | None) -> AsyncConnection:
        host = host or self.brokers[self._at]
        link = self._links.get(host)
        if link is None or link.closed:
            link = self._links[host] = await AsyncConnection.open(
                self.node,
                self.owner,
                host,
                self.port,
                client_id=self.host,
                timeout_s=CONNECT_S,
                security=self._security,
            )
        return link

    async def epoch_of(self, place: Place) -> int:
        """See SimClient. Raises ClientError."""
        while place not in self._leaders:  # another task of its may have been sent away meanwhile
            try:
                await self.connection(place)
            except ClientError:
                self.moved(place)
                raise
        return self._leaders[place][1]

    async def _find_leader(self, place: Place) -> tuple[str, int]:
        topics = [MetadataRequestTopic(name=place[0])]
        link = await self._link(None)
        metadata = await self._exchange(
            link, MetadataRequest(topics=topics, allow_auto_topic_creation=False), MetadataResponse
        )
        hosts = {each.node_id: each.host for each in metadata.brokers}
        for part in metadata.topics[0].partitions:
            if part.partition_index == place[1] and part.leader_id in hosts:
                return hosts[part.leader_id], part.leader_epoch
        raise UnreachableError(f"{place} has no leader")

    def leave(self) -> None:
        """Closes the connections."""
        for link in self._links.values():
            link.close()
