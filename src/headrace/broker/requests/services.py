"""The parts of a node that handlers use: `NodeServices` on a controller alone, `Services` on a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import random

    from headrace.broker.coordinators.group_coordinator import GroupCoordinator
    from headrace.broker.coordinators.local_markers import LocalMarkers
    from headrace.broker.coordinators.transaction_coordinator import TransactionCoordinator
    from headrace.broker.coordinators.verifier import Verifier
    from headrace.broker.net.client_quotas import ClientQuotas
    from headrace.broker.net.long_answers import LongAnswers
    from headrace.broker.net.server import Server
    from headrace.broker.partitions.replica_manager import ReplicaManager
    from headrace.broker.partitions.replica_moves import ReplicaMoves
    from headrace.broker.quorum.driver import QuorumDriver
    from headrace.broker.quorum.membership.controller_tasks import ControllerTasks
    from headrace.broker.quorum.port.controller import Controller
    from headrace.broker.quorum.port.controller_link import ControllerLink
    from headrace.broker.quorum.port.producer_ids import ProducerIds
    from headrace.broker.requests.bad_batches import BadBatches
    from headrace.broker.requests.opening import Openings
    from headrace.broker.requests.waiting_fetches import Fetches
    from headrace.broker.settings.dynamic_config import DynamicConfig
    from headrace.broker.telemetry.audit import AuditLog
    from headrace.broker.telemetry.metrics import Registry
    from headrace.broker.telemetry.request_errors import RequestErrors
    from headrace.config import BrokerConfig
    from headrace.env import Node, Owner
    from headrace.log.manager import LogManager
    from headrace.metadata.image import ClusterImage
    from headrace.replicas.sessions import SessionCache
    from headrace.security.authorizer import Authorizer


class NodeServices(Protocol):
    """The parts of any node. Handlers read `config` and `image` again for each request, as they change while the node
    runs."""

    node: Node
    requests_owner: Owner
    """Owner of tasks and timers that handlers start and do not wait for."""
    metrics: Registry
    request_errors: RequestErrors
    """Counts of error codes in responses."""
    authorizer: Authorizer
    audit: AuditLog
    quotas: ClientQuotas
    long_answers: LongAnswers
    """Lock and workers for answers that take many turns of the event loop."""
    random: random.Random
    node_id: int
    cluster_id: str
    quorum: QuorumDriver
    controller: Controller
    local_controller: Controller
    """The controller of this process, for other nodes' requests, which are not forwarded again."""
    controller_link: ControllerLink | None
    """The link to the active controller for forwarded requests; None if none are forwarded."""
    controller_tasks: ControllerTasks | None
    """The tasks of this node while it is the active controller of several nodes; None if it votes alone."""

    @property
    def config(self) -> BrokerConfig:
        """The current settings; replaced as a whole."""
        ...

    @property
    def image(self) -> ClusterImage:
        """The current metadata of the cluster; immutable, replaced as a whole."""
        ...


class Services(NodeServices, Protocol):
    """The parts of a broker."""

    epoch: int
    """The broker epoch of the current registration."""
    server: Server
    dynamic: DynamicConfig
    logs: LogManager
    replicas: ReplicaManager
    moves: ReplicaMoves
    groups: GroupCoordinator
    local_markers: LocalMarkers
    verifier: Verifier
    transactions: TransactionCoordinator
    producer_ids: ProducerIds
    fetches: Fetches
    openings: Openings
    fetch_sessions: SessionCache
    bad_batches: BadBatches
