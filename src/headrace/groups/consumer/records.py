"""The records of consumer groups in `__consumer_offsets`, as immutable values: key types 3 to 8 and 16.

A key is its type, the group id, and for some types the id of a member or a regular expression. Every value is of
version 0. Source: the coordinator-key and coordinator-value schemas of KIP-848 and, for the tagged fields, of KIP-1101
(metadata hash), KIP-1251 (assignment epochs) and KIP-1263 (assignment timestamp).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar, Final, TypeAlias

from headrace.groups.modern.epochs import AssignmentEpoch, GroupEpoch
from headrace.wire.messages.newer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentTopicPartitions,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
)
from headrace.wire.primitives import DecodeError

_INT16 = struct.Struct(">h")
_VALUE_VERSION: Final = 0
_VERSION: Final = _INT16.pack(_VALUE_VERSION)

Partitions: TypeAlias = Mapping[bytes, frozenset[int]]
"""Partitions by topic id."""

Held: TypeAlias = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the epoch in which its holder was assigned it."""


class Kind(IntEnum):
    """The type of a record's key."""

    EPOCH = 3
    """The group's epoch; removed last."""
    PARTITION_METADATA = 4
    """The metadata of a group's topics; written by releases before 4.1."""
    MEMBER = 5
    """A member's metadata from its heartbeats."""
    TARGET_EPOCH = 6
    """The group epoch that the targets were computed for."""
    TARGET = 7
    """A member's target assignment."""
    CURRENT = 8
    """A member's current assignment and epoch."""
    REGEX = 16
    """The topics that a regular expression matched."""


PARTITION_BYTES: Final = 512
"""The memory of a target's partition in bytes: in the target, in the current assignment, and in the table of
holders."""
TOPIC_BYTES: Final = 64
"""The memory of a topic that a regular expression matches; its name is shared with the cluster's."""

_OF_THE_GROUP: Final = frozenset({Kind.EPOCH, Kind.PARTITION_METADATA, Kind.TARGET_EPOCH})
"""Kinds with one record for each group."""


class MemberState(IntEnum):
    """How far a member has come towards its target assignment."""

    STABLE = 0
    """The member is at its epoch, with its full target."""
    UNREVOKED = 1
    """The member has partitions to revoke, and has not confirmed that yet."""
    UNRELEASED = 2
    """The member waits for partitions that others have not revoked."""
    UNKNOWN = 127
    """A state of a newer release."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member's metadata: a field that its heartbeat omits stays unchanged."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    """Set if the member speaks the classic protocol."""

    @property
    def size(self) -> int:
        """The bytes that it keeps in memory of its client's requests."""
        protocols = () if self.classic is None else self.classic.supported_protocols
        return (
            len(self.client_id)
            + len(self.regex)
            + sum(map(len, self.topics))
            + sum(len(each.name) + len(each.metadata) for each in protocols)
        )


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """A member's current assignment. A member that has only joined has nothing at epoch 0."""

    epoch: int = 0
    previous_epoch: int = 0
    """The epoch before the last step; a member whose answer was lost still sends it."""
    state: MemberState = MemberState.STABLE
    assigned: Held = field(default_factory=dict)
    revoking: Held = field(default_factory=dict)
    """Partitions to revoke; no other member gets them before."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The topics that a regular expression matches, as of a version of the metadata."""

    topics: frozenset[str]
    metadata_version: int
    resolved_ms: int

    @property
    def size(self) -> int:
        """Its memory in bytes."""
        return TOPIC_BYTES * len(self.topics)


def target_size(target: Partitions) -> int:
    """Returns the memory of a target and of what is derived from it, in bytes."""
    return PARTITION_BYTES * sum(map(len, target.values()))


Value: TypeAlias = GroupEpoch | Member | AssignmentEpoch | Partitions | CurrentAssignment | Resolved | bytes


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """A record of a consumer group; None is its tombstone."""

    group_type: ClassVar = "consumer"

    group_id: str
    kind: Kind
    name: str
    """The member id, the regular expression, or empty."""
    value: Value | None


# --- encoding --------------------------------------------------------------------------------------------------------


def encode(record: ConsumerRecord) -> tuple[bytes, bytes | None]:
    """Encodes the key and the value of a record. Raises EncodeError for an id that is too long for the format."""
    if record.kind in _OF_THE_GROUP:
        body = ConsumerGroupMetadataKey(record.group_id).encode(0)
    else:
        # All keys with a second part have the same shape.
        body = ConsumerGroupMemberMetadataKey(record.group_id, record.name).encode(0)
    return _INT16.pack(record.kind) + body, _encode_value(record.value)


def _encode_value(value: Value | None) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return _VERSION + _wire_value(value).encode(_VALUE_VERSION)


def _wire_value(
    value: GroupEpoch | Member | AssignmentEpoch | Partitions | CurrentAssignment | Resolved,
) -> (
    ConsumerGroupMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
):
    if isinstance(value, CurrentAssignment):
        return ConsumerGroupCurrentMemberAssignmentValue(
            value.epoch,
            value.previous_epoch,
            value.state,
            _wire_partitions(value.assigned),
            _wire_partitions(value.revoking),
        )
    if isinstance(value, GroupEpoch):
        return ConsumerGroupMetadataValue(value.epoch, value.metadata_hash)
    if isinstance(value, AssignmentEpoch):
        return ConsumerGroupTargetAssignmentMetadataValue(value.epoch, value.computed_ms)
    if isinstance(value, Member):
        return ConsumerGroupMemberMetadataValue(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=sorted(value.topics),
            subscribed_topic_regex=value.regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.assignor,
            classic_member_metadata=value.classic,
        )
    if isinstance(value, Resolved):
        return ConsumerGroupRegularExpressionValue(sorted(value.topics), value.metadata_version, value.resolved_ms)
    return ConsumerGroupTargetAssignmentMemberValue(
        [TopicPartition(topic_id, sorted(partitions)) for topic_id, partitions in sorted(value.items())]
    )


def _wire_partitions(held: Held) -> list[ConsumerGroupCurrentMemberAssignmentTopicPartitions]:
    encoded = []
    for topic_id, epochs in sorted(held.items()):
        partitions = sorted(epochs)
        in_order = [epochs[partition] for partition in partitions]
        encoded.append(ConsumerGroupCurrentMemberAssignmentTopicPartitions(topic_id, partitions, in_order))
    return encoded


# --- decoding --------------------------------------------------------------------------------------------------------


def decode(kind: int, key: bytes, value: bytes | None) -> ConsumerRecord:
    """Decodes a record whose key type is one of `Kind`. Raises DecodeError for an unknown format."""
    of = Kind(kind)
    if of in _OF_THE_GROUP:
        group_id, name = ConsumerGroupMetadataKey.decode(key, 0, 2).group_id, ""
    else:
        where = ConsumerGroupMemberMetadataKey.decode(key, 0, 2)
        group_id, name = where.group_id, where.member_id
    return ConsumerRecord(group_id, of, name, None if value is None else _decode_value(of, value))


def _decode_value(kind: Kind, value: bytes) -> Value:
    if kind is Kind.PARTITION_METADATA:
        return value
    if len(value) < 2:
        raise DecodeError("a coordinator record's value is shorter than its version")
    (version,) = _INT16.unpack_from(value)
    if version != _VALUE_VERSION:
        raise DecodeError(f"version {version} of a consumer group's record of type {int(kind)} is not known")
    if kind is Kind.EPOCH:
        epoch = ConsumerGroupMetadataValue.decode(value, version, 2)
        return GroupEpoch(epoch.epoch, epoch.metadata_hash)
    if kind is Kind.TARGET_EPOCH:
        target = ConsumerGroupTargetAssignmentMetadataValue.decode(value, version, 2)
        return AssignmentEpoch(target.assignment_epoch, target.assignment_timestamp)
    if kind is Kind.MEMBER:
        return _decode_member(ConsumerGroupMemberMetadataValue.decode(value, version, 2))
    if kind is Kind.TARGET:
        shall_have = ConsumerGroupTargetAssignmentMemberValue.decode(value, version, 2)
        return {each.topic_id: frozenset(each.partitions) for each in shall_have.topic_partitions}
    if kind is Kind.REGEX:
        resolved = ConsumerGroupRegularExpressionValue.decode(value, version, 2)
        return Resolved(frozenset(resolved.topics), resolved.version, resolved.timestamp)
    return _decode_current(ConsumerGroupCurrentMemberAssignmentValue.decode(value, version, 2))


def _decode_member(value: ConsumerGroupMemberMetadataValue) -> Member:
    return Member(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=frozenset(value.subscribed_topic_names),
        regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=value.classic_member_metadata,
    )


def _decode_current(value: ConsumerGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    known = value.state in (MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED)
    return CurrentAssignment(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state) if known else MemberState.UNKNOWN,
        assigned=_held(value.assigned_partitions, value.member_epoch),
        revoking=_held(value.partitions_pending_revocation, value.member_epoch),
    )


def _held(stored: Iterable[ConsumerGroupCurrentMemberAssignmentTopicPartitions], member_epoch: int) -> Held:
    """Decodes held partitions. Releases before KIP-1251 wrote no assignment epochs: the member epoch replaces them."""
    held: dict[bytes, dict[int, int]] = {}
    for each in stored:
        epochs = each.assignment_epochs
        if not epochs:
            epochs = [member_epoch] * len(each.partitions)
        elif len(epochs) != len(each.partitions):
            raise DecodeError(f"{len(each.partitions)} partitions have {len(epochs)} assignment epochs")
        held[each.topic_id] = dict(zip(each.partitions, epochs))
    return held
