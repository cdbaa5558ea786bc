"""The other voters, or whoever is asked for the leader: a connection to each, opened when there is something to say,
and closed with its first failure.

The machine decides when somebody is asked again; here nothing is tried twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.quorum.codec import PRE_VOTE_VERSION, Codec, told_leader
from headrace.client.async_connection import AsyncConnection
from headrace.client.errors import ClientError, RefusedError, UnreachableError
from headrace.env.node import settle
from headrace.raft.control import VoterEndpoint
from headrace.raft.events import Answered, Send, Unreachable
from headrace.raft.messages import VoteRequest, VoteResponse
from headrace.wire.apis import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.records import CorruptBatch

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.client.security import Way
    from headrace.env import LogSink, Node

CLIENT_ID: Final = "raft-client"


DENIED_REMEDY: Final = (
    "this node has no right to ClusterAction on the cluster there: name the principals of all nodes in super.users, on "
    "every node"
)
"""What to do where nodes with an authorizer refuse another one."""
_DENIED: Final = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR})
"""How they refuse it; the second, as in Kafka, until they have read their ACLs, which takes a leader. Super users alone
are let in then."""


class VoterLinks:
    """See the module. `heard` gets what became of each request; `endpoint` says where a voter is; `told` gets the
    leader and where it is, as an answer has it."""

    def __init__(
        self,
        node: Node,
        codec: Codec,
        endpoint: Callable[[int], VoterEndpoint | None],
        heard: Callable[[Answered | Unreachable], None],
        told: Callable[[int, VoterEndpoint], None],
        *,
        timeout_s: float,
        way: Callable[[], Way],
        log: LogSink,
    ) -> None:
        """`timeout_s`: how long a connection, and an answer, may take; `way`: what a connection is opened with."""
        self._node = node
        self._owner = node.owner("quorum links")
        self._codec = codec
        self._endpoint = endpoint
        self._heard = heard
        self._told = told
        self._timeout_s = timeout_s
        self._way = way
        self._log = log
        self._links: dict[int, AsyncConnection] = {}
        self._finished: Future[None] | None = None
        self._next: dict[int, Send] = {}
        self._opening: set[int] = set()
        self._of_other_clusters: set[int] = set()
        self._denied_by: set[int] = set()

    def send(self, send: Send) -> None:
        """Asks a voter. The machine waits for one answer a voter: what is not sent yet when the next one comes, it has
        given up."""
        self._next[send.peer] = send
        if send.peer not in self._opening:
            self._opening.add(send.peer)
            self._owner.spawn(self._send_all(send.peer))

    async def _send_all(self, peer: int) -> None:
        while peer in self._next:
            try:
                link = await self._link(peer, self._next[peer].endpoint)
            except ClientError as error:
                self._failed(self._next.pop(peer), error)
            else:
                self._ask(link, self._next.pop(peer))
        self._opening.discard(peer)
        self._look()

    async def _link(self, peer: int, endpoint: VoterEndpoint | None) -> AsyncConnection:
        link = self._links.get(peer)
        if link is not None and not link.closed:
            return link
        endpoint = endpoint or self._endpoint(peer)
        if endpoint is None:
            raise UnreachableError(f"nobody knows where voter {peer} is")
        link = await AsyncConnection.open(
            self._node,
            self._owner,
            endpoint.host,
            endpoint.port,
            client_id=CLIENT_ID,
            timeout_s=self._timeout_s,
            way=self._way(),
        )
        self._links[peer] = link
        return link

    def _ask(self, link: AsyncConnection, send: Send) -> None:
        message = send.message
        if isinstance(message, VoteRequest) and message.pre_vote:
            newest = link.channel.versions.get(ApiKey.VOTE, (0, 0))[1]
            if newest < PRE_VOTE_VERSION:
                unknown = VoteResponse(message.epoch, None, False, True, ErrorCode.UNSUPPORTED_VERSION)
                self._heard(Answered(send.peer, send.number, unknown))
                return
        request, response_class = self._codec.request(message)
        asked = link.ask(request, response_class, timeout_s=self._timeout_s)
        self._owner.spawn(self._hear(send, asked))

    async def _hear(self, send: Send, asked: Future[Any]) -> None:
        try:
            said = await asked
            answer = self._codec.response(send.message, said)
        except ClientError as error:
            self._failed(send, error)
        except (CorruptBatch, ValueError) as error:
            self._log.warning("a voter's answer cannot be used", voter=send.peer, why=error)
            self._failed(send, error)
        else:
            leader = told_leader(said)
            if leader is not None:
                self._told(leader[0], VoterEndpoint("", leader[1], leader[2]))
            self._look_at_cluster(send.peer, answer.error)
            self._look_at_rights(send.peer, answer.error)
            self._heard(Answered(send.peer, send.number, answer))
        self._look()

    @property
    def denial(self) -> str:
        """Which voters refuse this node for want of rights, and what to do; empty where none does."""
        which = ", ".join(map(str, sorted(self._denied_by)))
        return f"refused by node {which}: {DENIED_REMEDY}" if which else ""

    def _look_at_rights(self, peer: int, error: ErrorCode) -> None:
        if error in _DENIED:
            self._denied_by.add(peer)
        else:
            self._denied_by.discard(peer)

    def _look_at_cluster(self, peer: int, error: ErrorCode) -> None:
        """Says it once of each voter that this node, or that voter, stands on a directory of another cluster."""
        if error is not ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._of_other_clusters.discard(peer)
        elif peer not in self._of_other_clusters:
            self._of_other_clusters.add(peer)
            self._log.error("voter belongs to another cluster than the directories of this node", voter=peer)

    def _failed(self, send: Send, error: BaseException) -> None:
        self._log.debug("a voter cannot be asked", voter=send.peer, why=error)
        self._heard(Unreachable(send.peer, send.number, isinstance(error, RefusedError)))

    async def finish(self, timeout_s: float) -> None:
        """Returns when all that was asked is answered, or after that time."""
        self._finished = self._node.future()
        timer = self._owner.later(timeout_s, self._finish)
        self._look()
        await self._finished
        timer.cancel()

    def _look(self) -> None:
        if not self._next and not any(link.outstanding for link in self._links.values()):
            self._finish()

    def _finish(self) -> None:
        if self._finished is not None:
            settle(self._finished)

    def close(self) -> None:
        """Ends every connection; nobody is heard of any more."""
        self._owner.close()
        for link in self._links.values():
            link.close()
        self._links.clear()
