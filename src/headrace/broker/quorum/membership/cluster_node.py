"""A node of a cluster: everything that it has beside its quorum driver, built, started and closed in order."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.quorum.membership.controller_registration import ControllerRegistration
from headrace.broker.quorum.membership.controller_tasks import ControllerTasks
from headrace.broker.quorum.metadata_start import controller_endpoints
from headrace.broker.quorum.port.broker_liveness import BrokerLiveness
from headrace.broker.quorum.port.cluster_controller import ClusterController
from headrace.broker.quorum.port.controller_link import ControllerLink, ControllerLocator
from headrace.broker.quorum.port.local_controller import LocalController
from headrace.controller.brokers import supported_features
from headrace.metadata import image as im

if TYPE_CHECKING:
    from headrace.broker.quorum.driver import QuorumDriver
    from headrace.broker.settings.dynamic_config import DynamicConfig
    from headrace.client.node_security import NodeSecurity
    from headrace.env import Node


class ClusterNode:
    """The parts of one node. `controller` is the port that handlers and the broker's parts hold, `local` the controller
    of this process, `forwarding` the connection to the active one for requests of clients: behind a large one the
    node's own would wait, and without heartbeats it is fenced."""

    def __init__(self, node: Node, driver: QuorumDriver, dynamic: DynamicConfig, security: NodeSecurity) -> None:
        self._driver = driver
        self._security = security
        self.liveness = BrokerLiveness(node)
        self.local = LocalController(driver, dynamic, node.entropy, self.liveness)
        self.tasks = ControllerTasks(node, driver, dynamic, self.local, self.liveness)
        settings = dynamic.config
        link = partial(
            ControllerLink,
            node,
            ControllerLocator(driver),
            security,
            name=f"broker-{settings.node_id}",
            timeout_s=settings.controller_quorum_request_timeout_ms / 1000,
        )
        self._link, self.forwarding = link(), link()
        driver.on_leader = self._link.moved
        self.controller = ClusterController(driver, self.local, self._link)
        self._registration: ControllerRegistration | None = None
        if not settings.is_broker_alone:
            endpoints = controller_endpoints(settings)
            own = im.Controller(settings.node_id, node.entropy.uuid(), endpoints, supported_features())
            self._registration = ControllerRegistration(node, driver, self.controller, own)

    def start(self) -> None:
        """Begins to exchange messages with the voters, and with their leader."""
        self._driver.start(self._security)
        if self._registration is not None:
            self._registration.start()

    async def close(self) -> None:
        """Ends everything but the driver, which is closed next."""
        if self._registration is not None:
            await self._registration.close()
        await self.tasks.close()
        self._link.close()
        self.forwarding.close()
