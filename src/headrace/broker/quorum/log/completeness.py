"""Whether this node's metadata log has all that was ever synced in its directory: a voter votes only then.

Its disk may have been emptied, cut or restored from an old copy. Others count on what it had: with its vote they could
elect a leader that lacks it. So a note is on the disk before anything else happens, and stays until all is there again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.metadata.damage import INCOMPLETE_FILE, INCOMPLETE_TEXT

if TYPE_CHECKING:
    from headrace.broker.quorum.log.metadata_log import MetadataLog
    from headrace.broker.quorum.voters import Member
    from headrace.env import LogSink, Node
    from headrace.env.workers import Raised
    from headrace.raft.quorum_state import QuorumState
    from headrace.raft.voter_set import VoterSet


class Completeness:
    """Whether the metadata log has all that was ever synced; of one node's log."""

    def __init__(self, node: Node, log: MetadataLog, member: Member, sink: LogSink) -> None:
        self._node = node
        self._metadata = log
        self._member = member
        self._log = sink
        self._note = f"{log.root}/{INCOMPLETE_FILE}"
        self.lacks: str | None = None
        """Why this node must not vote by its log yet, None where it may, or never will; at the start."""

    def look(self, newest: VoterSet, saved: QuorumState | None, *, is_alone: bool) -> list[str]:
        """Finds out what the log lacks, and says why the node must not start for that: it votes alone. Raises OSError.

        A log that was never written to, on a node that took part in elections, lacks nothing: its recovery point says
        so. A controller that begins as no voter learns from the others that it is one, and has all that they have then;
        an emptied voter looks the same.
        """
        self.lacks = self._missing(newest, saved)
        return [self._nobody_else(self.lacks)] if is_alone and self.lacks is not None else []

    def _missing(self, newest: VoterSet, saved: QuorumState | None) -> str | None:
        member, disk = self._member, self._metadata.disk
        end, reached = self._metadata.end_offset, self._metadata.point.offset
        is_voter = newest.names(member.key_in(newest))
        if not is_voter and member.own is None:
            return None
        if disk.exists(self._note):
            return f"{self._note} says so"
        if not is_voter and end == 0:
            return "it is empty, and others know who votes"
        if reached is not None and end < reached:
            return f"it ends at offset {end}, and was synced up to {reached}"
        if reached is None and end == 0 and saved is not None and saved.leader_epoch > 0:
            return f"it is empty, and quorum-state tells of epoch {saved.leader_epoch}"
        return None

    def _nobody_else(self, missing: str) -> str:
        """What the operator of a node hears that lacks something, and votes alone."""
        return (
            f"its log lacks records that were synced ({missing}), and no other node votes: restore it from a copy. If "
            "other controllers are alive, name them in controller.quorum.bootstrap.servers and remove the .checkpoint "
            "files too: then this node learns from them who votes. To go on without what is lost, remove "
            f"{self._metadata.point.path} and {self._note}"
        )

    def note(self) -> None:
        """Remembers that something is missing, if it is, before anything else is done. Raises OSError."""
        if self.lacks is None:
            return
        event = "metadata log is incomplete: this node does not vote until it has all that is committed"
        self._log.warning(event, why=self.lacks)
        if not self._metadata.disk.exists(self._note):
            self._metadata.disk.write_file_atomically(self._note, INCOMPLETE_TEXT.encode())

    def restored(self) -> None:
        """All is there again, and synced."""
        self._log.info("metadata log is complete: this node votes", end_offset=self._metadata.end_offset)
        self._node.syncs.submit(self._remove_note).deliver_to(self._removed)

    def _remove_note(self) -> None:
        self._metadata.disk.remove(self._note)
        self._metadata.disk.sync_directory(self._metadata.root)

    def _removed(self, outcome: Raised | None) -> None:
        if outcome is not None:
            self._log.warning("note of an incomplete metadata log stays: the next start waits again", why=outcome.error)
