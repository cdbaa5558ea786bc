"""What the active controller does of its own accord: it watches the brokers' sessions, returns leaderships to preferred
replicas, and marks the time in a log that nobody writes to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from headrace.broker.quorum.deaths import DeathWatch
from headrace.controller.requests import BalanceLeaders, ElectMissing, ElectUnclean, FenceBrokers
from headrace.controller.sessions import BrokerSessions
from headrace.machine import Decision
from headrace.wire.messages.metadata_records import NoOpRecord

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.broker.quorum.driver import QuorumDriver
    from headrace.broker.quorum.local_controller import LocalController
    from headrace.config import BrokerConfig
    from headrace.controller.requests import ControllerRequest
    from headrace.env import Node

CHECKS_A_SESSION = 8
"""How often sessions are looked at while one lasts."""
UNHEARD_S = 0.25
"""How long a new controller waits for the brokers to come by, before it looks for those that do not."""
BALANCED_AT_ONCE = 1000
"""Leaderships that return in one decision."""


class HeartbeatClient(Protocol):
    """The client session of a broker that sends heartbeats."""

    on_closed: Callable[[], None] | None


class Duties:
    """See the module. `sessions` are those of the brokers while this node is the active controller."""

    def __init__(self, node: Node, driver: QuorumDriver, config: Callable[[], BrokerConfig]) -> None:
        self.sessions: BrokerSessions | None = None
        self.controller: LocalController
        self.own_broker_epoch: Callable[[], int] = lambda: -1
        """Under which epoch this process is registered as a broker; -1: it is not, or not yet."""
        self._node = node
        self._driver = driver
        self._config = config
        self._owner = node.owner("duties of the controller")
        self._log = node.logger("quorum")
        self._term = 0
        self._marked = -1
        self._fenced: set[tuple[int, int]] = set()
        """The brokers, with their epochs, of which it is being decided that they are fenced."""
        self._heard: set[int] = set()
        """The brokers that this controller has heard of since it is active."""
        self._deaths = DeathWatch(node, lambda: driver.image, lambda: config().inter_broker_listener, self._dead)
        driver.on_decides = self._changed

    def _changed(self) -> None:
        """This node begins to decide, or decides no more."""
        self._term += 1
        if not self._driver.decides:
            self.sessions = None
            return
        config = self._config()
        self.sessions = BrokerSessions(config.broker_session_timeout_ms)
        self.sessions.begin(self._driver.image, self.now_ms())
        self._forget_predecessor(self.sessions)
        self._heard.clear()
        if self._driver.raft.bereft_of is not None:
            self.suspect(self._driver.raft.bereft_of)
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
        if self._driver.is_alone and own is not None and own.epoch != self.own_broker_epoch():
            sessions.forget(own.id, own.epoch)

    def _again(self, seconds: float, duty: Callable[[], None]) -> None:
        """Does it every so many seconds for as long as this node decides without a break."""
        term = self._term

        def due() -> None:
            if term == self._term and self._driver.decides:
                duty()
                self._owner.later(seconds, due)

        self._owner.later(seconds, due)

    def now_ms(self) -> int:
        """The time of sessions: a clock that nobody sets."""
        return int(self._node.clock.monotonic() * 1000)

    # --- deaths

    def heard(self, broker_id: int, broker_epoch: int, client: HeartbeatClient) -> None:
        """Takes note of a broker's heartbeat: the broker is suspected when its connection ends."""
        self._heard.add(broker_id)
        self._deaths.heard(broker_id, broker_epoch)
        client.on_closed = partial(self.suspect, broker_id)

    def suspect(self, broker_id: int) -> None:
        """There is a sign that a broker's process is no more."""
        if self._driver.decides and self._config().early_fencing_enable:
            self._deaths.suspect(broker_id)

    def _look_for_deaths(self, term: int) -> None:
        """A new controller never had the connections of those that died before it was elected."""
        if term == self._term:
            for broker in self._driver.image.online_brokers():
                if broker.id not in self._heard:
                    self.suspect(broker.id)

    def _dead(self, broker_id: int, broker_epoch: int) -> None:
        if self.sessions is not None and self._driver.decides:
            self._log.warning("broker is dead, and is fenced: its listener refuses connections", broker=broker_id)
            self.sessions.forget(broker_id, broker_epoch)
            self._fence([(broker_id, broker_epoch)])

    # --- what is done every now and then

    def _check_sessions(self) -> None:
        assert self.sessions is not None
        expired = [
            each for each in self.sessions.expired(self._driver.image, self.now_ms()) if each not in self._fenced
        ]
        if expired:
            for broker, _ in expired:
                self._log.warning("broker is silent, and is fenced", broker=broker)
            self._fence(expired)

    def _fence(self, brokers: list[tuple[int, int]]) -> None:
        self._fenced.update(brokers)
        self._decide(FenceBrokers(brokers)).add_done_callback(lambda _: self._fenced.difference_update(brokers))

    def _mark_time(self) -> None:
        """A record without an effect, so that whoever follows the log knows that it is up to date."""
        end = self._driver.raft.log.end_offset
        if end == self._marked:
            _look_at_it(self._driver.submit(lambda _: Decision(None, [NoOpRecord()])))
            end += 1
        self._marked = end

    def _balance(self) -> None:
        if self._config().auto_leader_rebalance_enable:
            self._decide(BalanceLeaders(BALANCED_AT_ONCE))

    def _elect_missing(self, term: int) -> None:
        """The controller before may have ended while it elected what a broker that came back can lead."""
        if term == self._term and self._driver.decides:
            self._decide(ElectMissing())

    def _elect_unclean(self) -> None:
        self._decide(ElectUnclean(BALANCED_AT_ONCE))

    def _decide(self, request: ControllerRequest[Any]) -> Future[Any]:
        asked = self.controller.ask(request)
        asked.add_done_callback(self._decided)
        return asked

    def _decided(self, asked: Future[Any]) -> None:
        if not asked.cancelled() and (error := asked.exception()) is not None:
            self._log.warning("the controller cannot carry out a duty now", why=error)

    async def close(self) -> None:
        """Ends every duty. The sessions stay: brokers are answered for as long as this node decides."""
        self._term += 1
        await self._deaths.close()
        await self._owner.closed()


def _look_at_it(asked: Future[Any]) -> None:
    """Nobody waits for it, and another leader writes its own."""
    asked.add_done_callback(lambda done: done.cancelled() or done.exception())
