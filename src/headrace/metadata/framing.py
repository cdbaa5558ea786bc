"""How metadata records lie in a log: frame version, record key and record version in front of the message.

Each of the three is an unsigned varint. Source: KIP-631 (AbstractApiMessageSerde, frame version 1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headrace.metadata import levels
from headrace.metadata.image import RawRecord
from headrace.wire.messages import metadata_records as mr
from headrace.wire.messages.metadata_records import METADATA_RECORDS
from headrace.wire.primitives import DecodeError

FRAME_VERSION: Final = 1


class MetadataRecordError(Exception):
    """A metadata record that cannot be read: a corrupt frame, or a version that this broker does not know."""


def encode_uvarint(value: int) -> bytes:
    """An unsigned varint."""
    assert value >= 0
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _decode_uvarint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 28:
            raise MetadataRecordError("a metadata record ends inside its frame")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def record_version(record: Any, level: int) -> int:
    """The version at which Kafka's controller writes a record at a metadata.version level."""
    prescribe = _PRESCRIBED.get(type(record))
    return 0 if prescribe is None else prescribe(record, level)


def _partition_version(_record: Any, level: int) -> int:
    if levels.supports_eligible_leaders(level):
        return 2
    return 1 if levels.supports_directories(level) else 0


def _register_broker_version(_record: Any, level: int) -> int:
    if levels.supports_cordoned_directories(level):
        return 4
    if levels.supports_directories(level):
        return 3
    return 2 if levels.supports_migration(level) else 1


def _broker_change_version(record: mr.BrokerRegistrationChangeRecord, _level: int) -> int:
    # The lowest version that says what the record says: an older broker then reads it too.
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return 1 if record.in_controlled_shutdown else 0


_PRESCRIBED: dict[type, Callable[[Any, int], int]] = {
    mr.PartitionRecord: _partition_version,
    mr.PartitionChangeRecord: _partition_version,
    mr.RegisterBrokerRecord: _register_broker_version,
    mr.BrokerRegistrationChangeRecord: _broker_change_version,
}

_FRAMES: dict[tuple[int, int], bytes] = {}


def encode_record(record: Any, version: int) -> bytes:
    """The bytes of a metadata record as the value of a log record; a RawRecord as it came."""
    if isinstance(record, RawRecord):
        return record.value
    key = (record.API_KEY, version)
    frame = _FRAMES.get(key)
    if frame is None:
        frame = _FRAMES[key] = encode_uvarint(FRAME_VERSION) + encode_uvarint(key[0]) + encode_uvarint(version)
    body: bytes = record.encode(version)
    return frame + body


def decode_record(value: bytes | memoryview) -> Any:
    """A metadata record from the value of a log record; RawRecord where its kind is unknown here.

    Raises MetadataRecordError for a corrupt frame and for a version above those of the schema.
    """
    frame_version, at = _decode_uvarint(value, 0)
    if frame_version != FRAME_VERSION:
        raise MetadataRecordError(
            f"a metadata record has frame version {frame_version}; this broker reads {FRAME_VERSION}"
        )
    api_key, at = _decode_uvarint(value, at)
    version, at = _decode_uvarint(value, at)
    kind = METADATA_RECORDS.get(api_key)
    if kind is None:
        return RawRecord(api_key, bytes(value))
    try:
        return kind.decode(value, version, at)
    except DecodeError as error:
        raise MetadataRecordError(f"a {kind.__name__} of version {version} cannot be read: {error}") from error
