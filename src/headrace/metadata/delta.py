"""Applies metadata records to an image: the only writer of the cluster's metadata, live and on replay alike.

A delta is a draft on top of a base image. It copies what it changes, and `image()` freezes the draft into the next
image. Afterwards the delta tells listeners what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any, ClassVar

from headrace.metadata import image as im
from headrace.metadata.image import ClusterImage, Partition, RawRecord, Topic
from headrace.metadata.new_partitions import NewPartitions, partition_of
from headrace.wire.messages import metadata_records as mr

_KEEP = -2
"""PartitionChangeRecord.Leader when the leader stays."""


class InconsistentMetadataError(Exception):
    """A record that contradicts the records before it: the metadata log is damaged, and nothing may be built on it."""


class TopicDelta:
    """A topic that changed: as it was (None = created), as it is (None = deleted), and which partitions changed."""

    __slots__ = ("changed", "id", "name", "new", "old", "partitions")

    def __init__(self, topic_id: bytes, name: str, old: Topic | None) -> None:
        self.id = topic_id
        self.name = name
        self.old = old
        self.partitions: dict[int, Partition] = {} if old is None else dict(enumerate(old.partitions))
        self.changed: set[int] = set()
        self.new: Topic | None = None

    def freeze(self) -> Topic:
        """The topic as the records leave it."""
        count = len(self.partitions)
        partitions = tuple([self.partitions[i] for i in range(count)]) if count else ()
        self.new = Topic(self.name, self.id, partitions)
        return self.new


class ImageDelta:
    """Changes on top of `base`. Apply records, then take `image()` once."""

    def __init__(self, base: ClusterImage) -> None:
        self.base = base
        self.topics: dict[bytes, TopicDelta] = {}
        self.deleted_topics: dict[bytes, Topic] = {}
        self.changed_configs: set[tuple[int, str]] = set()
        self.changed_brokers: set[int] = set()
        self.features_changed = False
        self._names: dict[str, bytes | None] = {}
        self._configs: dict[tuple[int, str], dict[str, str]] = {}
        self._levels: dict[str, int] | None = None
        self._migration_state = base.features.migration_state
        self._brokers: dict[int, im.Broker] | None = None
        self._controllers: dict[int, im.Controller] | None = None
        self._next_producer_id = base.next_producer_id
        self._kept: dict[str, Any] = {}
        self._shared: dict[Any, Any] = {}

    @property
    def metadata_version(self) -> int:
        """The level of metadata.version with what was applied; 0 before the first record says."""
        return im.Features(self.base.features.levels if self._levels is None else self._levels).metadata_version

    def apply(self, record: Any) -> None:
        """Applies one record. Raises InconsistentMetadataError when it speaks of what does not exist."""
        self._appliers[type(record)](self, record)

    def apply_all(self, records: Iterable[Any]) -> None:
        """Applies records in order."""
        table = self._appliers
        for record in records:
            table[type(record)](self, record)

    # Topics

    def _topic(self, topic_id: bytes, what: str) -> TopicDelta:
        delta = self.topics.get(topic_id)
        if delta is None:
            topic = None if topic_id in self.deleted_topics else self.base.topics.by_id(topic_id)
            if topic is None:
                raise InconsistentMetadataError(f"a {what} names topic id {topic_id.hex()}, which does not exist")
            delta = self.topics[topic_id] = TopicDelta(topic_id, topic.name, topic)
        return delta

    def _apply_topic(self, record: mr.TopicRecord) -> None:
        existing = self._names.get(record.name, b"")
        if existing == b"":
            topic = self.base.topics.by_name(record.name)
            existing = None if topic is None else topic.id
        if existing is not None:
            raise InconsistentMetadataError(f"topic {record.name} is created twice")
        self.topics[record.topic_id] = TopicDelta(record.topic_id, record.name, None)
        self._names[record.name] = record.topic_id

    def _apply_partition(self, record: mr.PartitionRecord) -> None:
        topic = self._topic(record.topic_id, "PartitionRecord")
        topic.partitions[record.partition_id] = partition_of(record, self._shared)
        topic.changed.add(record.partition_id)

    def _apply_new_partitions(self, new: NewPartitions) -> None:
        topic = self._topic(new.topic_id, "PartitionRecord")
        assert topic.partitions.keys().isdisjoint(new.partitions), "a partition is new once"
        topic.partitions.update(new.partitions)
        topic.changed.update(new.partitions)

    def _apply_partition_change(self, record: mr.PartitionChangeRecord) -> None:
        topic = self._topic(record.topic_id, "PartitionChangeRecord")
        old = topic.partitions.get(record.partition_id)
        if old is None:
            raise InconsistentMetadataError(f"{topic.name}-{record.partition_id} changes before it exists")
        topic.partitions[record.partition_id] = merge_change(old, record)
        topic.changed.add(record.partition_id)

    def _apply_clear_elr(self, record: mr.ClearElrRecord) -> None:
        if record.topic_name:
            topic_id = self._names.get(record.topic_name)
            if topic_id is None:
                topic = self.base.topics.by_name(record.topic_name)
                if topic is None:
                    raise InconsistentMetadataError(
                        f"a ClearElrRecord names topic {record.topic_name}, which does not exist"
                    )
                topic_id = topic.id
            ids = [topic_id]
        else:
            ids = [i for i in self.base.topics.topics_by_id if i not in self.deleted_topics]
            ids += [i for i in self.topics if i not in self.base.topics.topics_by_id]
        for topic_id in ids:
            delta = self._topic(topic_id, "ClearElrRecord")
            for index, partition in delta.partitions.items():
                if partition.eligible_leaders or partition.last_known_eligible_leaders:
                    delta.partitions[index] = replace(partition, eligible_leaders=(), last_known_eligible_leaders=())
                    delta.changed.add(index)

    def _apply_remove_topic(self, record: mr.RemoveTopicRecord) -> None:
        delta = self._topic(record.topic_id, "RemoveTopicRecord")
        if delta.old is not None:
            self.deleted_topics[record.topic_id] = delta.old
        del self.topics[record.topic_id]
        self._names[delta.name] = None
        key = (int(im.ResourceType.TOPIC), delta.name)
        if self._config(key):
            self._configs[key] = {}
            self.changed_configs.add(key)

    # Configurations

    def _config(self, key: tuple[int, str]) -> dict[str, str]:
        values = self._configs.get(key)
        if values is None:
            values = self._configs[key] = dict(self.base.configs.overrides.get(key, ()))
        return values

    def _apply_config(self, record: mr.ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        values = self._config(key)
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        self.changed_configs.add(key)

    # Nodes

    def _draft_brokers(self) -> dict[int, im.Broker]:
        if self._brokers is None:
            self._brokers = dict(self.base.brokers)
        return self._brokers

    def _apply_register_broker(self, record: mr.RegisterBrokerRecord) -> None:
        self._draft_brokers()[record.broker_id] = im.Broker(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=_endpoints(record.end_points),
            features=_features(record.features),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(record.log_dirs),
            cordoned_directories=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
            is_migrating=record.is_migrating_zk_broker,
        )
        self.changed_brokers.add(record.broker_id)

    def _change_broker(self, broker_id: int, epoch: int, what: str, **changes: Any) -> None:
        brokers = self._draft_brokers()
        broker = brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise InconsistentMetadataError(
                f"a {what} names broker {broker_id} of epoch {epoch}, which is not registered"
            )
        brokers[broker_id] = replace(broker, **changes)
        self.changed_brokers.add(broker_id)

    def _apply_unregister_broker(self, record: mr.UnregisterBrokerRecord) -> None:
        self._change_broker(record.broker_id, record.broker_epoch, "UnregisterBrokerRecord")
        del self._draft_brokers()[record.broker_id]

    def _apply_fence(self, record: mr.FenceBrokerRecord) -> None:
        self._change_broker(record.id, record.epoch, "FenceBrokerRecord", fenced=True)

    def _apply_unfence(self, record: mr.UnfenceBrokerRecord) -> None:
        self._change_broker(record.id, record.epoch, "UnfenceBrokerRecord", fenced=False)

    def _apply_broker_change(self, record: mr.BrokerRegistrationChangeRecord) -> None:
        changes: dict[str, Any] = {}
        if record.fenced:
            changes["fenced"] = record.fenced > 0
        if record.in_controlled_shutdown:
            changes["in_controlled_shutdown"] = record.in_controlled_shutdown > 0
        if record.log_dirs:
            changes["directories"] = tuple(record.log_dirs)
        if record.cordoned_log_dirs is not None:
            changes["cordoned_directories"] = tuple(record.cordoned_log_dirs)
        self._change_broker(record.broker_id, record.broker_epoch, "BrokerRegistrationChangeRecord", **changes)

    def _draft_controllers(self) -> dict[int, im.Controller]:
        if self._controllers is None:
            self._controllers = dict(self.base.controllers)
        return self._controllers

    def _apply_register_controller(self, record: mr.RegisterControllerRecord) -> None:
        self._draft_controllers()[record.controller_id] = im.Controller(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints=_endpoints(record.end_points),
            features=_features(record.features),
            is_migration_ready=record.zk_migration_ready,
        )

    def _apply_unregister_controller(self, record: mr.UnregisterControllerRecord) -> None:
        self._draft_controllers().pop(record.controller_id, None)

    # Features and producer ids

    def _apply_feature_level(self, record: mr.FeatureLevelRecord) -> None:
        if self._levels is None:
            self._levels = dict(self.base.features.levels)
        if record.feature_level == 0:
            self._levels.pop(record.name, None)
        else:
            self._levels[record.name] = record.feature_level
        self.features_changed = True

    def _apply_migration_state(self, record: mr.ZkMigrationStateRecord) -> None:
        self._migration_state = record.zk_migration_state

    def _apply_producer_ids(self, record: mr.ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id

    # What is kept for concerns that are not served yet

    def _keep(self, concern: str) -> dict[Any, Any]:
        kept: dict[Any, Any] | None = self._kept.get(concern)
        if kept is None:
            kept = self._kept[concern] = dict(getattr(self.base.kept, concern))
        return kept

    def _apply_quota(self, record: mr.ClientQuotaRecord) -> None:
        entity = tuple(sorted((e.entity_type, e.entity_name or "", e.entity_name is None) for e in record.entity))
        if record.remove:
            self._keep("quotas").pop((entity, record.key), None)
        else:
            self._keep("quotas")[entity, record.key] = record

    def _apply_acl(self, record: mr.AccessControlEntryRecord) -> None:
        self._keep("acls")[record.id] = record

    def _apply_remove_acl(self, record: mr.RemoveAccessControlEntryRecord) -> None:
        self._keep("acls").pop(record.id, None)

    def _apply_scram(self, record: mr.UserScramCredentialRecord) -> None:
        self._keep("scram")[record.name, record.mechanism] = record

    def _apply_remove_scram(self, record: mr.RemoveUserScramCredentialRecord) -> None:
        self._keep("scram").pop((record.name, record.mechanism), None)

    def _apply_token(self, record: mr.DelegationTokenRecord) -> None:
        self._keep("delegation_tokens")[record.token_id] = record

    def _apply_remove_token(self, record: mr.RemoveDelegationTokenRecord) -> None:
        self._keep("delegation_tokens").pop(record.token_id, None)

    def _apply_raw(self, record: RawRecord) -> None:
        self._kept["unknown"] = (*self._kept.get("unknown", self.base.kept.unknown), record)

    def take_over(self, new: ClusterImage) -> None:
        """Takes over from another image what no record can take back, and of which no listener hears in pieces."""
        self._migration_state = new.features.migration_state
        self._next_producer_id = new.next_producer_id
        self._kept = {each.name: getattr(new.kept, each.name) for each in fields(im.KeptRecords)}

    def _apply_nothing(self, record: Any) -> None:
        """A record without an effect of its own: NoOpRecord; transaction marks are the replay's business."""

    # The next image

    def image(self, *, offset: int, epoch: int, timestamp_ms: int, cluster_id: str | None = None) -> ClusterImage:
        """The base with every applied record, as of the metadata offset of the last one."""
        base = self.base
        assert offset >= base.offset, "an image is not older than its base"
        features = base.features
        if self._levels is not None or self._migration_state != features.migration_state:
            features = im.Features(features.levels if self._levels is None else self._levels, self._migration_state)
        return ClusterImage(
            cluster_id=base.cluster_id if cluster_id is None else cluster_id,
            offset=offset,
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            features=features,
            brokers=base.brokers if self._brokers is None else self._brokers,
            controllers=base.controllers if self._controllers is None else self._controllers,
            topics=self._topics_image(),
            configs=self._configs_image(),
            next_producer_id=self._next_producer_id,
            kept=replace(base.kept, **self._kept) if self._kept else base.kept,
        )

    def _topics_image(self) -> im.TopicsImage:
        if not self.topics and not self.deleted_topics:
            return self.base.topics
        by_id = dict(self.base.topics.topics_by_id)
        by_name = dict(self.base.topics.topics_by_name)
        for topic_id, topic in self.deleted_topics.items():
            del by_id[topic_id]
            del by_name[topic.name]
        for topic_id, delta in self.topics.items():
            by_id[topic_id] = by_name[delta.name] = delta.freeze()
        assert len(by_id) == len(by_name), "a topic has one id and one name"
        return im.TopicsImage(by_id, by_name)

    def _configs_image(self) -> im.ConfigsImage:
        if not self.changed_configs:
            return self.base.configs
        overrides = dict(self.base.configs.overrides)
        for key in self.changed_configs:
            values = self._configs[key]
            if values:
                overrides[key] = values
            else:
                overrides.pop(key, None)
        return im.ConfigsImage(overrides)

    _appliers: ClassVar[dict[type, Callable[[ImageDelta, Any], None]]] = {
        mr.TopicRecord: _apply_topic,
        mr.PartitionRecord: _apply_partition,
        NewPartitions: _apply_new_partitions,
        mr.PartitionChangeRecord: _apply_partition_change,
        mr.RemoveTopicRecord: _apply_remove_topic,
        mr.ClearElrRecord: _apply_clear_elr,
        mr.ConfigRecord: _apply_config,
        mr.RegisterBrokerRecord: _apply_register_broker,
        mr.UnregisterBrokerRecord: _apply_unregister_broker,
        mr.FenceBrokerRecord: _apply_fence,
        mr.UnfenceBrokerRecord: _apply_unfence,
        mr.BrokerRegistrationChangeRecord: _apply_broker_change,
        mr.RegisterControllerRecord: _apply_register_controller,
        mr.UnregisterControllerRecord: _apply_unregister_controller,
        mr.FeatureLevelRecord: _apply_feature_level,
        mr.ZkMigrationStateRecord: _apply_migration_state,
        mr.ProducerIdsRecord: _apply_producer_ids,
        mr.ClientQuotaRecord: _apply_quota,
        mr.AccessControlEntryRecord: _apply_acl,
        mr.RemoveAccessControlEntryRecord: _apply_remove_acl,
        mr.UserScramCredentialRecord: _apply_scram,
        mr.RemoveUserScramCredentialRecord: _apply_remove_scram,
        mr.DelegationTokenRecord: _apply_token,
        mr.RemoveDelegationTokenRecord: _apply_remove_token,
        mr.NoOpRecord: _apply_nothing,
        mr.BeginTransactionRecord: _apply_nothing,
        mr.EndTransactionRecord: _apply_nothing,
        mr.AbortTransactionRecord: _apply_nothing,
        RawRecord: _apply_raw,
    }


def merge_change(old: Partition, record: mr.PartitionChangeRecord) -> Partition:
    """A partition after a change record: any change raises the partition epoch, one of the leader the leader epoch.

    Source: KIP-631 and KIP-841; the leader epoch rises whenever the record names a leader, the same one included.
    """
    replicas = old.replicas if record.replicas is None else tuple(record.replicas)
    if record.directories is not None:
        directories = tuple(record.directories)
    elif record.replicas is None:
        directories = old.directories
    else:
        directories = tuple([old.directory_of(r) if r in old.replicas else im.DIRECTORY_MIGRATING for r in replicas])
    leader_changes = record.leader != _KEEP
    return Partition(
        index=old.index,
        replicas=replicas,
        directories=directories,
        isr=old.isr if record.isr is None else tuple(record.isr),
        leader=record.leader if leader_changes else old.leader,
        leader_epoch=old.leader_epoch + 1 if leader_changes else old.leader_epoch,
        partition_epoch=old.partition_epoch + 1,
        removing=old.removing if record.removing_replicas is None else tuple(record.removing_replicas),
        adding=old.adding if record.adding_replicas is None else tuple(record.adding_replicas),
        leader_recovery_state=old.leader_recovery_state
        if record.leader_recovery_state < 0
        else record.leader_recovery_state,
        eligible_leaders=old.eligible_leaders
        if record.eligible_leader_replicas is None
        else tuple(record.eligible_leader_replicas),
        last_known_eligible_leaders=old.last_known_eligible_leaders
        if record.last_known_elr is None
        else tuple(record.last_known_elr),
    )


def _endpoints(endpoints: Iterable[Any]) -> tuple[im.Endpoint, ...]:
    return tuple(im.Endpoint(e.name, e.host, e.port, e.security_protocol) for e in endpoints)


def _features(features: Iterable[Any]) -> tuple[im.SupportedFeature, ...]:
    return tuple(im.SupportedFeature(f.name, f.min_supported_version, f.max_supported_version) for f in features)
