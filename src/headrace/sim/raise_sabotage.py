"""Planted faults in raising kraft.version: only runs that raise it can find them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from headrace.broker.quorum.driver import QuorumDriver
from headrace.broker.quorum.log.metadata_log import LoadedMetadata, MetadataLog
from headrace.broker.quorum.log.snapshot_files import SnapshotFiles
from headrace.broker.quorum.voters import Member
from headrace.controller.context import ApiError
from headrace.metadata.image import ClusterImage
from headrace.raft.voter_set import VoterHistory, VoterSet
from headrace.wire.errors import ErrorCode

Real = Callable[..., Any]


def _confirm_at_once(real: Real) -> Real:
    """What the leader has appended is as good as committed."""

    def decide(self: QuorumDriver, decide: Any, asked: Any) -> None:
        before = self.kraft_version
        real(self, decide, asked)
        if self.kraft_version > before and not asked.done():
            asked.set_result(ApiError(ErrorCode.NONE))

    return decide


def _forget_the_level(real: Real) -> Real:
    """A start uses the settings, as if the log had no voters."""

    def load(self: MetadataLog, cluster_id: str, member: Member) -> LoadedMetadata:
        loaded: LoadedMetadata = real(self, cluster_id, member)
        loaded.sets = VoterHistory(VoterSet(member.voters, 0))
        return loaded

    return load


def _leave_the_level_out(real: Real) -> Real:
    """A snapshot says nothing of voters that the settings name."""

    def write(self: SnapshotFiles, image: ClusterImage, voters: VoterSet, now_ms: int) -> int:
        size: int = real(self, image, replace(voters, kraft_version=0), now_ms)
        return size

    return write


def _keep_what_was_cut(self: VoterHistory, _: int) -> None:
    """Who votes by the records that a new leader cut off votes all the same."""


def raise_plants() -> dict[str, list[tuple[Any, str, Any]]]:
    """By name: whose attributes, which, and what takes their place."""
    return {
        "confirms-a-raise-at-once": [(QuorumDriver, "_decide", _confirm_at_once(vars(QuorumDriver)["_decide"]))],
        "forgets-the-level-over-a-restart": [(MetadataLog, "load", _forget_the_level(MetadataLog.load))],
        "leaves-the-level-out-of-snapshots": [(SnapshotFiles, "write", _leave_the_level_out(SnapshotFiles.write))],
        "keeps-a-level-that-was-cut": [(VoterHistory, "truncate", _keep_what_was_cut)],
    }
