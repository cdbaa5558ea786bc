"""A process that was away while ACLs changed, and comes back before anybody can tell it: it holds every answer that
would go by what it knows, and goes by all ACLs once it has them."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Final

import pytest
from broker.guarded import ALLOW, DENY, acl, create
from broker.raw import Raw
from peers.secured_cluster import SecuredCluster
from peers.waiting import until

from headrace.security.authorizer import CLUSTER_NAME, Operation, ResourceType
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.k30_create_acls import AclCreation
from headrace.wire.messages.k55_describe_quorum import DescribeQuorumRequest, PartitionData, TopicData

AWAY: Final = 3
OTHERS: Final = (1, 2)
ANN: Final = "User:CN=ann"
ASKED: Final = DescribeQuorumRequest([TopicData("__cluster_metadata", [PartitionData(0)])])
QUICK: Final = {
    "controller.quorum.election.timeout.ms": "300",
    "controller.quorum.election.backoff.max.ms": "300",
    "controller.quorum.fetch.timeout.ms": "1500",
}
NOT_READY: Final = ErrorCode.UNKNOWN_SERVER_ERROR
DENIED: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class Asking(SecuredCluster):
    """The cluster, and who asks at a node's listener of controllers, which serves before the node knows anything."""

    def code(self, node: int, certificate: Path) -> int:
        """What a client with this certificate is told there. Raises OSError where nobody listens yet."""
        context = ssl.create_default_context(cafile=self.trust)
        context.load_cert_chain(certificate)
        with (
            socket.create_connection(("127.0.0.1", self.ports[node][1]), timeout=60) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as link,
            Raw.over(link) as raw,
        ):
            code: int = raw.ask(ASKED, 2).error_code
            return code

    def rule(self, permission: int) -> None:
        """Whether ann may see how the quorum is; node 1 is told so by an operator."""
        rule: AclCreation = acl(
            ResourceType.CLUSTER, CLUSTER_NAME, Operation.DESCRIBE, host="*", permission=permission, principal=ANN
        )
        with Raw(self.ports[1][0]) as operator:
            assert create(operator, rule) == [0]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_half_of_the_acls_are_none_after_a_start(tmp_path: Path) -> None:
    with Asking(tmp_path, more=QUICK) as cluster:
        ann = cluster.authority.client("ann").write_pem(tmp_path / "ann.pem")
        cluster.rule(ALLOW)
        until(lambda: cluster.code(AWAY, ann) not in (NOT_READY, DENIED), "ann is not allowed")
        cluster.nodes[AWAY].stop()
        cluster.rule(DENY)
        for node in OTHERS:
            cluster.nodes[node].kill()

        cluster.nodes[AWAY].launch()  # it knows that ann was allowed, and nobody says what came after
        until(lambda: cluster.code(AWAY, ann) == NOT_READY, "ann is not told to come again", OSError)
        assert cluster.code(AWAY, cluster.store(1)) not in (NOT_READY, DENIED), "a super user is served"
        assert cluster.code(AWAY, ann) == NOT_READY

        heard: list[int] = []

        def is_denied() -> bool:
            heard.append(cluster.code(AWAY, ann))
            return heard[-1] == DENIED

        for node in OTHERS:
            cluster.nodes[node].launch()
        until(is_denied, "ann is not denied")
        assert set(heard) <= {NOT_READY, DENIED}
        for peer in cluster.nodes.values():
            peer.wait()
