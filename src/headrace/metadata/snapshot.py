"""An image as the records that make it: what a metadata snapshot holds, in the order in which Kafka writes them.

Features first, because metadata.version says how to read what follows; then brokers, controllers, topics,
configurations, quotas, producer ids, ACLs, SCRAM credentials, delegation tokens. Source: KIP-630, KIP-631.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.metadata import image as im
from headrace.metadata import levels
from headrace.metadata.image import ClusterImage, Partition
from headrace.wire.messages import metadata_records as mr


def image_records(image: ClusterImage) -> Iterator[Any]:
    """Every record that makes this image out of an empty one."""
    level = image.features.metadata_version
    yield from _feature_records(image.features)
    for broker_id in sorted(image.brokers):
        yield broker_record(image.brokers[broker_id], level)
    if levels.supports_controller_registration(level):
        for controller_id in sorted(image.controllers):
            yield controller_record(image.controllers[controller_id])
    for topic in image.topics:
        yield mr.TopicRecord(name=topic.name, topic_id=topic.id)
        for partition in topic.partitions:
            yield partition_record(topic.id, partition, level)
    for resource_type, name in sorted(image.configs.overrides):
        for key, value in sorted(image.configs.overrides[resource_type, name].items()):
            yield mr.ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
    kept = image.kept
    yield from kept.quotas.values()
    if image.next_producer_id >= 0:
        yield mr.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    yield from kept.acls.values()
    yield from kept.scram.values()
    yield from kept.delegation_tokens.values()
    yield from kept.unknown


def _feature_records(features: im.Features) -> Iterator[Any]:
    for name in sorted(features.levels, key=lambda n: (n != levels.METADATA_VERSION, n)):
        yield mr.FeatureLevelRecord(name=name, feature_level=features.levels[name])
    if features.migration_state is not None:
        yield mr.ZkMigrationStateRecord(zk_migration_state=features.migration_state)


def broker_record(broker: im.Broker, level: int) -> mr.RegisterBrokerRecord:
    """The registration of a broker, with the fields that the metadata.version level has."""
    record = mr.RegisterBrokerRecord(
        broker_id=broker.id,
        is_migrating_zk_broker=broker.is_migrating,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            mr.BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in broker.endpoints
        ],
        features=[
            mr.BrokerFeature(name=f.name, min_supported_version=f.min_level, max_supported_version=f.max_level)
            for f in broker.features
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
    )
    if levels.supports_directories(level):
        record.log_dirs = list(broker.directories)
    if levels.supports_cordoned_directories(level) and broker.cordoned_directories is not None:
        record.cordoned_log_dirs = list(broker.cordoned_directories)
    return record


def controller_record(controller: im.Controller) -> mr.RegisterControllerRecord:
    """The registration of a controller."""
    return mr.RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.is_migration_ready,
        end_points=[
            mr.ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in controller.endpoints
        ],
        features=[
            mr.ControllerFeature(name=f.name, min_supported_version=f.min_level, max_supported_version=f.max_level)
            for f in controller.features
        ],
    )


def partition_record(topic_id: bytes, partition: Partition, level: int) -> mr.PartitionRecord:
    """A partition as a record, with the fields that the metadata.version level has."""
    record = mr.PartitionRecord(
        partition_id=partition.index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing),
        adding_replicas=list(partition.adding),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
    )
    if levels.supports_directories(level):
        record.directories = list(partition.directories)
    if levels.supports_eligible_leaders(level):
        if partition.eligible_leaders:
            record.eligible_leader_replicas = list(partition.eligible_leaders)
        if partition.last_known_eligible_leaders:
            record.last_known_elr = list(partition.last_known_eligible_leaders)
    return record
