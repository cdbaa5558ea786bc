"""KRaft's control records and their batches.

A control record's key is two big-endian int16 (key version 0, type); its value starts with the message's version as an
int16, as a plain (not enveloped) message. Source: KIP-595, KIP-630, KIP-853.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

from headrace.wire.messages import raft_records as rr
from headrace.wire.primitives import Buffer, DecodeError
from headrace.wire.records import decode_batch


class ControlType(IntEnum):
    """The types of control records; the first two are transaction markers, which the metadata log does not hold."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class VoterEndpoint(NamedTuple):
    """An address of a voter's controller listener."""

    name: str
    host: str
    port: int


class Voter(NamedTuple):
    """A voter of the quorum: its node, the id of its metadata directory, its endpoints, and its kraft.version range."""

    id: int
    directory_id: bytes
    endpoints: tuple[VoterEndpoint, ...]
    min_kraft_version: int = 0
    max_kraft_version: int = 1


class ControlRecord(NamedTuple):
    """A control record: its type and its message."""

    type: ControlType
    message: Any


_KEY: Final = struct.Struct(">hh")
_MESSAGES: Final[dict[ControlType, Any]] = {
    ControlType.LEADER_CHANGE: rr.LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: rr.SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: rr.SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: rr.KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: rr.VotersRecord,
}


def control_key(kind: ControlType) -> bytes:
    """Encodes the key of a control record."""
    return _KEY.pack(0, kind)


def decode_control(key: bytes, value: bytes) -> ControlRecord | None:
    """Decodes a control record; None for a type that the metadata log does not have.

    Raises DecodeError.
    """
    if len(key) < _KEY.size:
        raise DecodeError("a control record's key has four bytes")
    _, kind = _KEY.unpack_from(key)
    message = _MESSAGES.get(kind)
    if message is None:
        return None
    # Kafka writes a control message at the version that the message itself names in its Version field.
    version = int.from_bytes(value[:2], "big", signed=True)
    return ControlRecord(ControlType(kind), message.decode(value, version))


def decode_controls(buf: Buffer, at: int = 0) -> list[ControlRecord | None]:
    """Decodes the records of the control batch at `at`; None for each type that the metadata log does not have.

    Raises DecodeError, CorruptBatch.
    """
    return [decode_control(record.key or b"", record.value or b"") for record in decode_batch(buf, at)]


def encode_control(record: ControlRecord) -> tuple[bytes, bytes]:
    """Encodes the key and value of a control record, at the version in its own Version field."""
    return control_key(record.type), record.message.encode(record.message.version)


def leader_change(leader_id: int, voters: Sequence[int], granting: Sequence[int]) -> ControlRecord:
    """Returns the first record of a new leader: its id, the voters, and those that voted for it."""
    message = rr.LeaderChangeMessage(version=0, leader_id=leader_id)
    message.voters = [rr.LeaderChangeMessageVoter(voter_id=voter) for voter in voters]
    message.granting_voters = [rr.LeaderChangeMessageVoter(voter_id=voter) for voter in granting]
    return ControlRecord(ControlType.LEADER_CHANGE, message)


def kraft_version(level: int) -> ControlRecord:
    """Returns the record of the finalized kraft.version."""
    return ControlRecord(ControlType.KRAFT_VERSION, rr.KRaftVersionRecord(version=0, kraft_version=level))


def voters_record(voters: Sequence[Voter]) -> ControlRecord:
    """Returns the record of the voter set."""
    message = rr.VotersRecord(version=0)
    message.voters = [
        rr.VotersVoter(
            voter_id=voter.id,
            voter_directory_id=voter.directory_id,
            endpoints=[rr.Endpoint(name=e.name, host=e.host, port=e.port) for e in voter.endpoints],
            kraft_version_feature=rr.KRaftVersionFeature(
                min_supported_version=voter.min_kraft_version, max_supported_version=voter.max_kraft_version
            ),
        )
        for voter in voters
    ]
    return ControlRecord(ControlType.KRAFT_VOTERS, message)


def voters_of(message: Any) -> tuple[Voter, ...]:
    """Returns the voters of a VotersRecord."""
    return tuple(
        Voter(
            v.voter_id,
            v.voter_directory_id,
            tuple(VoterEndpoint(e.name, e.host, e.port) for e in v.endpoints),
            v.kraft_version_feature.min_supported_version,
            v.kraft_version_feature.max_supported_version,
        )
        for v in message.voters
    )


def snapshot_header(last_contained_timestamp_ms: int) -> ControlRecord:
    """Returns the first record of a snapshot; the time is that of the last log record it contains."""
    message = rr.SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_timestamp_ms)
    return ControlRecord(ControlType.SNAPSHOT_HEADER, message)


def snapshot_footer() -> ControlRecord:
    """Returns the last record of a snapshot; without it a snapshot is incomplete."""
    return ControlRecord(ControlType.SNAPSHOT_FOOTER, rr.SnapshotFooterRecord(version=0))
