"""The records of groups, in the formats of `__consumer_offsets`: a key behind its type, a value behind its version.

Source: the coordinator-key and coordinator-value schemas. Offsets are written as OffsetCommitValue v4 (v1 where the
client gave an expiry of its own), group metadata as GroupMetadataValue v3: what Apache Kafka 4.3 writes at every
metadata.version. See docs/formats/group-records.md.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from sys import intern
from typing import ClassVar, Final, TypeAlias

from headrace.groups.consumer import records as consumer_records
from headrace.groups.consumer.records import ConsumerRecord
from headrace.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from headrace.wire.primitives import DecodeError, EncodeError
from headrace.wire.uuids import ZERO

StoredGroup: TypeAlias = GroupMetadataValue
"""One completed generation as stored in the log: its members with their subscriptions and assignments."""

LEGACY_OFFSET_KEY: Final = 0
OFFSET_KEY: Final = 1
GROUP_KEY: Final = 2

CONSUMER_KEYS: Final = frozenset(consumer_records.Kind)
"""Key types of KIP-848 consumer groups."""
SHARE_KEYS: Final = frozenset({10, 11, 12, 13, 14, 15})
"""Key types of KIP-932 share groups; 10 is a member."""
STREAMS_KEYS: Final = frozenset({17, 18, 19, 20, 21, 22, 23})
"""Key types of KIP-1071 streams groups; 19 is a member."""
UNSERVED_KEYS: Final = SHARE_KEYS | STREAMS_KEYS
UNSERVED_MEMBER_KEYS: Final = frozenset({10, 19})

_GROUP_VALUE_VERSION: Final = 3
_OFFSET_VALUE_VERSION: Final = 4
_OFFSET_VALUE_VERSION_WITH_EXPIRY: Final = 1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_OFFSET_VALUE_HEAD = struct.Struct(">hqi")


class Offset:
    """A committed offset with its metadata."""

    __slots__ = ("committed_ms", "expires_ms", "leader_epoch", "log_offset", "metadata", "position", "topic_id")

    def __init__(
        self,
        position: int,
        leader_epoch: int = -1,
        metadata: str = "",
        committed_ms: int = -1,
        expires_ms: int = -1,
        topic_id: bytes = ZERO,
        log_offset: int = -1,
    ) -> None:
        self.position = position
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.committed_ms = committed_ms
        self.expires_ms = expires_ms
        """The client's own expiry (OffsetCommit v2 to v4), or -1."""
        self.topic_id = topic_id
        """The id of the topic at the time of the commit; zero if unknown (records before Kafka 4.1)."""
        self.log_offset = log_offset
        """The offset of its record in the log; -1 until it is applied."""

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__slots__ if name != "log_offset")

    def __eq__(self, other: object) -> bool:
        """Compares the committed values, without the offset of the record."""
        return isinstance(other, Offset) and self._values() == other._values()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Offset({self.position}, epoch={self.leader_epoch}, metadata={self.metadata!r})"


@dataclass(slots=True)
class OffsetRecord:
    """A committed offset; None is its tombstone. Not frozen, which would cost as much as encoding it."""

    group_id: str
    topic: str
    partition: int
    offset: Offset | None


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A completed generation of a classic group; None is the group's tombstone."""

    group_type: ClassVar = "classic"

    group_id: str
    stored: StoredGroup | None


@dataclass(frozen=True, slots=True)
class UnservedRecord:
    """A record of a share or streams group, kept unchanged."""

    group_id: str
    kind: int
    key: bytes
    value: bytes | None

    @property
    def group_type(self) -> str:
        """The group type as ListGroups names it."""
        return "share" if self.kind in SHARE_KEYS else "streams"


Record: TypeAlias = OffsetRecord | GroupRecord | ConsumerRecord | UnservedRecord


def encode(record: Record) -> tuple[bytes, bytes | None]:
    """Returns the key and the value of a record as stored in the log."""
    if isinstance(record, OffsetRecord):
        return encode_offset_key(record.group_id, record.topic, record.partition), encode_offset(record.offset)
    if isinstance(record, GroupRecord):
        key = _INT16.pack(GROUP_KEY) + GroupMetadataKey(group=record.group_id).encode(0)
        if record.stored is None:
            return key, None
        return key, _INT16.pack(_GROUP_VALUE_VERSION) + record.stored.encode(_GROUP_VALUE_VERSION)
    if isinstance(record, ConsumerRecord):
        return consumer_records.encode(record)
    return record.key, record.value


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Encodes an OffsetCommitKey with its type: by hand, because every commit needs it. Raises EncodeError."""
    group, name = group_id.encode(), topic.encode()
    try:
        sizes = _INT16.pack(len(group)), _INT16.pack(len(name))
    except struct.error as error:
        raise EncodeError(f"an OffsetCommitKey cannot be encoded: {error}") from None
    return b"".join((b"\x00\x01", sizes[0], group, sizes[1], name, _INT32.pack(partition)))


def encode_offset(offset: Offset | None) -> bytes | None:
    """Encodes an OffsetCommitValue with its version; None for a tombstone."""
    if offset is None:
        return None
    if offset.expires_ms >= 0:
        value = OffsetCommitValue(
            offset=offset.position,
            metadata=offset.metadata,
            commit_timestamp=offset.committed_ms,
            expire_timestamp=offset.expires_ms,
        )
        version = _OFFSET_VALUE_VERSION_WITH_EXPIRY
        return _INT16.pack(version) + value.encode(version)
    metadata = offset.metadata.encode()
    if len(metadata) < 127:
        # Version 4 by hand, like the key; a test compares it with the generated codec below.
        return b"".join(
            (
                _OFFSET_VALUE_HEAD.pack(_OFFSET_VALUE_VERSION, offset.position, offset.leader_epoch),
                bytes((len(metadata) + 1,)),
                metadata,
                _INT64.pack(offset.committed_ms),
                b"\x00" if offset.topic_id == ZERO else b"\x01\x00\x10" + offset.topic_id,
            )
        )
    return encode_offset_generally(offset)


def encode_offset_generally(offset: Offset) -> bytes:
    """Encodes an OffsetCommitValue v4 with the generated codec, for metadata of any length."""
    value = OffsetCommitValue(
        offset=offset.position,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.committed_ms,
        topic_id=offset.topic_id,
    )
    return _INT16.pack(_OFFSET_VALUE_VERSION) + value.encode(_OFFSET_VALUE_VERSION)


def decode(key: bytes, value: bytes | None) -> Record | None:
    """Decodes a record of the log; None for an unknown key type (Kafka skips those too).

    Raises DecodeError for a malformed record.
    """
    if len(key) < 2:
        raise DecodeError("a coordinator record's key is shorter than its type")
    (kind,) = _INT16.unpack_from(key)
    if kind in (LEGACY_OFFSET_KEY, OFFSET_KEY):
        where = OffsetCommitKey.decode(key, 0, 2)
        return OffsetRecord(where.group, intern(where.topic), where.partition, _decode_offset(value))
    if kind == GROUP_KEY:
        return GroupRecord(GroupMetadataKey.decode(key, 0, 2).group, _decode_group(value))
    if kind in CONSUMER_KEYS:
        return consumer_records.decode(kind, key, value)
    if kind in UNSERVED_KEYS:
        # All these keys start with the group id, so they need no classes of their own here.
        return UnservedRecord(GroupMetadataKey.decode(_first_string(key), 0).group, kind, key, value)
    return None


def _first_string(key: bytes) -> bytes:
    if len(key) < 4:
        raise DecodeError("a coordinator record's key ends before its group id")
    return key[2 : 4 + max(0, _INT16.unpack_from(key, 2)[0])]


def _version(value: bytes) -> int:
    if len(value) < 2:
        raise DecodeError("a coordinator record's value is shorter than its version")
    version: int = _INT16.unpack_from(value)[0]
    return version


def _decode_offset(value: bytes | None) -> Offset | None:
    if value is None:
        return None
    version = _version(value)
    if not 0 <= version <= 4:
        raise DecodeError(f"OffsetCommitValue version {version} is not known")
    stored = OffsetCommitValue.decode(value, version, 2)
    return Offset(
        stored.offset,
        stored.leader_epoch,
        stored.metadata,
        stored.commit_timestamp,
        stored.expire_timestamp,
        _shared(stored.topic_id),
    )


@lru_cache(maxsize=10_000)
def _shared(topic_id: bytes) -> bytes:
    """Returns one object for equal ids: a loaded coordinator holds one for every offset."""
    return topic_id


def _decode_group(value: bytes | None) -> StoredGroup | None:
    if value is None:
        return None
    version = _version(value)
    if not 0 <= version <= 4:
        raise DecodeError(f"GroupMetadataValue version {version} is not known")
    return GroupMetadataValue.decode(value, version, 2)
