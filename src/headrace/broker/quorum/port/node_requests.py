"""What a broker asks of the controller for itself, on the wire and as values: registration, heartbeats, changes of
in-sync sets, producer ids, directories.

One side writes the request and reads the answer (`wire_form`), the other reads the request and writes the answer (the
handlers in `requests/apis`). Sources: KIP-631, KIP-497, KIP-730, KIP-858, KIP-919.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.controller.brokers import Registered, Registration
from headrace.controller.context import ApiError
from headrace.controller.directories import AssignDirectories, DirectoriesAssigned
from headrace.controller.heartbeats import Heartbeat, HeartbeatReply
from headrace.controller.in_sync import AlterPartitions, PartitionAlteration, PartitionsAltered
from headrace.controller.membership import RegisterBroker, RegisterController
from headrace.controller.producer_ids import AllocateProducerIds, ProducerIdBlock
from headrace.controller.topics import CreateTopics
from headrace.metadata.image import Controller, Endpoint, SupportedFeature
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import k19_create_topics as k19
from headrace.wire.messages import k56_alter_partition as k56
from headrace.wire.messages import k62_broker_registration as k62
from headrace.wire.messages import k63_broker_heartbeat as k63
from headrace.wire.messages import k67_allocate_producer_ids as k67
from headrace.wire.messages import k70_controller_registration as k70
from headrace.wire.messages import k73_assign_replicas_to_dirs as k73

if TYPE_CHECKING:
    from headrace.client.channel import Request, Response
    from headrace.metadata.image import ClusterImage, Partition


NAMED_MAX: Final = 500
"""Listeners, features or directories that one node may name: they go into its record in the metadata log, and stay in
the memory of every node."""


def names_many(request: Any) -> bool:
    """Whether a registration or a heartbeat names more of anything than a node may have."""
    return any(len(getattr(request, field, None) or ()) > NAMED_MAX for field in _OF_A_NODE)


_OF_A_NODE: Final = ("listeners", "features", "log_dirs", "offline_log_dirs", "cordoned_log_dirs")


class WireForm(NamedTuple):
    """A request on its way to the active controller. `read` makes the reply of an answer."""

    request: Request
    response_class: type[Response]
    read: Callable[[Any], Any]


def wire_form(request: Any, image: ClusterImage) -> WireForm | None:
    """What goes to a controller elsewhere; None where a node does not ask for such a thing. `image` is the asking
    node's."""
    form = _FORMS.get(type(request))
    return None if form is None else form(request, image)


# --- BrokerRegistration


def _register(request: RegisterBroker, _: ClusterImage) -> WireForm:
    node = request.registration
    message = k62.BrokerRegistrationRequest(
        broker_id=node.node_id,
        cluster_id=node.cluster_id,
        incarnation_id=node.incarnation_id,
        listeners=[k62.Listener(*endpoint) for endpoint in node.endpoints],
        features=[k62.Feature(*feature) for feature in node.features],
        rack=node.rack,
        log_dirs=list(node.directories),
        previous_broker_epoch=node.previous_broker_epoch,
    )

    def read(response: k62.BrokerRegistrationResponse) -> Registered:
        return Registered(ErrorCode(response.error_code), None, response.broker_epoch)

    return WireForm(message, k62.BrokerRegistrationResponse, read)


def read_registration(request: k62.BrokerRegistrationRequest) -> RegisterBroker:
    """A broker's registration off the wire."""
    return RegisterBroker(
        Registration(
            node_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            endpoints=_endpoints(request.listeners),
            controller_endpoints=(),
            rack=request.rack,
            directories=tuple(request.log_dirs),
            cluster_id=request.cluster_id,
            features=_features(request.features),
            previous_broker_epoch=request.previous_broker_epoch,
        )
    )


def _endpoints(listeners: Iterable[Any]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(each.name, each.host, each.port, each.security_protocol) for each in listeners)


def _features(features: Iterable[Any]) -> tuple[SupportedFeature, ...]:
    return tuple(SupportedFeature(f.name, f.min_supported_version, f.max_supported_version) for f in features)


# --- ControllerRegistration


def _register_controller(request: RegisterController, _: ClusterImage) -> WireForm:
    node = request.controller
    message = k70.ControllerRegistrationRequest(
        controller_id=node.id,
        incarnation_id=node.incarnation_id,
        zk_migration_ready=node.is_migration_ready,
        listeners=[k70.Listener(*endpoint) for endpoint in node.endpoints],
        features=[k70.Feature(*feature) for feature in node.features],
    )

    def read(response: k70.ControllerRegistrationResponse) -> ApiError:
        return ApiError(ErrorCode(response.error_code), response.error_message)

    return WireForm(message, k70.ControllerRegistrationResponse, read)


def read_controller_registration(request: k70.ControllerRegistrationRequest) -> RegisterController:
    """A controller's registration off the wire."""
    return RegisterController(
        Controller(
            request.controller_id,
            request.incarnation_id,
            _endpoints(request.listeners),
            _features(request.features),
            request.zk_migration_ready,
        )
    )


# --- BrokerHeartbeat


def _heartbeat(request: Heartbeat, _: ClusterImage) -> WireForm:
    message = k63.BrokerHeartbeatRequest(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        current_metadata_offset=request.metadata_offset,
        want_fence=request.want_fence,
        want_shut_down=request.want_shut_down,
        offline_log_dirs=list(request.failed_directories),
        cordoned_log_dirs=None if request.cordoned_directories is None else list(request.cordoned_directories),
    )

    def read(response: k63.BrokerHeartbeatResponse) -> HeartbeatReply:
        return HeartbeatReply(
            ErrorCode(response.error_code), response.is_caught_up, response.is_fenced, response.should_shut_down
        )

    return WireForm(message, k63.BrokerHeartbeatResponse, read)


def read_heartbeat(request: k63.BrokerHeartbeatRequest) -> Heartbeat:
    """A broker's heartbeat off the wire."""
    return Heartbeat(
        request.broker_id,
        request.broker_epoch,
        request.current_metadata_offset,
        request.want_fence,
        request.want_shut_down,
        tuple(request.offline_log_dirs),
        None if request.cordoned_log_dirs is None else tuple(request.cordoned_log_dirs),
    )


# --- AlterPartition

MEMBERS_MAX: Final = 1000
"""In-sync replicas that one change may name."""
MEMBERS_PER_STEP: Final = 20


def _alter_partitions(request: AlterPartitions, image: ClusterImage) -> WireForm:
    topics: dict[bytes, k56.TopicData] = {}
    for each in request.changes:
        topic = topics.setdefault(each.topic_id, k56.TopicData(topic_id=each.topic_id))
        topic.partitions.append(
            k56.PartitionData(
                partition_index=each.index,
                leader_epoch=each.leader_epoch,
                new_isr_with_epochs=[k56.BrokerState(broker_id=n, broker_epoch=epoch) for n, epoch in each.members],
                leader_recovery_state=each.recovery_state,
                partition_epoch=each.partition_epoch,
            )
        )
    message = k56.AlterPartitionRequest(request.broker_id, request.broker_epoch, list(topics.values()))

    def read(response: k56.AlterPartitionResponse) -> PartitionsAltered:
        results = [
            (topic.topic_id, part.partition_index, ErrorCode(part.error_code), _altered(image, topic.topic_id, part))
            for topic in response.topics
            for part in topic.partitions
        ]
        return PartitionsAltered(ErrorCode(response.error_code), results)

    return WireForm(message, k56.AlterPartitionResponse, read)


def _altered(image: ClusterImage, topic_id: bytes, partition: Any) -> Partition | None:
    """The partition as the controller has it now, as far as the answer says."""
    topic = image.topics.by_id(topic_id)
    if partition.error_code != ErrorCode.NONE or topic is None or partition.partition_index >= len(topic.partitions):
        return None
    known: Partition = topic.partitions[partition.partition_index]
    return replace(
        known,
        leader=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        isr=tuple(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def read_alter_partitions(
    request: k56.AlterPartitionRequest, version: int
) -> Generator[int, None, AlterPartitions | None]:
    """A leader's changes off the wire, step by step; before version 3 no member's broker epoch is known. None where a
    partition has more members than a cluster has brokers."""
    changes: list[PartitionAlteration] = []
    for topic in request.topics:
        yield 1
        for part in topic.partitions:
            if len(part.new_isr_with_epochs if version >= 3 else part.new_isr) > MEMBERS_MAX:
                return None
            members = (
                tuple([(each.broker_id, each.broker_epoch) for each in part.new_isr_with_epochs])
                if version >= 3
                else tuple([(node, -1) for node in part.new_isr])
            )
            changes.append(
                PartitionAlteration(
                    topic.topic_id,
                    part.partition_index,
                    part.leader_epoch,
                    part.partition_epoch,
                    members,
                    part.leader_recovery_state,
                )
            )
            yield 1 + len(members) // MEMBERS_PER_STEP
    return AlterPartitions(request.broker_id, request.broker_epoch, changes)


def altered_response(reply: PartitionsAltered) -> Generator[int, None, k56.AlterPartitionResponse]:
    """What became of a leader's changes, step by step."""
    topics: dict[bytes, k56.ResponseTopicData] = {}
    for topic_id, index, error, partition in reply.results:
        yield 1
        topic = topics.setdefault(topic_id, k56.ResponseTopicData(topic_id=topic_id))
        part = k56.ResponsePartitionData(partition_index=index, error_code=error)
        if partition is not None and error is ErrorCode.NONE:
            part.leader_id = partition.leader
            part.leader_epoch = partition.leader_epoch
            part.isr = list(partition.isr)
            part.leader_recovery_state = partition.leader_recovery_state
            part.partition_epoch = partition.partition_epoch
        topic.partitions.append(part)
    return k56.AlterPartitionResponse(error_code=reply.error, topics=list(topics.values()))


# --- AllocateProducerIds


def _allocate(request: AllocateProducerIds, image: ClusterImage) -> WireForm:
    broker = image.brokers.get(request.broker_id)
    epoch = -1 if broker is None else broker.epoch

    def read(response: k67.AllocateProducerIdsResponse) -> ProducerIdBlock:
        end = response.producer_id_start + response.producer_id_len
        return ProducerIdBlock(response.producer_id_start, end, ErrorCode(response.error_code))

    return WireForm(
        k67.AllocateProducerIdsRequest(broker_id=request.broker_id, broker_epoch=epoch),
        k67.AllocateProducerIdsResponse,
        read,
    )


# --- AssignReplicasToDirs


def _assign(request: AssignDirectories, image: ClusterImage) -> WireForm:
    broker = image.brokers.get(request.broker_id)
    directories: dict[bytes, dict[bytes, list[int]]] = {}
    for topic_id, index, directory in request.chosen:
        directories.setdefault(directory, {}).setdefault(topic_id, []).append(index)
    message = k73.AssignReplicasToDirsRequest(
        broker_id=request.broker_id,
        broker_epoch=-1 if broker is None else broker.epoch,
        directories=[
            k73.DirectoryData(
                id=directory,
                topics=[
                    k73.TopicData(
                        topic_id=topic_id,
                        partitions=[k73.PartitionData(partition_index=i) for i in indexes],
                    )
                    for topic_id, indexes in topics.items()
                ],
            )
            for directory, topics in directories.items()
        ],
    )

    def read(response: k73.AssignReplicasToDirsResponse) -> DirectoriesAssigned:
        results = [
            (topic.topic_id, part.partition_index, ErrorCode(part.error_code))
            for directory in response.directories
            for topic in directory.topics
            for part in topic.partitions
        ]
        return DirectoriesAssigned(ErrorCode(response.error_code), results)

    return WireForm(message, k73.AssignReplicasToDirsResponse, read)


def read_assignments(request: k73.AssignReplicasToDirsRequest) -> Generator[int, None, AssignDirectories]:
    """Which directories a broker chose, off the wire, step by step."""
    chosen: list[tuple[bytes, int, bytes]] = []
    for directory in request.directories:
        yield 1
        for topic in directory.topics:
            yield 1
            for part in topic.partitions:
                chosen.append((topic.topic_id, part.partition_index, directory.id))
                yield 1
    return AssignDirectories(request.broker_id, chosen, request.broker_epoch)


def assigned_response(
    request: AssignDirectories, reply: DirectoriesAssigned
) -> Generator[int, None, k73.AssignReplicasToDirsResponse]:
    """What became of each assignment, under the directory that was asked for, step by step."""
    response = k73.AssignReplicasToDirsResponse(error_code=reply.error)
    requested: dict[tuple[bytes, int], bytes] = {}
    for topic_id, index, directory_id in request.chosen:
        requested[topic_id, index] = directory_id
        yield 1
    directories: dict[bytes, k73.ResponseDirectoryData] = {}
    topics: dict[tuple[bytes, bytes], k73.ResponseTopicData] = {}
    for topic_id, index, error in reply.results:
        yield 1
        directory_id = requested[topic_id, index]
        directory = directories.setdefault(directory_id, k73.ResponseDirectoryData(id=directory_id))
        topic = topics.get((directory_id, topic_id))
        if topic is None:
            topic = topics[directory_id, topic_id] = k73.ResponseTopicData(topic_id=topic_id)
            directory.topics.append(topic)
        topic.partitions.append(k73.ResponsePartitionData(partition_index=index, error_code=error))
    response.directories = list(directories.values())
    return response


# --- CreateTopics, for topics that a broker makes of its own accord


def _create_topics(request: CreateTopics, _: ClusterImage) -> WireForm:
    return WireForm(request.request, k19.CreateTopicsResponse, lambda response: response)


_FORMS: dict[type, Callable[[Any, ClusterImage], WireForm]] = {
    RegisterBroker: _register,
    RegisterController: _register_controller,
    Heartbeat: _heartbeat,
    AlterPartitions: _alter_partitions,
    AllocateProducerIds: _allocate,
    AssignDirectories: _assign,
    CreateTopics: _create_topics,
}
