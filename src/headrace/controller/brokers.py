"""Broker registrations, and the decisions of a single-node cluster: registration, unfencing, elections after a restart,
fencing at a clean stop.

Each is a decision of its own: between them the broker catches up and recovers its logs. A single node has neither
sessions nor heartbeats. The brokers of larger clusters are in `membership` and `heartbeats`.

Source: KIP-631, KIP-841, KIP-858, KIP-919, KIP-966.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace.controller.access import Access
from headrace.controller.context import ControllerContext
from headrace.machine import Decision
from headrace.metadata import bootstrap, levels
from headrace.metadata import image as im
from headrace.metadata.image import ClusterImage, Partition
from headrace.metadata.snapshot import broker_record, controller_record
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.metadata_records import BrokerRegistrationChangeRecord, PartitionChangeRecord

_FENCE, _UNFENCE = 1, -1


def supported_features() -> tuple[im.SupportedFeature, ...]:
    """Returns the feature levels at which this version can run."""
    return tuple(im.SupportedFeature(name, *span) for name, span in bootstrap.SUPPORTED_FEATURES.items())


@dataclass(frozen=True, slots=True)
class Registration:
    """What a node registers at its start; `incarnation_id` is fresh for every start.

    `previous_broker_epoch` is the one noted at the last clean stop, or -1. Only a cluster's controller needs the
    cluster id, the features and that epoch; only a single-node cluster needs the controller's endpoints.
    """

    node_id: int
    incarnation_id: bytes
    endpoints: tuple[im.Endpoint, ...]
    controller_endpoints: tuple[im.Endpoint, ...]
    rack: str | None
    directories: tuple[bytes, ...]
    cluster_id: str = ""
    features: tuple[im.SupportedFeature, ...] = field(default_factory=supported_features)
    previous_broker_epoch: int = -1
    cordoned_directories: tuple[bytes, ...] | None = None


class Registered(NamedTuple):
    """The answer to a registration: the broker epoch, or the error."""

    error: ErrorCode
    message: str | None = None
    broker_epoch: int = -1


def decide_register(image: ClusterImage, registration: Registration) -> Decision[Registered]:
    """Registers a node as controller and broker. It starts fenced: clients do not see it before it is unfenced.

    The broker epoch is the offset of the first of these records.
    """
    level = image.features.metadata_version
    epoch = image.offset + 1
    records: list[Any] = []
    if levels.supports_controller_registration(level):
        records.append(
            controller_record(
                im.Controller(
                    registration.node_id,
                    registration.incarnation_id,
                    registration.controller_endpoints,
                    registration.features,
                )
            )
        )
    directories = tuple(sorted(registration.directories)) if levels.supports_directories(level) else ()
    broker = im.Broker(
        id=registration.node_id,
        epoch=epoch,
        incarnation_id=registration.incarnation_id,
        endpoints=registration.endpoints,
        features=registration.features,
        rack=registration.rack,
        fenced=True,
        in_controlled_shutdown=False,
        directories=directories,
    )
    records.append(broker_record(broker, level))
    return Decision(Registered(ErrorCode.NONE, None, epoch), records)


@dataclass(frozen=True, slots=True)
class UnfenceBroker:
    """A registered broker is ready to lead. STALE_BROKER_EPOCH if it has registered again since."""

    broker_id: int
    broker_epoch: int

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[ErrorCode]:
        """Decides the request upon `image`."""
        return decide_unfence(image, self.broker_id, self.broker_epoch)


def decide_unfence(image: ClusterImage, node_id: int, broker_epoch: int) -> Decision[ErrorCode]:
    """Unfences a broker, so that it may lead and clients see it, if this is still its registration."""
    broker = image.brokers.get(node_id)
    if broker is None or broker.epoch != broker_epoch:
        return Decision(ErrorCode.STALE_BROKER_EPOCH)
    if not broker.fenced:
        return Decision(ErrorCode.NONE)
    record = BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=broker_epoch, fenced=_UNFENCE)
    return Decision(ErrorCode.NONE, [record])


@dataclass(frozen=True, slots=True)
class ElectReturned:
    """The partitions that a restarted broker may lead. `was_clean`: it lost no acknowledged record."""

    broker_id: int
    was_clean: bool

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[None]:
        """Decides the request upon `image`."""
        return decide_elect_returned(image, self.broker_id, was_clean=self.was_clean)


def decide_elect_returned(image: ClusterImage, node_id: int, *, was_clean: bool) -> Decision[None]:
    """Elects a restarted broker leader of the partitions that only it can lead.

    `was_clean`: it stopped cleanly, so it has every acknowledged record, and the leader epochs may stay. After a crash
    they rise, so that readers which saw more of the log than is left notice.
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
                    records.append(step_down(topic.id, partition))
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
    """Elects a replica of a partition without a leader, if it has every acknowledged record."""
    assert partition.leader == im.NO_LEADER and node_id in partition.replicas
    safe = node_id in partition.isr or node_id in partition.eligible_leaders
    if not safe and len(partition.replicas) > 1:
        return None
    # A lone replica is complete by definition: what it lost in a crash no other replica has either.
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


def step_down(topic_id: bytes, partition: Partition) -> PartitionChangeRecord:
    """Leaves a partition without a leader because its only replica is offline. It stays in the ISR, so it may lead
    again."""
    assert partition.leader != im.NO_LEADER, "nobody leads, and nobody steps down"
    return PartitionChangeRecord(partition_id=partition.index, topic_id=topic_id, leader=im.NO_LEADER)


@dataclass(frozen=True, slots=True)
class FenceBroker:
    """A clean stop of a broker."""

    broker_id: int

    def decide(self, image: ClusterImage, context: ControllerContext, access: Access) -> Decision[None]:
        """Decides the request upon `image`."""
        return decide_fence(image, self.broker_id)


def decide_fence(image: ClusterImage, node_id: int) -> Decision[None]:
    """Fences a broker that stops cleanly, so that its next incarnation can register at once."""
    broker = image.brokers.get(node_id)
    if broker is None or broker.fenced:
        return Decision(None)
    return Decision(None, [BrokerRegistrationChangeRecord(broker_id=node_id, broker_epoch=broker.epoch, fenced=_FENCE)])
