"""Where the controller listeners are: those of the voters, the addresses that the settings name, and the leader's as a
node of the quorum tells it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.raft.control import Voter, VoterEndpoint
from headrace.raft.machine import FIRST_BOOTSTRAP


class Whereabouts:
    """See the module. `own_id` is this node, `voters` are those that it knows now, `bootstrap` the addresses of its
    settings."""

    def __init__(self, own_id: int, voters: Callable[[], Sequence[Voter]], bootstrap: Sequence[VoterEndpoint]) -> None:
        self._own_id = own_id
        self._voters = voters
        self._bootstrap = tuple(bootstrap)
        self._told: tuple[int, VoterEndpoint, Sequence[Voter]] | None = None

    def endpoint(self, node_id: int) -> VoterEndpoint | None:
        """Where a node is reached, or the peer that a bootstrap server is; None where that is not known."""
        if node_id <= FIRST_BOOTSTRAP:
            return self._bootstrap[FIRST_BOOTSTRAP - node_id]
        voters, told = self._voters(), self._told
        if told is not None and told[0] == node_id and told[2] == voters:
            return told[1]
        return next((each.endpoints[0] for each in voters if each.id == node_id and each.endpoints), None)

    def learn(self, leader_id: int, endpoint: VoterEndpoint) -> None:
        """Another node says who leads, and where. It knows better than the voter set as far as this node has read,
        until this node reads another set; but of this node itself none knows better."""
        if leader_id != self._own_id:
            self._told = (leader_id, endpoint, self._voters())
