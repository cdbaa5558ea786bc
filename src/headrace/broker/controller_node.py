"""A node with only the role `controller`: it votes in the metadata quorum, decides while it leads, and holds no
partition."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import TYPE_CHECKING, Any, Final

from headrace.broker.acl_watch import AclWatch, audit_of, authorizer_of, follower_of
from headrace.broker.monitoring import monitor_of_controller
from headrace.broker.net.client_quotas import ClientQuotas
from headrace.broker.net.listener import OpenListener
from headrace.broker.net.server import Server
from headrace.broker.quorum.membership.cluster_node import ClusterNode
from headrace.broker.quorum.membership.token_sweep import TokenSweep, sweep_of
from headrace.broker.quorum.metadata_start import lock_directories, open_quorum
from headrace.broker.requests.apis import CLUSTER
from headrace.broker.requests.dispatch import Dispatch
from headrace.broker.settings.dynamic_config import DynamicConfig
from headrace.broker.telemetry.cluster_events import ClusterEvents
from headrace.broker.telemetry.metrics import Registry
from headrace.broker.telemetry.request_errors import RequestErrors
from headrace.client.node_security import NodeSecurity
from headrace.security.authorizer import Authorizer
from headrace.version import __version__
from headrace.wire.apis import ApiKey

if TYPE_CHECKING:
    from headrace.broker.net.client_session import AnsweredConnection
    from headrace.broker.quorum.driver import QuorumDriver
    from headrace.broker.quorum.membership.controller_tasks import ControllerTasks
    from headrace.broker.quorum.port.controller import Controller
    from headrace.broker.quorum.port.controller_link import ControllerLink
    from headrace.broker.storage.storage_format import StorageLayout
    from headrace.config import BrokerConfig
    from headrace.env import DiskLock, Node
    from headrace.metadata.image import ClusterImage

SERVED_ALONE: Final = frozenset(
    {
        ApiKey.FETCH,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.API_VERSIONS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        *CLUSTER,
    }
)
"""APIs that need no part of a broker."""


class NoProducers:
    """A `net.ports.Pace` without producers."""

    behind = False

    def when_caught_up(self, callback: Callable[[], None]) -> None:
        """Raises AssertionError, because `behind` is never set."""
        raise AssertionError("nobody is behind")


class NoProduce:
    """A `net.ports.ShortProduce` for a node whose listeners take no Produce requests."""

    entries: Sized = ()
    shape: Any = None

    def add(
        self,
        connection: AnsweredConnection,
        frame: memoryview,
        version: int,
        correlation_id: int,
        client_id_length: int,
    ) -> bool:
        """Raises AssertionError."""
        raise AssertionError("Produce is not served")

    def add_alike(self, shape: Any, view: memoryview, at: int, stop: int, version: int, correlation_id: int) -> bool:
        """Raises AssertionError."""
        raise AssertionError("Produce is not served")

    def finish(self, connection: AnsweredConnection) -> None:
        """Raises AssertionError."""
        raise AssertionError("nothing was taken")


class ControllerNode:
    """The parts of a controller. `start` runs on a running event loop; `stop` ends it. `on_failure` is called when it
    cannot go on: its owner should stop it."""

    quorum: QuorumDriver
    controller: Controller
    local_controller: Controller
    layout: StorageLayout
    node_id: int
    cluster_id: str

    def __init__(self, config: BrokerConfig, node: Node) -> None:
        self.dynamic = DynamicConfig(config, None, node.logger("settings"))
        self.node = node
        self.node_security = NodeSecurity(lambda: self.config, node.disk.read_file, self.dynamic.warn)
        self._log = node.logger("controller")
        self.metrics = Registry()
        self._events = ClusterEvents(node.logger("cluster"), node.clock.monotonic, self.metrics)
        self.request_errors = RequestErrors(self.metrics)
        self.requests_owner = node.owner("requests")
        self.audit = audit_of(config, node, self.metrics)
        self.authorizer: Authorizer = authorizer_of(config, self.audit)
        self.random = node.entropy.random()
        self.server = Server(
            node,
            lambda: self.config,
            Dispatch(self, NoProduce(), SERVED_ALONE),
            NoProducers(),
            self.metrics,
            self.request_errors,
        )
        self.long_answers = self.server.long_answers
        self.quotas = ClientQuotas(node.clock, lambda: self.config, self.server.other_quotas)
        self.node_id = config.node_id
        self.cluster_id = ""
        self.on_failure: Callable[[str], None] | None = None
        self.controller_link: ControllerLink | None = None
        self.controller_tasks: ControllerTasks | None = None
        self._cluster_node: ClusterNode | None = None
        self._token_sweep: TokenSweep | None = None
        self._locks: list[DiskLock] = []
        self.metrics.gauge("defects", lambda: node.defects.count)
        self.monitor = monitor_of_controller(node, lambda: self.config, self.metrics, lambda: self.quorum)

    @property
    def config(self) -> BrokerConfig:
        """Settings in force; replaced as a whole."""
        return self.dynamic.config

    @property
    def image(self) -> ClusterImage:
        """Committed metadata of the cluster, as far as this node knows."""
        return self.quorum.image

    @property
    def listeners(self) -> list[OpenListener]:
        """Open listeners."""
        return self.server.listeners

    async def start(self) -> None:
        """Starts the controller; returns when other nodes are served. Raises StorageError, CannotListen or OSError,
        after releasing everything."""
        self._log.info("controller starts", version=__version__, node=self.node_id)
        quorum: QuorumDriver | None = None
        try:
            self.node_security.check()
            for endpoint in self.config.controller_listeners:
                self.server.listen(endpoint, controller=True)
            await self.server.logins_ready()
            self.monitor.listen()
            self.server.shared.times = self.monitor.times
            self._locks = lock_directories(self.node, self.config)
            quorum, self.layout = open_quorum(self.node, self.config)
            self.quorum = quorum
            quorum.on_failure = self.fail
            self.monitor.follows(quorum)
            self.dynamic.start(lambda: quorum.image)
            quorum.on_image(self.dynamic.changed)
            quorum.on_image(lambda *_: self.node_security.follow())
            self.server.settings_changed()
            quorum.on_image(lambda *_: self.server.settings_changed())
            quorum.on_image(self._events.changed)
            self.quotas.take(quorum.image)
            quorum.on_image(self.quotas.changed)
            acls = follower_of(self.authorizer, quorum)
            if acls is None:
                quorum.on_image(AclWatch(self).changed)
            elif quorum.is_alone:
                acls.is_current()
            self.cluster_id = self.layout.cluster_id
            self._cluster_node = ClusterNode(self.node, quorum, self.dynamic, self.node_security)
            self.controller, self.local_controller = self._cluster_node.controller, self._cluster_node.local
            self.controller_tasks = self._cluster_node.tasks
            self._token_sweep = sweep_of(self)
            self.node_security.settle()
            self.server.serve()
            self._cluster_node.start()
            self.monitor.serves()
        except BaseException:
            self.monitor.close()
            if self._token_sweep is not None:
                self._token_sweep.close()
            await self.server.close()
            if self._cluster_node is not None:
                await self._cluster_node.close()
            if quorum is not None:
                await quorum.close()
            self._unlock()
            await self.node.close()
            raise
        for opened in self.server.listeners:
            self._log.info("listening", listener=opened.name, host=opened.host, port=opened.port)

    async def stop(self) -> None:
        """Stops cleanly: a leader hands over its leadership."""
        self.monitor.ends()
        self.server.stop_listening()
        if self._token_sweep is not None:
            self._token_sweep.close()
        if self._cluster_node is not None:
            await self._cluster_node.close()
        await self.quorum.close()
        await self.server.close()
        self.monitor.close()
        self._unlock()
        self._log.info("controller stopped")
        await self.node.close()

    def _unlock(self) -> None:
        for lock in self._locks:
            lock.release()

    def fail(self, why: str) -> None:
        """Reports that the node cannot go on."""
        self._log.error("controller fails", why=why)
        self.monitor.failed(why)
        if self.on_failure is not None:
            self.on_failure(why)
