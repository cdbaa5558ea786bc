"""What a handler sees of the node around it: a controller alone has `NodeServices`, a broker `Services`."""

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
    """Attributes that change while the node runs (`config`, `image`) are read again for each request."""

    node: Node
    requests_owner: Owner
    """Of what handlers start and do not wait for."""
    metrics: Registry
    request_errors: RequestErrors
    authorizer: Authorizer
    audit: AuditLog
    quotas: ClientQuotas
    long_answers: LongAnswers
    """The turn for making an answer that takes many turns of the loop."""
    random: random.Random
    node_id: int
    cluster_id: str
    quorum: QuorumDriver
    controller: Controller
    local_controller: Controller
    """The controller of this process: what other nodes ask of it goes no further."""
    controller_link: ControllerLink | None
    """The link to the active controller for forwarded requests; None if none are forwarded."""
    controller_tasks: ControllerTasks | None
    """What this node does while it is the active controller of several nodes; None where it votes alone."""

    @property
    def config(self) -> BrokerConfig:
        """The settings in force as of now; replaced as a whole."""
        ...

    @property
    def image(self) -> ClusterImage:
        """The cluster's metadata as of now; immutable, replaced as a whole."""
        ...


class Services(NodeServices, Protocol):
    """What a broker has beside that."""

    epoch: int
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
