"""The cluster image: everything the metadata records add up to, immutable, so that anyone may read it at any time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

from headrace.metadata import levels

NO_LEADER: Final = -1
LEADER_RECOVERED: Final = 0
LEADER_RECOVERING: Final = 1
"""An unclean leader: it may lack acknowledged records, and has not finished its recovery yet."""

DIRECTORY_MIGRATING: Final = bytes(16)
"""The directory of a replica that was placed before directories became part of the metadata."""
DIRECTORY_UNASSIGNED: Final = bytes(15) + b"\x01"
"""The directory of a replica that its broker has still to place."""
DIRECTORY_LOST: Final = bytes(15) + b"\x02"
"""The directory of a replica whose directory failed, its broker does not know which one."""
DIRECTORIES_RESERVED: Final = frozenset(number.to_bytes(16, "big") for number in range(100))
"""Ids that Kafka keeps for itself: no directory has one of them."""

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class ResourceType(IntEnum):
    """What a configuration belongs to (the ids of ConfigResource.Type)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition as the controller knows it; replicas and directories are in the same order."""

    index: int
    replicas: tuple[int, ...]
    directories: tuple[bytes, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    leader_recovery_state: int = LEADER_RECOVERED
    eligible_leaders: tuple[int, ...] = ()
    last_known_eligible_leaders: tuple[int, ...] = ()

    def directory_of(self, broker_id: int) -> bytes:
        """The log directory of a broker's replica; UNASSIGNED where the broker has none."""
        for replica, directory in zip(self.replicas, self.directories, strict=True):
            if replica == broker_id:
                return directory
        return DIRECTORY_UNASSIGNED

    @property
    def is_reassigning(self) -> bool:
        """Whether replicas are being added or removed."""
        return bool(self.removing or self.adding)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: its name, its 16-byte id and its partitions, whose position is their index."""

    name: str
    id: bytes
    partitions: tuple[Partition, ...]

    @property
    def is_internal(self) -> bool:
        """Whether Kafka keeps its own state in it."""
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class TopicsImage:
    """All topics, by id and by name; iteration is sorted by name."""

    topics_by_id: Mapping[bytes, Topic] = field(default_factory=dict)
    topics_by_name: Mapping[str, Topic] = field(default_factory=dict)

    def by_name(self, name: str) -> Topic | None:
        """The topic of that name, if there is one."""
        return self.topics_by_name.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        """The topic of that id, if there is one."""
        return self.topics_by_id.get(topic_id)

    def partition(self, name: str, index: int) -> Partition | None:
        """A partition by its topic's name and its index."""
        topic = self.topics_by_name.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def __iter__(self) -> Iterator[Topic]:
        for name in sorted(self.topics_by_name):
            yield self.topics_by_name[name]

    def __len__(self) -> int:
        return len(self.topics_by_name)


class Endpoint(NamedTuple):
    """Where a listener of a node is reached; security_protocol is Kafka's id (0 = PLAINTEXT)."""

    name: str
    host: str
    port: int
    security_protocol: int


class SupportedFeature(NamedTuple):
    """The levels of a feature that a node can run at."""

    name: str
    min_level: int
    max_level: int


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered broker; `epoch` is the metadata offset of its registration."""

    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[SupportedFeature, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[bytes, ...]
    cordoned_directories: tuple[bytes, ...] | None = None
    """Closed to new replicas; None: the broker has never reported any."""
    is_migrating: bool = False

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of a listener by its name."""
        return next((e for e in self.endpoints if e.name == listener), None)


@dataclass(frozen=True, slots=True)
class Controller:
    """A registered controller."""

    id: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: tuple[SupportedFeature, ...]
    is_migration_ready: bool = False


@dataclass(frozen=True, slots=True)
class Features:
    """The finalized feature levels; metadata.version is one of `levels`, kraft.version comes from control records.

    `migration_state` is what a release that could move away from ZooKeeper wrote; None where none did.
    """

    levels: Mapping[str, int] = field(default_factory=dict)
    migration_state: int | None = None

    @property
    def metadata_version(self) -> int:
        """The level of metadata.version; 0 before the first record says."""
        return self.levels.get(levels.METADATA_VERSION, 0)

    def level(self, name: str) -> int:
        """The finalized level of a feature; 0 where it is not finalized."""
        return self.levels.get(name, 0)


@dataclass(frozen=True, slots=True)
class ConfigsImage:
    """The configuration overrides of every resource, by (resource type, resource name)."""

    overrides: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)

    def of(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The overrides of one resource; empty where it has none."""
        return self.overrides.get((resource_type, name), {})

    def topic_overrides(self, name: str) -> Mapping[str, str]:
        """The overrides of a topic."""
        return self.of(ResourceType.TOPIC, name)

    def broker_overrides(self, broker_id: int) -> Mapping[str, str]:
        """The dynamic configuration of one broker, without the cluster's defaults."""
        return self.of(ResourceType.BROKER, str(broker_id))

    def cluster_overrides(self) -> Mapping[str, str]:
        """The dynamic configuration that every broker takes as its default."""
        return self.of(ResourceType.BROKER, "")

    def group_overrides(self, group_id: str) -> Mapping[str, str]:
        """The overrides of a group."""
        return self.of(ResourceType.GROUP, group_id)


class RawRecord(NamedTuple):
    """A metadata record of a kind that this broker does not know, kept as it was written (framing included)."""

    api_key: int
    value: bytes


@dataclass(frozen=True, slots=True)
class KeptRecords:
    """State of concerns that are kept as records: those that make it, live ones only, by what identifies them.

    Snapshots write them again unchanged.
    """

    quotas: Mapping[Any, Any] = field(default_factory=dict)
    acls: Mapping[bytes, Any] = field(default_factory=dict)
    scram: Mapping[tuple[str, int], Any] = field(default_factory=dict)
    delegation_tokens: Mapping[str, Any] = field(default_factory=dict)
    unknown: tuple[RawRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The state of the cluster as of one metadata offset.

    `offset` is the last record it contains (-1 = none), `epoch` the leader epoch of that record, `timestamp_ms` its
    time.
    """

    cluster_id: str = ""
    offset: int = -1
    epoch: int = 0
    timestamp_ms: int = 0
    features: Features = field(default_factory=Features)
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    controllers: Mapping[int, Controller] = field(default_factory=dict)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: ConfigsImage = field(default_factory=ConfigsImage)
    next_producer_id: int = -1
    kept: KeptRecords = field(default_factory=KeptRecords)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever written: the state before the bootstrap records."""
        return not self.features.levels and not self.topics.topics_by_id and not self.brokers

    def online_brokers(self) -> list[Broker]:
        """Brokers that are registered and not fenced, by id."""
        return [self.brokers[i] for i in sorted(self.brokers) if not self.brokers[i].fenced]
