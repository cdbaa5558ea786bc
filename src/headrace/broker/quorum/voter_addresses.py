"""The addresses of controller listeners: those of the voters, those that the settings name, and the leader's as another
node of the quorum gives it."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.raft.control import Voter, VoterEndpoint
from headrace.raft.machine import FIRST_BOOTSTRAP
from headrace.raft.messages import ReplicaKey
from headrace.raft.voter_set import VoterHistory


class VoterAddresses:
    """Finds nodes of the quorum. `me` is this node, `sets` has the voters that it knows now, `bootstrap` are the
    addresses of its settings."""

    def __init__(self, me: ReplicaKey, sets: VoterHistory, bootstrap: Sequence[VoterEndpoint]) -> None:
        self._me = me
        self._sets = sets
        self._bootstrap = tuple(bootstrap)
        self._learned: tuple[int, VoterEndpoint, Sequence[Voter]] | None = None
        """The leader's id and address, and the voters that were known when another node gave it."""

    def endpoint(self, node_id: int) -> VoterEndpoint | None:
        """Returns the address of a node, or of the peer that a bootstrap server is; None if it is not known."""
        if node_id <= FIRST_BOOTSTRAP:
            return self._bootstrap[FIRST_BOOTSTRAP - node_id]
        voters, learned = self._sets.newest.voters, self._learned
        if learned is not None and learned[0] == node_id and learned[2] == voters:
            return learned[1]
        return next((each.endpoints[0] for each in voters if each.id == node_id and each.endpoints), None)

    def learn(self, leader_id: int, endpoint: VoterEndpoint) -> None:
        """Takes the leader's address from another node. It counts for more than the voter set as far as this node has
        read it, until this node reads another set.

        But nobody knows this node's own address better, and voters of the settings know the leader's by those."""
        newest = self._sets.newest
        if leader_id != self._me.id and (newest.kraft_version > 0 or not newest.names(self._me)):
            self._learned = (leader_id, endpoint, newest.voters)
