"""Consumer groups from outside: committed offsets, members, states; listing and deleting groups.

A tool that commits for a group without being a member (Spark, `headrace group reset`) uses `commit_offsets` here: Kafka
allows that while the group is empty. Taking part as a member is `membership`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.client.conversation import Steps
from headrace.client.errors import BrokerError, ClientError
from headrace.client.metadata import TopicPartition
from headrace.client.operations import operation
from headrace.client.routing import Router
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchResponse
    from headrace.wire.messages.k69_consumer_group_describe import Assignment


@dataclass(frozen=True, slots=True)
class Committed:
    """A group's position in a partition: the offset of the next record to read."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


@dataclass(frozen=True, slots=True)
class Membership:
    """Who a commit comes from. The default is nobody: a commit from outside the group."""

    member_id: str = ""
    generation_id: int = -1
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member as the coordinator sees it; `assigned` is empty where its assignment is not consumer protocol."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assigned: tuple[TopicPartition, ...]
    protocol: str = "classic"
    """The protocol that it speaks: "classic" or "consumer"."""
    epoch: int | None = None
    """How far it came in a consumer group; None in a classic one."""
    target: tuple[TopicPartition, ...] | None = None
    """What a consumer group's coordinator leads it to; None in a classic group."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as its coordinator describes it. `type` is "classic" or "consumer"."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    """A consumer group's epoch, which rises with what its members subscribe to; None of a classic group."""
    assignment_epoch: int | None = None
    """The epoch that the targets of a consumer group's members were computed for."""


@operation
def commit_offsets(
    router: Router,
    group: str,
    offsets: Mapping[TopicPartition, int | Committed],
    *,
    member: Membership | None = None,
    timeout_s: float | None = None,
) -> Steps[None]:
    """Commit a group's offsets. Raises `BrokerError` with the first partition's error.

    From outside (no `member`) the group must be empty, else UNKNOWN_MEMBER_ID.
    """
    from headrace.wire.messages.k08_offset_commit import (
        OffsetCommitRequest,
        OffsetCommitRequestPartition,
        OffsetCommitRequestTopic,
        OffsetCommitResponse,
    )

    if not offsets:
        return
    member = member or Membership()
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, index), committed in offsets.items():
        if isinstance(committed, int):
            committed = Committed(committed)
        topic = topics.get(name)
        if topic is None:
            topic_id = (yield from router.topic(name)).id
            topic = topics[name] = OffsetCommitRequestTopic(name=name, topic_id=topic_id)
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=member.generation_id,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=list(topics.values()),
    )

    def error_of(response: OffsetCommitResponse) -> int:
        codes = [p.error_code for topic in response.topics for p in topic.partitions if p.error_code]
        return codes[0] if codes else ErrorCode.NONE

    about = f"commit of group {group}"
    yield from router.at_coordinator(group, request, OffsetCommitResponse, error_of, about=about, timeout_s=timeout_s)


@operation
def fetch_offsets(
    router: Router,
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
) -> Steps[dict[TopicPartition, Committed]]:
    """A group's committed offsets, of these partitions or all; partitions without one are left out.

    Raises `BrokerError`. A group that does not exist has no offsets, which is no error.
    """
    from headrace.wire.messages.k09_offset_fetch import OffsetFetchResponse

    wanted: dict[str, list[int]] | None = None
    if partitions is not None:
        wanted = {}
        for name, index in partitions:
            wanted.setdefault(name, []).append(index)
        if not wanted:
            return {}
    request = yield from _offsets_request(router, group, wanted)
    request.require_stable = require_stable

    def error_of(response: OffsetFetchResponse) -> int:
        answer = response.groups[0] if response.groups else response
        codes = [p.error_code for topic in answer.topics for p in topic.partitions if p.error_code]
        return answer.error_code or (codes[0] if codes else ErrorCode.NONE)

    about = f"offsets of group {group}"
    response = yield from router.at_coordinator(group, request, OffsetFetchResponse, error_of, about=about)
    if response.groups and any(topic.name == "" for topic in response.groups[0].topics):
        yield from router.refresh(None)
    return _offsets_in(router, response)


def _offsets_request(router: Router, group: str, wanted: dict[str, list[int]] | None) -> Steps[OffsetFetchRequest]:
    """Makes a request as the group's coordinator understands it: for several groups from version 8 on."""
    from headrace.wire.messages import k09_offset_fetch as k09

    connection = yield from router.coordinator_connection(group)
    if connection.channel.version_for(ApiKey.OFFSET_FETCH) < 8:
        topics = None if wanted is None else [k09.OffsetFetchRequestTopic(name, i) for name, i in wanted.items()]
        return k09.OffsetFetchRequest(group_id=group, topics=topics)
    requested = k09.OffsetFetchRequestGroup(group_id=group, topics=None)
    if wanted is not None:
        requested.topics = []
        for name, indexes in wanted.items():
            topic_id = (yield from router.topic(name)).id
            requested.topics.append(
                k09.OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=indexes)
            )
    return k09.OffsetFetchRequest(groups=[requested])


def _offsets_in(router: Router, response: OffsetFetchResponse) -> dict[TopicPartition, Committed]:
    """Returns the offsets of the one group that was asked for."""
    found: dict[TopicPartition, Committed] = {}
    if response.groups:
        for topic in response.groups[0].topics:
            name = topic.name or router.topic_name(topic.topic_id) or ""
            for p in topic.partitions:
                if p.committed_offset >= 0 and name:
                    found[name, p.partition_index] = Committed(p.committed_offset, p.committed_leader_epoch, p.metadata)
        return found
    for old in response.topics:
        for q in old.partitions:
            if q.committed_offset >= 0:
                found[old.name, q.partition_index] = Committed(q.committed_offset, q.committed_leader_epoch, q.metadata)
    return found


@operation
def delete_offsets(router: Router, group: str, partitions: Iterable[TopicPartition]) -> Steps[None]:
    """Forget a group's offsets of these partitions. Raises `BrokerError`, GROUP_SUBSCRIBED_TO_TOPIC while in use."""
    from headrace.wire.messages.k47_offset_delete import (
        OffsetDeleteRequest,
        OffsetDeleteRequestPartition,
        OffsetDeleteRequestTopic,
        OffsetDeleteResponse,
    )

    topics: dict[str, OffsetDeleteRequestTopic] = {}
    for name, index in partitions:
        topic = topics.setdefault(name, OffsetDeleteRequestTopic(name=name))
        topic.partitions.append(OffsetDeleteRequestPartition(partition_index=index))
    request = OffsetDeleteRequest(group_id=group, topics=list(topics.values()))

    def error_of(response: OffsetDeleteResponse) -> int:
        codes = [p.error_code for topic in response.topics for p in topic.partitions if p.error_code]
        return response.error_code or (codes[0] if codes else ErrorCode.NONE)

    yield from router.at_coordinator(group, request, OffsetDeleteResponse, error_of)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as one broker lists it; `state` and `type` are empty from brokers that do not say."""

    group_id: str
    protocol_type: str
    state: str
    type: str
    coordinator: int


@operation
def list_groups(router: Router) -> Steps[list[GroupListing]]:
    """Every group of the cluster, sorted by id: each broker is asked for those it coordinates."""
    from headrace.wire.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse

    yield from router.refresh([])
    found: dict[str, GroupListing] = {}
    for node_id in sorted(router.brokers.nodes):
        response = yield from router.checked(
            ListGroupsRequest(),
            ListGroupsResponse,
            lambda r: (r.error_code, None),
            f"groups of broker {node_id}",
            node_id=node_id,
        )
        for g in response.groups:
            found[g.group_id] = GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type, node_id)
    return [found[group_id] for group_id in sorted(found)]


@operation
def delete_group(router: Router, group: str) -> Steps[None]:
    """Delete an empty group with its offsets. Raises `BrokerError`: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP."""
    from headrace.wire.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse

    yield from router.at_coordinator(
        group,
        DeleteGroupsRequest(groups_names=[group]),
        DeleteGroupsResponse,
        lambda response: response.results[0].error_code,
    )


@operation
def describe_group(router: Router, group: str) -> Steps[GroupDescription]:
    """A group with its members. A group that nobody knows has the state "Dead". Raises `BrokerError`.

    The consumer protocol (KIP-848) is asked for first where the broker serves it; its GROUP_ID_NOT_FOUND means that the
    group is a classic one or none.
    """
    node_id = yield from router.coordinator(group)
    if (yield from router.node_connection(node_id)).channel.supports(ApiKey.CONSUMER_GROUP_DESCRIBE):
        try:
            return (yield from _describe_consumer_group(router, group))
        except BrokerError as error:
            if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
    return (yield from _describe_classic_group(router, group))


def _describe_consumer_group(router: Router, group: str) -> Steps[GroupDescription]:
    from headrace.wire.messages.k69_consumer_group_describe import (
        ConsumerGroupDescribeRequest,
        ConsumerGroupDescribeResponse,
    )

    response = yield from router.at_coordinator(
        group,
        ConsumerGroupDescribeRequest(group_ids=[group]),
        ConsumerGroupDescribeResponse,
        lambda r: r.groups[0].error_code,
    )
    described = response.groups[0]
    members = tuple(
        GroupMember(
            m.member_id,
            m.instance_id,
            m.client_id,
            m.client_host,
            _partitions(m.assignment),
            "classic" if m.member_type == 0 else "consumer",
            m.member_epoch,
            _partitions(m.target_assignment),
        )
        for m in described.members
    )
    return GroupDescription(
        group,
        "consumer",
        described.group_state,
        "consumer",
        described.assignor_name,
        (yield from router.coordinator(group)),
        members,
        described.group_epoch,
        described.assignment_epoch,
    )


def _partitions(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(sorted((t.topic_name, p) for t in assignment.topic_partitions for p in t.partitions))


def _describe_classic_group(router: Router, group: str) -> Steps[GroupDescription]:
    from headrace.wire.messages.k15_describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

    def error_of(response: DescribeGroupsResponse) -> int:
        code = response.groups[0].error_code
        return ErrorCode.NONE if code == ErrorCode.GROUP_ID_NOT_FOUND else code

    response = yield from router.at_coordinator(
        group, DescribeGroupsRequest(groups=[group]), DescribeGroupsResponse, error_of
    )
    described = response.groups[0]
    members = tuple(
        GroupMember(
            m.member_id,
            m.group_instance_id,
            m.client_id,
            m.client_host,
            assigned_partitions(m.member_assignment) if described.protocol_type == "consumer" else (),
        )
        for m in described.members
    )
    return GroupDescription(
        group,
        "classic",
        described.group_state or "Dead",
        described.protocol_type,
        described.protocol_data,
        (yield from router.coordinator(group)),
        members,
    )


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """The partitions in a member's assignment of the classic consumer protocol; none where it cannot be read."""
    from headrace.client.assignment import decode_assignment

    try:
        return tuple(sorted(decode_assignment(assignment))) if assignment else ()
    except ClientError:
        return ()
