"""Connections to the other voters, or to bootstrap servers that may know the leader. Each is opened by the first
message and closed at the first failure.

The machine decides when a request is sent again; here nothing is tried twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.broker.quorum.codec import PRE_VOTE_VERSION, Codec, leader_in
from headrace.client.async_connection import AsyncConnection
from headrace.client.errors import ClientError, RefusedError, UnreachableError
from headrace.client.security import PLAIN_CONNECTION
from headrace.raft.control import VoterEndpoint
from headrace.raft.events import Answered, Send, Unreachable
from headrace.raft.messages import VoteRequest, VoteResponse
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.records import CorruptBatch

if TYPE_CHECKING:
    from asyncio import Task

    from headrace.broker.quorum.voter_addresses import VoterAddresses
    from headrace.client.node_security import NodeSecurity
    from headrace.env import LogSink, Node

CLIENT_ID: Final = "raft-client"


DENIED_REMEDY: Final = (
    "this node has no right to ClusterAction on the cluster there: name the principals of all nodes in super.users, on "
    "every node"
)
"""What to do where nodes with an authorizer refuse another one."""
_DENIED: Final = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR})
"""The errors by which they refuse it; the second, as in Kafka, until they have read their ACLs, which takes a leader.
Only super users are admitted then."""


class VoterLinks:
    """The connections of one node. `addresses` finds the voters; `security` protects connections, None if they
    are not protected; `timeout_s` is how long a connection, and an answer, may take."""

    def __init__(
        self,
        node: Node,
        codec: Codec,
        addresses: VoterAddresses,
        security: NodeSecurity | None,
        *,
        timeout_s: float,
        log: LogSink,
    ) -> None:
        self._node = node
        self._owner = node.owner("quorum links")
        self._codec = codec
        self._addresses = addresses
        self._security = security
        self._timeout_s = timeout_s
        self._log = log
        self._links: dict[int, AsyncConnection] = {}
        self._opening: dict[int, Task[AsyncConnection | ClientError]] = {}
        self._newest: dict[int, Send] = {}
        self._of_other_clusters: set[int] = set()
        self._denied_by: set[int] = set()

    async def exchange(self, send: Send) -> Answered | Unreachable | None:
        """Sends a request to a voter and returns what became of it.

        None if the machine has given it up: it waits for one answer of a voter, and has had another request for this
        one before the connection was open.
        """
        peer = send.peer
        self._newest[peer] = send
        link = await self._link(peer, send.endpoint)
        if self._newest[peer] is not send:
            return None
        return self._failed(send, link) if isinstance(link, ClientError) else await self._ask(link, send)

    async def _link(self, peer: int, endpoint: VoterEndpoint | None) -> AsyncConnection | ClientError:
        link = self._links.get(peer)
        if link is not None and not link.closed:
            return link
        opening = self._opening.get(peer)
        if opening is None:
            opening = self._opening[peer] = self._owner.spawn(self._open(peer, endpoint))
        return await opening

    async def _open(self, peer: int, endpoint: VoterEndpoint | None) -> AsyncConnection | ClientError:
        try:
            self._links[peer] = link = await self._connected(peer, endpoint or self._addresses.endpoint(peer))
            return link
        except ClientError as error:
            return error
        finally:
            del self._opening[peer]

    async def _connected(self, peer: int, endpoint: VoterEndpoint | None) -> AsyncConnection:
        if endpoint is None:
            raise UnreachableError(f"the address of voter {peer} is not known")
        return await AsyncConnection.open(
            self._node,
            self._owner,
            endpoint.host,
            endpoint.port,
            client_id=CLIENT_ID,
            timeout_s=self._timeout_s,
            security=PLAIN_CONNECTION if self._security is None else self._security.to_controllers(),
        )

    async def _ask(self, link: AsyncConnection, send: Send) -> Answered | Unreachable:
        message = send.message
        if isinstance(message, VoteRequest) and message.pre_vote:
            newest = link.channel.versions.get(ApiKey.VOTE, (0, 0))[1]
            if newest < PRE_VOTE_VERSION:
                unknown = VoteResponse(message.epoch, None, False, True, ErrorCode.UNSUPPORTED_VERSION)
                return Answered(send.peer, send.number, unknown)
        request, response_class = self._codec.request(message)
        try:
            response = await link.ask(request, response_class, timeout_s=self._timeout_s)
            answer = self._codec.response(message, response)
        except ClientError as error:
            return self._failed(send, error)
        except (CorruptBatch, ValueError) as error:
            self._log.warning("a voter's answer cannot be used", voter=send.peer, why=error)
            return self._failed(send, error)
        self._note_cluster(send.peer, answer.error)
        self._note_rights(send.peer, answer.error)
        named = leader_in(response)
        if named is not None:
            self._addresses.learn(named[0], VoterEndpoint("", named[1], named[2]))
        return Answered(send.peer, send.number, answer)

    @property
    def denial(self) -> str:
        """Which voters refuse this node because it lacks rights, and what to do; empty where none does."""
        which = ", ".join(map(str, sorted(self._denied_by)))
        return f"refused by node {which}: {DENIED_REMEDY}" if which else ""

    def _note_rights(self, peer: int, error: ErrorCode) -> None:
        if error in _DENIED:
            self._denied_by.add(peer)
        else:
            self._denied_by.discard(peer)

    def _note_cluster(self, peer: int, error: ErrorCode) -> None:
        """Logs once for each voter that this node, or that voter, has the directory of another cluster."""
        if error is not ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._of_other_clusters.discard(peer)
        elif peer not in self._of_other_clusters:
            self._of_other_clusters.add(peer)
            self._log.error("voter belongs to another cluster than the directories of this node", voter=peer)

    def _failed(self, send: Send, error: BaseException) -> Unreachable:
        self._log.debug("a voter cannot be asked", voter=send.peer, why=error)
        return Unreachable(send.peer, send.number, isinstance(error, RefusedError))

    def close(self) -> None:
        """Closes every connection; what waits for an answer fails."""
        self._owner.close()
        for link in self._links.values():
            link.close()
        self._links.clear()
