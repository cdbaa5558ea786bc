"""An operator who changes the voters of the metadata quorum, one at a time, during all other faults."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from headrace.client.describe import METADATA_TOPIC
from headrace.client.errors import ClientError
from headrace.raft.control import Voter, VoterEndpoint
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import k55_describe_quorum as k55
from headrace.wire.messages import k80_add_raft_voter as k80
from headrace.wire.messages import k81_remove_raft_voter as k81

if TYPE_CHECKING:
    from headrace.sim.client import SimClient

TIMEOUT_MS: Final = 10_000
_POSSIBLE: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.DUPLICATE_VOTER,
        ErrorCode.VOTER_NOT_FOUND,
    }
)
"""The last two where a request went through whose answer was lost."""


class VoterOperator:
    """An operator that changes the voters. Its requests may fail, and what became of them is then unknown to it."""

    def __init__(self, client: SimClient, nodes: Mapping[int, Voter]) -> None:
        """`nodes` are those that may vote, as a voter set names them; none: it is to `learn` of them."""
        self.client = client
        self.nodes = dict(nodes)
        self.confirmed = 0
        """Changes that were confirmed to it."""

    async def learn(self, nodes: Collection[int]) -> None:
        """Returns when it knows the directories and endpoints of these nodes, which vote, as the leader names them."""
        while set(self.nodes) != set(nodes):
            try:
                answer = await self._describe()
            except ClientError:
                answer = None
            if answer is not None:
                at = {
                    each.node_id: tuple(VoterEndpoint(one.name, one.host, one.port) for one in each.listeners)
                    for each in answer.nodes
                }
                voters = answer.topics[0].partitions[0].current_voters
                found = {
                    each.replica_id: Voter(each.replica_id, each.replica_directory_id, at[each.replica_id])
                    for each in voters
                    if any(each.replica_directory_id) and at.get(each.replica_id)
                }
                self.nodes = {node: found[node] for node in nodes if node in found}
            await self.client.rest()

    async def run(self) -> None:
        """Until its node ends."""
        rng = self.client.rng
        while True:
            try:
                await self._change(await self._voters())
            except ClientError:
                pass
            for _ in range(rng.randint(1, 6)):
                await self.client.rest()

    async def replace_one(self) -> None:
        """Removes one voter, and returns when every node votes again."""
        try:
            await self._remove(self.client.rng.choice(sorted(self.nodes)))
        except ClientError:
            pass
        await self.restore()

    async def restore(self) -> None:
        """Returns when every node votes."""
        while True:
            try:
                voters = await self._voters()
                if voters == set(self.nodes):
                    return
                if voters:
                    await self._add(min(set(self.nodes) - voters))
            except ClientError:
                pass
            await self.client.rest()

    async def _change(self, voters: set[int]) -> None:
        others = sorted(set(self.nodes) - voters)
        if not voters:
            return
        if others and (len(voters) == 1 or self.client.rng.random() < 0.5):
            await self._add(self.client.rng.choice(others))
        elif len(voters) > 1:
            await self._remove(self.client.rng.choice(sorted(voters)))

    async def _voters(self) -> set[int]:
        """Who votes as the leader says; nobody where none is found."""
        answer = await self._describe()
        voters = [] if answer is None else answer.topics[0].partitions[0].current_voters
        return {each.replica_id for each in voters}

    async def _describe(self) -> k55.DescribeQuorumResponse | None:
        """What the leader says; None where none is found."""
        asked = k55.TopicData(topic_name=METADATA_TOPIC, partitions=[k55.PartitionData()])
        answer = await self.client.ask(k55.DescribeQuorumRequest(topics=[asked]), k55.DescribeQuorumResponse)
        if answer.error_code or answer.topics[0].partitions[0].error_code:
            return None
        return answer

    async def _add(self, node: int) -> None:
        voter = self.nodes[node]
        request = k80.AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=TIMEOUT_MS,
            voter_id=voter.id,
            voter_directory_id=voter.directory_id,
            listeners=[k80.Listener(each.name, each.host, each.port) for each in voter.endpoints],
        )
        answer = await self.client.ask(request, k80.AddRaftVoterResponse)
        self._note("added", node, answer.error_code)

    async def _remove(self, node: int) -> None:
        request = k81.RemoveRaftVoterRequest(None, node, self.nodes[node].directory_id)
        answer = await self.client.ask(request, k81.RemoveRaftVoterResponse)
        self._note("removed", node, answer.error_code)

    def _note(self, what: str, node: int, code: int) -> None:
        world, error = self.client.world, ErrorCode(code)
        world.trace.note("voter", what, node, error.name)
        self.confirmed += error is ErrorCode.NONE
        world.demand(error in _POSSIBLE, f"voter {node} cannot be {what}: {error.name}")
