"""Who votes by the settings, and who by what lies on the disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.raft.control import Voter, VoterEndpoint
from headrace.raft.messages import ReplicaKey
from headrace.raft.quorum_state import QuorumState
from headrace.raft.voter_set import VoterSet, key_of


@dataclass(frozen=True, slots=True)
class Member:
    """Who a node is in the metadata quorum by its settings.

    `key` is the node with its metadata directory's id. `voters` are those of the settings, at kraft.version 0: once the
    metadata name the voters, those count, unless the quorum `is_static`, this node by itself for ever. Where the node
    does not vote, it is an observer, and finds the leader by the voters and by the addresses of `bootstrap`. `own` is
    what the voter set is to say of it once voters come and go; None leaves that as it is.
    """

    key: ReplicaKey
    voters: tuple[Voter, ...] = ()
    is_static: bool = True
    own: Voter | None = None
    bootstrap: tuple[VoterEndpoint, ...] = ()

    def key_in(self, voters: VoterSet) -> ReplicaKey:
        """Under which name it votes or fetches. Where it is by itself for ever, that is whatever the set names."""
        named = voters.of(self.key.id)
        return key_of(named) if named is not None and self.is_static else self.key

    def is_alone_in(self, voters: VoterSet) -> bool:
        """Whether it votes, and no other node."""
        return len(voters.voters) == 1 and voters.names(self.key_in(voters))

    def is_lost_in(self, voters: VoterSet) -> bool:
        """Whether it neither votes nor knows a node that it could ask for the leader."""
        is_observer = not voters.names(self.key_in(voters))
        return is_observer and not self.bootstrap and all(voter.id == self.key.id for voter in voters.voters)


def foreign_voters(known: Sequence[Voter], found: Sequence[Voter], saved: QuorumState | None) -> list[int]:
    """Who votes by the metadata or the last election and not by the settings, or the other way round: the directory is
    part of another quorum. Where the settings name no voter (`known`), nobody is foreign."""
    ids = {voter.id for voter in found} | set(() if saved is None else saved.voters)
    return sorted(ids ^ {voter.id for voter in known}) if ids and known else []
