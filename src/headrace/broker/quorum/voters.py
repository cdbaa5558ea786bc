"""Who votes by the settings, and who by what lies on the disk."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.raft.control import Voter
from headrace.raft.quorum_state import QuorumState


def foreign_voters(known: Sequence[Voter], found: Sequence[Voter], saved: QuorumState | None) -> list[int]:
    """Who votes by the metadata or the last election and not by the settings, or the other way round: the directory is
    part of another quorum. Where the settings name no voter (`known`), nobody is foreign."""
    ids = {voter.id for voter in found} | set(() if saved is None else saved.voters)
    return sorted(ids ^ {voter.id for voter in known}) if ids and known else []
