"""Brokers and controllers: registration, unfencing, the elections of a broker that came back, fencing at the end.

Each is a decision of its own: between them a broker catches up and recovers its logs.

Source: KIP-631, KIP-841, KIP-858, KIP-919, KIP-966.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.machine import Decision
from headrace.metadata import bootstrap, levels
from headrace.metadata import image as im
from headrace.metadata.image import ClusterImage, Partition
from headrace.metadata.snapshot import broker_record, controller_record
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.metadata_records import BrokerRegistrationChangeRecord, PartitionChangeRecord

_FENCE, _UNFENCE = 1, -1


@dataclass(frozen=True, slots=True)
class Registration:
    """What a node says of itself when it starts; `incarnation_id` is drawn afresh at every start."""

    node_id: int
    incarnation_id: bytes
    endpoints: tuple[im.Endpoint, ...]
    controller_endpoints: tuple[im.Endpoint, ...]
    rack: str | None
    directories: tuple[bytes, ...]


def supported_features() -> tuple[im.SupportedFeature, ...]:
    """The feature levels that a node of ours can run at."""
    return tuple(im.SupportedFeature(name, *span) for name, span in bootstrap.SUPPORTED_FEATURES.items())


def decide_register(image: ClusterImage, registration: Registration) -> Decision[int]:
    """Registers a node as controller and broker. It is fenced: nobody sends clients to it before it is unfenced.

    The reply is the broker epoch, which is the offset of the first of these records.
    """
    level = image.features.metadata_version
    epoch = image.offset + 1
    features = supported_features()
    records: list[Any] = []
    if levels.supports_controller_registration(level):
        records.append(
            controller_record(
                im.Controller(
                    registration.node_id, registration.incarnation_id, registration.controller_endpoints, features
                )
            )
        )
    directories = tuple(sorted(registration.directories)) if levels.supports_directories(level) else ()
    broker = im.Broker(
        id=registration.node_id,
        epoch=epoch,
        incarnation_id=registration.incarnation_id,
        endpoints=registration.endpoints,
        features=features,
        rack=registration.rack,
        fenced=True,
        in_controlled_shutdown=False,
        directories=directories,
    )
    record = broker_record(broker, level)
    record.cordoned_log_dirs = None
    records.append(record)
    return Decision(epoch, records)


def decide_unfence(image: ClusterImage, node_id: int, broker_epoch: int) -> Decision[ErrorCode]:
    """Lets a registered broker lead and be seen by clients, if this is still its registration."""
    broker = image.brokers.get(node_id)
    if broker is None or broker.epoch != broker_epoch:
        return Decision(ErrorCode.STALE_BROKER_EPOCH)
    if not broker.fenced:
        return Decision(ErrorCode.NONE)
    record = BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=broker_epoch, fenced=_UNFENCE)
    return Decision(ErrorCode.NONE, [record])


def decide_elect_returned(image: ClusterImage, node_id: int, *, was_clean: bool) -> Decision[None]:
    """Lets a broker that came back lead what only it can lead.

    `was_clean`: it went down cleanly, so every record that it acknowledged is still there, and the leader epochs may
    stay. After a crash they rise, so that readers who saw more than what is left find out.
    """
    broker = image.brokers.get(node_id)
    if broker is None or broker.fenced:
        return Decision(None)
    has_elr = levels.supports_eligible_leaders(image.features.metadata_version)
    working = {*broker.directories, im.DIRECTORY_MIGRATING, im.DIRECTORY_UNASSIGNED}
    records: list[PartitionChangeRecord] = []
    for topic in image.topics:
        for partition in topic.partitions:
            if node_id in partition.replicas and partition.directory_of(node_id) not in working:
                if partition.leader == node_id:
                    records.append(_step_down(topic.id, partition))
            elif partition.leader == node_id:
                if not was_clean or partition.leader_recovery_state != im.LEADER_RECOVERED:
                    change = PartitionChangeRecord(partition_id=partition.index, topic_id=topic.id, leader=node_id)
                    if partition.leader_recovery_state != im.LEADER_RECOVERED:
                        change.leader_recovery_state = im.LEADER_RECOVERED
                    records.append(change)
            elif partition.leader == im.NO_LEADER and node_id in partition.replicas:
                elected = _election(topic.id, partition, node_id, has_elr)
                if elected is not None:
                    records.append(elected)
    return Decision(None, records)


def _election(topic_id: bytes, partition: Partition, node_id: int, has_elr: bool) -> PartitionChangeRecord | None:
    """Makes a replica the leader of a partition without one, where it holds all that was acknowledged."""
    safe = node_id in partition.isr or node_id in partition.eligible_leaders
    if not safe and len(partition.replicas) > 1:
        return None
    # A lone replica has all that there is: what it lost in a crash nobody else has either.
    change = PartitionChangeRecord(partition_id=partition.index, topic_id=topic_id, leader=node_id)
    if partition.isr != (node_id,) and node_id not in partition.isr:
        change.isr = [node_id]
    if partition.leader_recovery_state != im.LEADER_RECOVERED:
        change.leader_recovery_state = im.LEADER_RECOVERED
    if has_elr:
        if partition.eligible_leaders:
            change.eligible_leader_replicas = []
        if partition.last_known_eligible_leaders:
            change.last_known_elr = []
    return change


def _step_down(topic_id: bytes, partition: Partition) -> PartitionChangeRecord:
    """Leaves a partition without leader: its only replica cannot be read. It stays in sync, so it may lead again."""
    return PartitionChangeRecord(partition_id=partition.index, topic_id=topic_id, leader=im.NO_LEADER)


def decide_directories_failed(image: ClusterImage, node_id: int, working: Sequence[bytes]) -> Decision[None]:
    """Notes that only these log directories of a broker work any more: what it leads elsewhere has no leader now."""
    broker = image.brokers.get(node_id)
    if broker is None or not levels.supports_directories(image.features.metadata_version):
        return Decision(None)
    failed = set(broker.directories) - set(working)
    if not failed:
        return Decision(None)
    records: list[Any] = [
        BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=broker.epoch, log_dirs=sorted(working))
    ]
    records += [
        _step_down(topic.id, partition)
        for topic in image.topics
        for partition in topic.partitions
        if partition.leader == node_id and partition.directory_of(node_id) in failed
    ]
    return Decision(None, records)


def decide_fence(image: ClusterImage, node_id: int) -> Decision[None]:
    """Fences a broker that stops cleanly: a controller that finds it so lets its successor register at once."""
    broker = image.brokers.get(node_id)
    if broker is None or broker.fenced:
        return Decision(None)
    return Decision(None, [BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=broker.epoch, fenced=_FENCE)])


def decide_assign_directories(
    image: ClusterImage, node_id: int, chosen: Sequence[tuple[bytes, int, bytes]]
) -> Decision[None]:
    """Notes which log directory a broker chose for its replicas, given as (topic id, partition, directory id)."""
    if not levels.supports_directories(image.features.metadata_version):
        return Decision(None)
    records: list[PartitionChangeRecord] = []
    for topic_id, index, directory in chosen:
        topic = image.topics.by_id(topic_id)
        if topic is None or index >= len(topic.partitions):
            continue
        partition = topic.partitions[index]
        if node_id not in partition.replicas or partition.directory_of(node_id) == directory:
            continue
        directories = [
            directory if replica == node_id else old
            for replica, old in zip(partition.replicas, partition.directories, strict=True)
        ]
        records.append(PartitionChangeRecord(partition_id=index, topic_id=topic_id, directories=directories))
    return Decision(None, records)
