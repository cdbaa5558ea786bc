"""One broker: its parts, and the order in which they start and stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from headrace.broker.acl_watch import AclWatch, audit_of, authorizer_of, follower_of
from headrace.broker.coordinators.group_coordinator import GroupCoordinator
from headrace.broker.coordinators.local_markers import LocalMarkers
from headrace.broker.coordinators.marker_sender import MarkerSender
from headrace.broker.coordinators.transaction_coordinator import TransactionCoordinator
from headrace.broker.coordinators.verifier import Verifier
from headrace.broker.monitoring import monitor_of_broker
from headrace.broker.net.client_quotas import ClientQuotas
from headrace.broker.net.listener import OpenListener
from headrace.broker.net.server import Server
from headrace.broker.partitions.background import Background
from headrace.broker.partitions.directory_assignment import DirectoryAssignment
from headrace.broker.partitions.replica_manager import ReplicaManager
from headrace.broker.partitions.replica_moves import ReplicaMoves
from headrace.broker.quorum.membership.token_sweep import TokenSweep, sweep_of
from headrace.broker.quorum.metadata_start import deregister, open_quorum, register, registration
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.quorum.port.local_controller import LocalController
from headrace.broker.quorum.port.producer_ids import ProducerIds
from headrace.broker.requests.apis import CLUSTER, SERVED
from headrace.broker.requests.bad_batches import BadBatches
from headrace.broker.requests.dispatch import Dispatch
from headrace.broker.requests.opening import Openings
from headrace.broker.requests.produce_run import ProduceRun
from headrace.broker.requests.waiting_fetches import Fetches
from headrace.broker.settings.dynamic_config import DynamicConfig
from headrace.broker.storage.storage_format import StorageError, StorageLayout
from headrace.broker.telemetry.cluster_events import ClusterEvents
from headrace.broker.telemetry.metrics import Registry
from headrace.broker.telemetry.request_errors import RequestErrors
from headrace.client.node_security import NodeSecurity
from headrace.log.manager import LogManager
from headrace.metadata import adoption, levels
from headrace.replicas.sessions import SessionCache
from headrace.security.authorizer import Authorizer
from headrace.version import __version__

if TYPE_CHECKING:
    from headrace.broker.quorum.driver import QuorumDriver
    from headrace.broker.quorum.membership.broker_membership import Membership
    from headrace.broker.quorum.membership.cluster_node import ClusterNode
    from headrace.broker.quorum.membership.controller_tasks import ControllerTasks
    from headrace.broker.quorum.port.controller import Controller
    from headrace.broker.quorum.port.controller_link import ControllerLink
    from headrace.broker.self_topics import SelfTopics
    from headrace.client.security import ConnectionSecurity
    from headrace.config import BrokerConfig, TopicConfig
    from headrace.controller.brokers import Registration
    from headrace.controller.in_sync import AlterPartitions, PartitionsAltered
    from headrace.env import Node
    from headrace.metadata.delta import ImageDelta
    from headrace.metadata.image import ClusterImage

DRAIN_S: Final = 0.05
"""Time that a stopping broker gives its last answers to leave."""


class Broker:
    """The parts of a broker, through which handlers and drivers reach each other. `start` runs on a running event loop;
    `stop` ends it.

    `on_failure` is called when the broker cannot go on (every log directory failed): its owner should stop it.
    """

    quorum: QuorumDriver
    controller: Controller
    local_controller: Controller
    layout: StorageLayout
    node_id: int
    cluster_id: str
    epoch: int
    producer_ids: ProducerIds
    on_failure: Callable[[str], None] | None = None
    _token_sweep: TokenSweep | None = None

    def __init__(self, config: BrokerConfig, node: Node) -> None:
        self.node = node
        self.node_id = config.node_id
        self._log = node.logger("broker")
        self.metrics = Registry()
        self._events = ClusterEvents(node.logger("cluster"), node.clock.monotonic, self.metrics)
        self.request_errors = RequestErrors(self.metrics)
        self.requests_owner = node.owner("requests")
        self.bad_batches = BadBatches(node.clock, node.logger("requests"), self.metrics)
        self.fetches = Fetches(self.metrics, config.connections_max_waiting_fetches)
        self.audit = audit_of(config, node, self.metrics)
        self.authorizer: Authorizer = authorizer_of(config, self.audit)
        self.random = node.entropy.random()
        self.fetch_sessions = SessionCache(config.max_incremental_fetch_session_cache_slots)
        self.logs = LogManager(node, config)
        self.dynamic = DynamicConfig(config, self.logs, node.logger("settings"))
        self.node_security = NodeSecurity(lambda: self.config, node.disk.read_file, self.dynamic.warn)
        self.replicas = ReplicaManager(
            node,
            config,
            self.metrics,
            self.logs,
            self,
            cannot_go_on=self.fail,
            alter_partitions=self._alter_partitions,
        )
        keys = SERVED if config.is_by_itself else {*SERVED, *CLUSTER}
        dispatch = Dispatch(self, ProduceRun(self), keys)
        self.server = Server(
            node, lambda: self.config, dispatch, self.replicas.flusher, self.metrics, self.request_errors
        )
        self.long_answers = self.server.long_answers
        self.quotas = ClientQuotas(node.clock, lambda: self.config, self.server.other_quotas)
        self.openings = Openings(node, self.server.requests_budget, self.metrics)
        self.groups = GroupCoordinator(
            config=lambda: self.config,
            partitions=self.replicas,
            node=node,
            node_id=config.node_id,
            metrics=self.metrics,
        )
        self.local_markers = LocalMarkers(node, self.replicas, self.groups)
        self.transactions = self._make_transactions()
        self.verifier = self._make_verifier()
        failures = self.replicas.failures
        self.background = Background(node, self.metrics, self.logs, failures.directory_failed, failures.logs_lost)
        self.moves = self._make_moves()
        self.replicas.on_opened = self.moves.resume
        self.cluster_id, self.epoch = "", -1
        self.controller_link: ControllerLink | None = None
        self.controller_tasks: ControllerTasks | None = None
        self._cluster_node: ClusterNode | None = None
        self._membership: Membership | None = None
        self._make_gauges()
        self.self_topics = self._make_self_topics() if config.self_topics else None
        self.monitor = monitor_of_broker(
            node, lambda: self.config, self.metrics, self.logs, self.replicas, self.groups, lambda: self.image
        )

    def _make_gauges(self) -> None:
        self.metrics.gauge("defects", lambda: self.node.defects.count)
        self.metrics.gauge("fetch.sessions", lambda: len(self.fetch_sessions))
        self.metrics.gauge("fetch.session_partitions", lambda: self.fetch_sessions.partitions)

    def _make_transactions(self) -> TransactionCoordinator:
        markers = MarkerSender(
            self.node,
            self.metrics,
            config=lambda: self.config,
            node_id=self.node_id,
            write_local=self.local_markers.write,
            security=self.node_security.to_brokers,
        )
        return TransactionCoordinator(
            config=lambda: self.config,
            partitions=self.replicas,
            fresh_id=self._fresh_producer_id,
            markers=markers,
            node=self.node,
            node_id=self.node_id,
            metrics=self.metrics,
        )

    def _make_moves(self) -> ReplicaMoves:
        replicas = self.replicas
        return ReplicaMoves(
            self.node,
            self.logs,
            replicas.find_held,
            replicas.failures,
            replicas.flusher,
            replicas.moved,
            replicas.throttles.moves,
        )

    def _make_self_topics(self) -> SelfTopics:
        from headrace.broker.quorum.port.topics import ControllerTopics
        from headrace.broker.self_topics import SelfTopics

        return SelfTopics(
            self.node,
            self.metrics,
            self.replicas,
            config=lambda: self.config,
            image=lambda: self.image,
            topics=lambda: ControllerTopics(self.controller),
        )

    def _make_verifier(self) -> Verifier:
        return Verifier(
            self.node,
            self.node_id,
            lambda: self.config,
            lambda: self.image,
            self.metrics,
            self.transactions,
            self.node_security.to_brokers,
        )

    @property
    def config(self) -> BrokerConfig:
        """Settings in force; replaced as a whole."""
        return self.dynamic.config

    @property
    def image(self) -> ClusterImage:
        """Current metadata of the cluster; immutable, replaced as a whole."""
        return self.quorum.image

    def topic_config(self, topic: str) -> TopicConfig:
        """Returns the settings in force for a topic."""
        return self.dynamic.topic(topic)

    def connection_security(self) -> ConnectionSecurity:
        """Returns the security of connections to other brokers."""
        return self.node_security.to_brokers()

    @property
    def listeners(self) -> list[OpenListener]:
        """The open listeners, those for clients first."""
        return self.server.listeners

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self.server.listeners[0].port

    async def start(self) -> None:
        """Starts the broker; returns when clients are served.

        Raises LogDirLocked, StorageError, CheckpointError, ConfigError or OSError, each with a message of one line,
        after releasing everything.
        """
        began = self.node.clock.monotonic()
        directories = ",".join(self.config.log_dirs)
        self._log.info("broker starts", version=__version__, node=self.node_id, directories=directories)
        quorum: QuorumDriver | None = None
        try:
            await self._listen()  # first, so that a taken address leaves no formatted directory behind
            self.monitor.listen()
            self.server.shared.times = self.monitor.times
            self.logs.lock()
            quorum, self.layout = open_quorum(self.node, self.config)
            self.quorum = quorum
            for path, error in self.layout.failed.items():
                self._log.error("log directory failed", directory=path, why=error)
                self.logs.directories[path].fail(error)
            self.quorum.on_failure = self.fail
            acls = follower_of(self.authorizer, quorum)
            self.monitor.follows(quorum)
            self.cluster_id = self.layout.cluster_id
            self._reach_controller(quorum)
            self.producer_ids = ProducerIds(self.controller, self.node_id, self.requests_owner)
            self.assignments = DirectoryAssignment(
                self.controller,
                lambda: self.image,
                self.node_id,
                self.layout.directory_ids,
                self.node.owner("directory assignment"),
            )
            self.logs.load()
            found = {"topics": sum(1 for _ in self.image.topics), "offset": self.image.offset}
            # The high watermark of a log with other voters is known only when the quorum has a leader.
            known = found if self.image.offset >= 0 else {}
            self._log.info("metadata read", cluster=self.cluster_id, **known, shutdown=self._last_shutdown())
            await self._enter()
            if acls is not None:
                acls.is_current()
            self.dynamic.start(lambda: self.image)
            await self._listen()  # stored settings may name other listeners than the file
            self.quorum.on_image(self._settings_changed)
            self.quorum.on_image(self._events.changed)
            self.quotas.take(self.image)
            self.quorum.on_image(self.quotas.changed)
            recovery_threads = self.config.num_recovery_threads_per_data_dir
            await self.replicas.start(
                self.quorum.on_image, self.layout.directory_ids, self.assignments, recovery_threads
            )
            await self._join()
            self._say_what_is_not_served()
            # Only now: after a crash the registration raises every leader epoch, and all would be loaded twice.
            self.groups.start(self.quorum)
            self.transactions.start(self.quorum)
            if self.self_topics is not None:
                await self.self_topics.start()
            self._must_be_served()  # starting may have taken a while
            if acls is None:
                self.quorum.on_image(AclWatch(self).changed)
            self._serve()
        except BaseException:
            await self._give_up(quorum)
            raise
        self.background.start()
        for opened in self.server.listeners:
            self._log.info("listening", listener=opened.name, host=opened.host, port=opened.port)
        self._log.info("broker serves", epoch=self.epoch, after_ms=self._since_ms(began))

    def _last_shutdown(self) -> str:
        """Returns how the broker's previous run ended: `clean`, `unclean` or `none`."""
        if self.node_id not in self.image.brokers:
            return "none"
        return "clean" if self.logs.was_clean else "unclean"

    async def _give_up(self, quorum: QuorumDriver | None) -> None:
        """Releases everything after a failed start, even if some parts fail to close."""
        try:
            if self.self_topics is not None:
                self.self_topics.close()
            await self.moves.stop()
            self.monitor.close()
            self.verifier.close()
            await self.replicas.stop_fetching()
            self._stop_sweeping()
            await self.server.close()
            await self._leave_cluster()
            if quorum is not None:
                await quorum.close()
        finally:
            self.logs.unlock()
            await self.node.close()

    def _since_ms(self, began: float) -> int:
        return round((self.node.clock.monotonic() - began) * 1000)

    def _reach_controller(self, quorum: QuorumDriver) -> None:
        """Joins the quorum, if it can have other nodes: from here on this node exchanges messages with them."""
        if self.config.is_by_itself:
            alone = LocalController(quorum, self.dynamic, self.node.entropy)
            self.controller = self.local_controller = alone
            return
        # Imported only if other nodes are possible: a single broker starts faster without it.
        from headrace.broker.quorum.membership.cluster_node import ClusterNode

        self._cluster_node = ClusterNode(self.node, quorum, self.dynamic, self.node_security)
        self.controller_link, self.controller_tasks = self._cluster_node.forwarding, self._cluster_node.tasks
        self.controller, self.local_controller = self._cluster_node.controller, self._cluster_node.local
        self.server.serve_controllers()
        self._cluster_node.start()

    def _alter_partitions(self, request: AlterPartitions) -> Awaitable[PartitionsAltered]:
        return self.controller.ask(request)

    def _fresh_producer_id(self) -> int | None:
        return self.producer_ids.take_or_fetch()

    def _registration(self) -> Registration:
        ports = {opened.name: opened.port for opened in self.server.listeners}
        online = self.logs.online()
        epochs = {home.broker_epoch for home in online}
        previous = epochs.pop() if self.logs.was_clean and len(epochs) == 1 else -1
        return registration(self.node, self.config, self.layout, ports, [home.path for home in online], previous)

    async def _enter(self) -> None:
        """Registers the broker in a cluster; it stays fenced until `_join`. The metadata are current when this returns.

        Raises StorageError if the metadata contain something that this version does not serve.
        """
        if self._cluster_node is None:
            return
        from headrace.broker.quorum.membership.broker_membership import Membership

        membership = self._membership = Membership(
            self.node,
            self._cluster_node.controller,
            self.dynamic,
            self.quorum,
            self._cluster_node.liveness,
            self._failed_directories,
        )
        self._cluster_node.controller.heartbeat_now = membership.heartbeat_now
        await self._membership.register(self._registration())
        self.epoch = self._membership.epoch
        self._must_be_served()

    def _must_be_served(self) -> None:
        if reasons := adoption.obstacles(self.image, enforces_acls=bool(self.config.authorizer_class_name)):
            raise StorageError(f"cluster {self.cluster_id} cannot be joined: {'; '.join(reasons)}")

    def _failed_directories(self) -> tuple[bytes, ...]:
        online = {home.path for home in self.logs.online()}
        return tuple(id_ for path, id_ in self.layout.directory_ids.items() if path not in online)

    async def _join(self) -> None:
        """Unfences the broker, whose logs are ready: it may lead. Raises StorageError if the registration fails."""
        self._token_sweep = sweep_of(self)
        if self._membership is not None:
            await self._membership.join()
            return
        try:
            self.epoch = await register(self.controller, self._registration(), was_clean=self.logs.was_clean)
        except ControllerError as error:
            raise StorageError(f"the broker cannot register: {error}") from error

    def _say_what_is_not_served(self) -> None:
        """Logs the features that the cluster has finalized and this broker does not serve; another broker would."""
        found = {name: level for name in levels.NOT_SERVED if (level := self.image.features.levels.get(name, 0))}
        if found:
            named = ", ".join(f"{name} {level}" for name, level in found.items())
            self._log.info("features are finalized that this broker preserves and does not serve yet", features=named)

    async def _leave_cluster(self) -> None:
        if self._membership is not None:
            await self._membership.close()
        if self._cluster_node is not None:
            await self._cluster_node.close()

    async def _listen(self) -> None:
        """Binds the listeners of the current settings, closes others, and waits for their login sources. Raises
        CannotListen, and ConfigError if keys or logins cannot be used, including those for connections to other
        nodes."""
        self.node_security.check()
        wanted = [(endpoint, False) for endpoint in self.config.listeners]
        wanted += [(endpoint, True) for endpoint in self.config.controller_listeners]
        for opened in list(self.server.listeners):
            if opened.endpoint not in [endpoint for endpoint, _ in wanted]:
                self.server.unlisten(opened)
        bound = [opened.endpoint for opened in self.server.listeners]
        for endpoint, controller in wanted:
            if endpoint not in bound:
                self.server.listen(endpoint, controller=controller)
        self.server.settings_changed()
        await self.server.logins_ready()

    def _serve(self) -> None:
        self.node_security.settle()
        self.server.serve()
        self.monitor.serves()

    def _settings_changed(self, old: ClusterImage, new: ClusterImage, delta: ImageDelta) -> None:
        self.dynamic.changed(old, new, delta)
        self.node_security.follow()
        self.server.settings_changed()

    async def stop(self) -> None:
        """Shuts down cleanly: accepts nothing more, answers requests in flight, closes every log and marks it as
        clean."""
        began = self.node.clock.monotonic()
        self._log.info("broker stops", connections=len(self.server.connections))
        self.monitor.ends()
        if self._membership is not None:
            await self._membership.leave()
        self.server.stop_listening()
        self.verifier.close()
        self._stop_sweeping()
        await self.transactions.stop()
        await self.groups.stop()
        await self.moves.stop()
        if self.self_topics is not None:
            await self.self_topics.stop()
        await self.replicas.stop_fetching()
        self.replicas.stop()
        await asyncio.sleep(DRAIN_S if self.server.connections else 0)
        await self.server.close()
        await self.background.stop()
        if self._membership is None and self.epoch >= 0:
            await self._deregister()
        await self._leave_cluster()
        await self.quorum.close()
        await self.node.workers.run(lambda: self.logs.shutdown(self.epoch))
        self.monitor.close()
        self._log.info("broker stopped", after_ms=self._since_ms(began))
        await self.node.close()

    def _stop_sweeping(self) -> None:
        if self._token_sweep is not None:
            self._token_sweep.close()

    async def _deregister(self) -> None:
        try:
            await deregister(self.controller, self.node_id)
        except ControllerError as error:
            self._log.warning("broker stops without being fenced", why=error)

    def fail(self, why: str) -> None:
        """Reports that the broker cannot go on."""
        self._log.error("broker fails", why=why)
        self.monitor.failed(why)
        if self.on_failure is not None:
            self.on_failure(why)
