"""The periodic tasks of the active controller: it watches the brokers' sessions, fences dead brokers, returns
leaderships to preferred replicas, and marks the time in a log that nobody writes to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from headrace.broker.quorum.membership.failure_detector import FailureDetector
from headrace.controller.leaders import BalanceLeaders, ElectMissing, ElectUnclean
from headrace.controller.membership import FenceBrokers
from headrace.controller.sessions import BrokerSessions
from headrace.machine import Decision
from headrace.wire.messages.metadata_records import NoOpRecord

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.broker.quorum.driver import QuorumDriver
    from headrace.broker.quorum.port.broker_liveness import BrokerLiveness
    from headrace.broker.quorum.port.local_controller import LocalController
    from headrace.broker.settings.dynamic_config import DynamicConfig
    from headrace.controller.context import ControllerRequest
    from headrace.env import Node

CHECKS_A_SESSION = 8
"""How often sessions are checked while one lasts."""
UNHEARD_S = 0.25
"""How long a new controller waits for the brokers to come by, before it looks for those that do not."""
BALANCED_AT_ONCE = 1000
"""Leaderships that return in one decision."""


class HeartbeatClient(Protocol):
    """The client session of a broker that sends heartbeats."""

    on_closed: Callable[[], None] | None


class ControllerTasks:
    """The tasks of one node, while it is the active controller."""

    def __init__(
        self,
        node: Node,
        driver: QuorumDriver,
        dynamic: DynamicConfig,
        controller: LocalController,
        liveness: BrokerLiveness,
    ) -> None:
        self._driver = driver
        self._dynamic = dynamic
        self._controller = controller
        self._liveness = liveness
        self._detector = FailureDetector(node)
        self._owner = node.owner("controller tasks")
        self._log = node.logger("quorum")
        self._term = 0
        self._marked = -1
        self._fenced: set[tuple[int, int]] = set()
        """Brokers, with their epochs, whose fencing is being decided."""
        self._heard: set[int] = set()
        """Brokers that this controller has heard of since it is active."""
        driver.on_decides = self._changed

    def _changed(self) -> None:
        """This node begins to decide, or no longer does."""
        self._term += 1
        if not self._driver.decides:
            self._liveness.sessions = None
            return
        config = self._dynamic.config
        sessions = self._liveness.sessions = BrokerSessions(config.broker_session_timeout_ms)
        sessions.begin(self._driver.image, self._liveness.now_ms())
        self._forget_predecessor(sessions)
        self._heard.clear()
        if self._driver.raft.lost_leader_id is not None:
            self.suspect(self._driver.raft.lost_leader_id)
        self._owner.soon(self._elect_missing, self._term)
        self._owner.later(UNHEARD_S, self._look_for_deaths, self._term)
        self._again(config.broker_session_timeout_ms / 1000 / CHECKS_A_SESSION, self._check_sessions)
        if config.metadata_max_idle_interval_ms:
            self._again(config.metadata_max_idle_interval_ms / 1000, self._mark_time)
        self._again(config.leader_imbalance_check_interval_seconds, self._balance)
        self._again(config.unclean_leader_election_interval_ms / 1000, self._elect_unclean)

    def _forget_predecessor(self, sessions: BrokerSessions) -> None:
        """Where this node votes alone, whatever was registered as this node before it was started is dead: this process
        has its directories. Beside others it is asked like them: who died last should be the last that is fenced."""
        own = self._driver.image.brokers.get(self._driver.node_id)
        if self._driver.is_alone and own is not None and own.epoch != self._liveness.own_broker_epoch:
            sessions.forget(own.id, own.epoch)

    def _again(self, seconds: float, task: Callable[[], None]) -> None:
        """Runs a task at an interval, for as long as this node decides without a break."""
        term = self._term

        def due() -> None:
            if term == self._term and self._driver.decides:
                task()
                self._owner.later(seconds, due)

        self._owner.later(seconds, due)

    # --- dead brokers

    def heard(self, broker_id: int, broker_epoch: int, connection: HeartbeatClient) -> None:
        """A broker's heartbeat came over a connection."""
        self._heard.add(broker_id)
        self._detector.heard(broker_id, broker_epoch)
        connection.on_closed = partial(self.suspect, broker_id)

    def suspect(self, broker_id: int) -> None:
        """There is a sign that a broker's process is dead."""
        if self._driver.decides and self._dynamic.config.early_fencing_enable:
            self._owner.spawn(self._probe(broker_id))

    async def _probe(self, broker_id: int) -> None:
        broker = self._driver.image.brokers.get(broker_id)
        if broker is None or not await self._detector.is_dead(broker, self._dynamic.config.inter_broker_listener):
            return
        now, sessions = self._driver.image.brokers.get(broker_id), self._liveness.sessions
        if now is None or now.fenced or now.epoch != broker.epoch:
            return  # it has registered again meanwhile, or is fenced
        self._detector.declare_dead(broker_id, broker.epoch)
        if sessions is not None and self._driver.decides:
            self._log.warning("broker is dead, and is fenced: its listener refuses connections", broker=broker_id)
            sessions.forget(broker_id, broker.epoch)
            self._fence([(broker_id, broker.epoch)])

    def _look_for_deaths(self, term: int) -> None:
        """A new controller never had the connections of those that died before it was elected."""
        if term == self._term:
            for broker in self._driver.image.online_brokers():
                if broker.id not in self._heard:
                    self.suspect(broker.id)

    # --- periodic tasks

    def _check_sessions(self) -> None:
        liveness = self._liveness
        assert liveness.sessions is not None
        silent = liveness.sessions.expired(self._driver.image, liveness.now_ms())
        expired = [each for each in silent if each not in self._fenced]
        if expired:
            for broker, _ in expired:
                self._log.warning("broker is silent, and is fenced", broker=broker)
            self._fence(expired)

    def _fence(self, brokers: list[tuple[int, int]]) -> None:
        self._fenced.update(brokers)
        self._decide(FenceBrokers(brokers)).add_done_callback(lambda _: self._fenced.difference_update(brokers))

    def _mark_time(self) -> None:
        """Writes a no-op record, so that followers of the log know that they are up to date (KIP-835)."""
        end = self._driver.raft.log.end_offset
        if end == self._marked:
            _look_at_it(self._driver.submit(lambda _: Decision(None, [NoOpRecord()])))
            end += 1
        self._marked = end

    def _balance(self) -> None:
        if self._dynamic.config.auto_leader_rebalance_enable:
            self._decide(BalanceLeaders(BALANCED_AT_ONCE))

    def _elect_missing(self, term: int) -> None:
        """The controller before may have ended while it elected what a broker that came back can lead."""
        if term == self._term and self._driver.decides:
            self._decide(ElectMissing())

    def _elect_unclean(self) -> None:
        self._decide(ElectUnclean(BALANCED_AT_ONCE))

    def _decide(self, request: ControllerRequest[Any]) -> Future[Any]:
        asked = self._controller.ask(request)
        asked.add_done_callback(self._decided)
        return asked

    def _decided(self, asked: Future[Any]) -> None:
        if not asked.cancelled() and (error := asked.exception()) is not None:
            self._log.warning("the controller cannot carry out a task now", why=error)

    async def close(self) -> None:
        """Ends every task. The sessions stay: brokers are answered for as long as this node decides."""
        self._term += 1
        self._detector.close()
        await self._owner.closed()


def _look_at_it(asked: Future[Any]) -> None:
    """Nobody waits for it, and another leader writes its own."""
    asked.add_done_callback(lambda done: done.cancelled() or done.exception())
