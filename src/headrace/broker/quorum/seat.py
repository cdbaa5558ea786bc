"""A node's seat in a quorum with other nodes: everything that it has beside its driver, set up and ended in order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.quorum.cluster_controller import ClusterController
from headrace.broker.quorum.controller_link import ControllerLink
from headrace.broker.quorum.controller_registration import ControllerRegistration
from headrace.broker.quorum.duties import Duties
from headrace.broker.quorum.local_controller import LocalController
from headrace.broker.quorum.metadata_start import controller_endpoints
from headrace.controller.brokers import supported_features
from headrace.metadata import image as im

if TYPE_CHECKING:
    from headrace.broker.quorum.driver import QuorumDriver
    from headrace.client.ways import Ways
    from headrace.config import BrokerConfig
    from headrace.env import Node
    from headrace.raft.control import VoterEndpoint
    from headrace.security.authorizer import Authorizer


class QuorumSeat:
    """See the module. `controller` is the port that handlers and drivers hold, `local` the controller of this process,
    `forwarding` the connection to the active one for requests of clients: behind a large one the node's own would wait,
    and without heartbeats it is fenced."""

    def __init__(
        self,
        node: Node,
        driver: QuorumDriver,
        config: Callable[[], BrokerConfig],
        authorizer: Callable[[], Authorizer],
        ways: Ways,
    ) -> None:
        self._driver = driver
        self.duties = Duties(node, driver, config)
        self.local = LocalController(driver, config, authorizer, node.entropy, self.duties)
        self.duties.controller = self.local
        settings = config()
        self._ways = ways
        link = partial(
            ControllerLink,
            node,
            self._leader_endpoint,
            self._other_voters,
            name=f"broker-{settings.node_id}",
            timeout_s=settings.controller_quorum_request_timeout_ms / 1000,
            way=ways.to_controllers,
            why_unknown=lambda: "" if driver.links is None else driver.links.denial,
        )
        self._link, self.forwarding = link(), link()
        driver.on_leader = self._link.moved
        self.controller = ClusterController(driver, self.local, self._link)
        self._registration: ControllerRegistration | None = None
        if not settings.is_broker_alone:
            endpoints = controller_endpoints(settings)
            own = im.Controller(settings.node_id, node.entropy.uuid(), endpoints, supported_features())
            self._registration = ControllerRegistration(node, driver, self.controller, own)

    def _leader_endpoint(self) -> VoterEndpoint | None:
        """Where the active controller is, as far as this node knows."""
        leader = self._driver.raft.known_leader
        return None if leader is None else self._driver.addresses.endpoint(leader)

    def _other_voters(self) -> list[VoterEndpoint]:
        """Where the active controller may be: all others that vote, while this node is deaf to what they say; else
        nobody, as this node knows who leads as soon as they do."""
        driver = self._driver
        if not driver.waits_for_room:
            return []
        others = [driver.addresses.endpoint(voter.id) for voter in driver.voters if voter.id != driver.node_id]
        return [endpoint for endpoint in others if endpoint is not None]

    def start(self) -> None:
        """Begins to speak with the voters, and with whoever leads them."""
        self._driver.start(self._ways)
        if self._registration is not None:
            self._registration.start()

    async def close(self) -> None:
        """Ends everything but the driver, which is closed next."""
        if self._registration is not None:
            await self._registration.close()
        await self.duties.close()
        self._link.close()
        self.forwarding.close()
