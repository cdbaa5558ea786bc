"""Groups of which some members speak the classic protocol and some the newer one, driven by scripts.

What a client says in the newer protocol is `join`, `heartbeat` and `leave`; in the classic one it is `classic-join`,
`classic-sync`, `classic-heartbeat` and `classic-leave`. It keeps its member id and epoch, which is its generation.
"""

from __future__ import annotations

from typing import Any

from groups.consumer.scripted import ConsumerGroups
from groups.scripted import Client, Waiter, topic_id
from scripts.transcript import Words

from headrace.groups.group_client import GroupClient
from headrace.groups.subscription import read_assignment, write_assignment
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from headrace.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from headrace.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from headrace.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headrace.wire.primitives import DecodeError

SUBSCRIPTION_VERSION = 3


class MixedGroups(ConsumerGroups):
    """A shard, and clients of both protocols."""

    def tell(self, client: Client, what: str, request: Any, version: int) -> None:
        """Has the shard decide a request of any kind."""
        waiter, shard = Waiter(client, what), self.shard
        if isinstance(request, JoinGroupRequest):
            sender = GroupClient(self.client_id or client.name, "/127.0.0.1", version)
            self.run(shard.join(request, sender, waiter, self.now_ms), waiter)
        elif isinstance(request, SyncGroupRequest):
            self.run(shard.sync(request, waiter, self.now_ms), waiter)
        elif isinstance(request, HeartbeatRequest):
            said = (request.member_id, request.group_instance_id, request.generation_id)
            self.answer(waiter, HeartbeatResponse(error_code=shard.heartbeat(request.group_id, *said, self.now_ms)))
        elif isinstance(request, LeaveGroupRequest):
            self.run(shard.leave(request.group_id, request.members, self.now_ms), waiter)
        else:
            super().send(client, request, what, version)

    def send(self, client: Client, request: ConsumerGroupHeartbeatRequest, what: str, version: int = 1) -> None:
        self.tell(client, what, request, version)

    def answer(self, waiter: Waiter, response: Any) -> None:
        client = waiter.client
        if isinstance(response, HeartbeatResponse):
            self.say(f"{client.name} {waiter.what}: {ErrorCode(response.error_code).name}")
        elif isinstance(response, SyncGroupResponse) and not response.error_code:
            try:
                assigned = read_assignment(response.assignment).assigned_partitions
            except DecodeError:
                self.say(f"{client.name} {waiter.what}: {response.assignment!r}")
                return
            self.has[client.name] = {topic_id(each.topic): each.partitions for each in assigned}
            told = " ".join(f"{each.topic}-{partition}" for each in assigned for partition in each.partitions)
            self.say(f"{client.name} {waiter.what}: has [{told}]")
        else:
            super().answer(waiter, response)
            if isinstance(response, LeaveGroupResponse) and not response.error_code:
                client.member_id, client.generation = "", -1

    def after_each(self) -> None:
        self.advance(0)  # what is due at once

    # --- commands ----------------------------------------------------------------------------------------------------

    def do_pass(self, words: Words) -> None:
        """pass MS: like `time`, for scripts that are told to Apache Kafka too, for which that time really passes."""
        self.advance(int(words.plain[0]))

    def do_classic_join(self, words: Words) -> None:
        """classic-join GROUP CLIENT topics=t protocols=range owns=t-0,t-1: --done owns what it was last told."""
        client, named = self.client(words.plain[1]), words.named
        owned: dict[str, list[int]] = {}
        if "done" in words.switches:
            owned = {topic.rstrip(b"\0").decode(): all_ for topic, all_ in self.has.get(client.name, {}).items()}
        for each in filter(None, named.get("owns", "").split(",")):
            topic, partition = each.rsplit("-", 1)
            owned.setdefault(topic, []).append(int(partition))
        topics = [topic for topic in named.get("topics", "t").split(",") if topic]
        metadata = ConsumerProtocolSubscription(
            topics=topics,
            owned_partitions=[TopicPartition(topic, all_) for topic, all_ in owned.items()],
            generation_id=client.generation,
            rack_id=named.get("rack"),
        )
        said = SUBSCRIPTION_VERSION.to_bytes(2, "big") + metadata.encode(SUBSCRIPTION_VERSION)
        if "metadata" in named:
            said = bytes.fromhex(named["metadata"])
        request = JoinGroupRequest(
            group_id=words.plain[0],
            session_timeout_ms=int(named.get("session", 10_000)),
            rebalance_timeout_ms=int(named.get("rebalance", 60_000)),
            member_id=named.get("member", client.member_id),
            group_instance_id=named.get("instance"),
            protocol_type=named.get("type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name, said) for name in named.get("protocols", "range").split(",")],
        )
        self.tell(client, "joins", request, int(named.get("version", 9)))

    def do_classic_sync(self, words: Words) -> None:
        """classic-sync GROUP CLIENT a=t-0,t-1 b=t-2: what a leader assigns; data=HEX is user data in all of it."""
        client, named = self.client(words.plain[1]), words.named
        assigned = []
        for name, partitions in named.items():
            if name in ("generation", "instance", "data", "protocol", "raw", "version"):
                continue
            topics: dict[str, list[int]] = {}
            for each in filter(None, partitions.split(",")):
                topic, partition = each.rsplit("-", 1)
                topics.setdefault(topic, []).append(int(partition))
            data = write_assignment(topics.items(), SUBSCRIPTION_VERSION.to_bytes(2, "big"))
            if "data" in named:
                user_data = bytes.fromhex(named["data"])
                data = data[:-4] + len(user_data).to_bytes(4, "big") + user_data
            assigned.append(SyncGroupRequestAssignment(self.client(name).member_id, data))
        request = SyncGroupRequest(
            group_id=words.plain[0],
            generation_id=int(named.get("generation", client.generation)),
            member_id=client.member_id,
            group_instance_id=named.get("instance"),
            protocol_type="consumer",
            protocol_name=named.get("protocol", "range"),
            assignments=assigned,
        )
        self.tell(client, "syncs", request, 5)

    def do_classic_heartbeat(self, words: Words) -> None:
        client, named = self.client(words.plain[1]), words.named
        generation = int(named.get("generation", client.generation))
        member_id = named.get("member", client.member_id)
        request = HeartbeatRequest(words.plain[0], generation, member_id, named.get("instance"))
        self.tell(client, "heartbeats", request, 4)

    def do_classic_leave(self, words: Words) -> None:
        """classic-leave GROUP CLIENT...: or instance=, without a client, as an administrator does."""
        members = [MemberIdentity(self.client(name).member_id, words.named.get("instance")) for name in words.plain[1:]]
        if not members:
            members = [MemberIdentity(words.named.get("member", ""), words.named.get("instance"))]
        client = self.client(words.plain[1] if len(words.plain) > 1 else "admin")
        self.tell(client, "leaves", LeaveGroupRequest(words.plain[0], members=members), 5)

    def do_describe_classic(self, words: Words) -> None:
        group = self.shard.describe_group(words.plain[0])
        self.say(f"{group.group_state} type={group.protocol_type!r} protocol={group.protocol_data!r}")
        for member in group.members:
            assigned = read_assignment(member.member_assignment).assigned_partitions
            told = " ".join(f"{each.topic}-{partition}" for each in assigned for partition in each.partitions)
            self.say(f"  {member.member_id} has [{told}]")
