"""The quorum-state file: a voter's durable election state, as one line of JSON.

Version 0 (kraft.version 0) carries the cluster id and the voter set; version 1 (kraft.version 1) the directory voted
for. Source: KIP-595, KIP-853 (QuorumStateData).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from headrace.wire import uuids

NO_NODE = -1


class QuorumStateError(Exception):
    """A quorum-state file that cannot be read."""


@dataclass(frozen=True, slots=True)
class QuorumState:
    """The last election that this node knows; -1 = no leader, no vote."""

    leader_id: int = NO_NODE
    leader_epoch: int = 0
    voted_id: int = NO_NODE
    voted_directory_id: bytes = bytes(16)
    voters: tuple[int, ...] = ()
    data_version: int = 1


def encode_quorum_state(state: QuorumState, data_version: int) -> bytes:
    """Encodes the file's content at data version 0 or 1."""
    fields: dict[str, Any]
    if data_version == 0:
        fields = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter} for voter in state.voters],
        }
    else:
        fields = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.leader_epoch,
            "votedId": state.voted_id,
            "votedDirectoryId": uuids.to_text(state.voted_directory_id),
        }
    fields["data_version"] = data_version
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_quorum_state(data: bytes) -> QuorumState:
    """Decodes the file's content. Raises QuorumStateError if it is malformed, or of a version above 1."""
    try:
        fields = json.loads(data.splitlines()[0])
        version = fields["data_version"]
        if version not in (0, 1):
            raise QuorumStateError(f"quorum-state has data_version {version}; this broker reads 0 and 1")
        directory = fields.get("votedDirectoryId", "")
        return QuorumState(
            leader_id=int(fields["leaderId"]),
            leader_epoch=int(fields["leaderEpoch"]),
            voted_id=int(fields["votedId"]),
            voted_directory_id=uuids.from_text(directory) if directory else bytes(16),
            voters=tuple(int(v["voterId"]) for v in fields.get("currentVoters") or ()),
            data_version=version,
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise QuorumStateError(f"quorum-state cannot be read: {error!r}") from error
