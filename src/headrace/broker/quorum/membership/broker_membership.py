"""A broker as a member of its cluster: it registers, says every now and then that it is alive, and takes its leave.

The order of a start: registered (fenced), its own registration read back out of the metadata log, logs recovered,
unfenced; of a clean stop: the controller moves its leaderships away, and then lets it go. Source: KIP-631.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headrace.broker.quorum.port.controller import Controller, ControllerError
from headrace.broker.quorum.voter_links import DENIED_REMEDY
from headrace.broker.storage.storage_format import StorageError
from headrace.controller.heartbeats import Heartbeat, HeartbeatReply
from headrace.controller.membership import RegisterBroker
from headrace.env.node import settle
from headrace.wire.errors import ErrorCode

if TYPE_CHECKING:
    from asyncio import Future, Task

    from headrace.broker.quorum.driver import QuorumDriver
    from headrace.broker.quorum.port.broker_liveness import BrokerLiveness
    from headrace.broker.settings.dynamic_config import DynamicConfig
    from headrace.controller.brokers import Registration
    from headrace.env import Node
    from headrace.metadata.delta import ImageDelta
    from headrace.metadata.image import ClusterImage

STARTING_S: Final = 0.01
"""Between the heartbeats of a broker that waits to be let in."""
LEAVING_S: Final = 0.05
"""Between those of a broker that waits to be let go."""
AGAIN_S: Final = 0.1
"""How long a broker waits that no controller answered."""
LOGGED_AFTER_S: Final = 2.0
"""How long a broker that starts waits for a controller before it says so: an election may be under way."""
LEAVE_S: Final = 300.0
"""A broker that stops waits so long for its leaderships to go, and the active controller for others that stop."""

_FINAL: Final = frozenset(
    {ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REGISTRATION, ErrorCode.UNSUPPORTED_VERSION}
)
"""What another attempt to register would be answered again."""


def _text_of(error: ErrorCode) -> str:
    return f"{error.name}: {DENIED_REMEDY}" if error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else error.name


class Membership:
    """Keeps a broker registered and its session alive.

    `failed_directories` are those log directories of this broker that do not work.
    """

    def __init__(
        self,
        node: Node,
        controller: Controller,
        dynamic: DynamicConfig,
        quorum: QuorumDriver,
        liveness: BrokerLiveness,
        failed_directories: Callable[[], tuple[bytes, ...]],
    ) -> None:
        self.epoch = -1
        self._node = node
        self._controller = controller
        self._dynamic = dynamic
        self._quorum = quorum
        self._liveness = liveness
        self._failed_directories = failed_directories
        self._owner = node.owner("membership")
        self._log = node.logger("broker")
        self._id = dynamic.config.node_id
        self._ready = False
        self._leaving = False
        self._beating: Task[None] | None = None
        self._early: Future[None] | None = None
        self._has_news = False
        """Whether there is news that the heartbeat on its way does not have."""
        self._found: Future[None] = node.future()
        self._unfenced: Future[None] = node.future()
        self._released: Future[None] = node.future()
        self._heard_s = node.clock.monotonic()
        self._refusal = ErrorCode.NONE
        quorum.on_image(self._changed)

    # --- coming

    async def register(self, registration: Registration) -> None:
        """Returns when the controller has registered this broker, and this node has read it: it is fenced then.

        Raises StorageError where the controller refuses it for good, or none answers within
        initial.broker.registration.timeout.ms.
        """
        patience_s = self._dynamic.config.initial_broker_registration_timeout_ms / 1000
        began = self._node.clock.monotonic()
        why = ""
        while self.epoch < 0:
            try:
                reply = await self._controller.ask(RegisterBroker(registration))
                if reply.error is ErrorCode.NONE:
                    self.epoch = self._liveness.own_broker_epoch = reply.broker_epoch
                    break
                text = reply.message or _text_of(reply.error)
                if reply.error in _FINAL:
                    raise StorageError(f"the controller refuses this broker: {text}")
            except ControllerError as error:
                text = str(error)
            waited_s = self._node.clock.monotonic() - began
            if waited_s >= patience_s:
                raise StorageError(f"no controller registered this broker within {patience_s:g} s: {text}")
            if text != why and waited_s >= LOGGED_AFTER_S:
                why = text
                self._log.info("broker waits to be registered", why=why, until_s=patience_s)
            await asyncio.sleep(AGAIN_S)
        self._beating = self._owner.spawn(self._beat())
        self._look_for_itself()
        await self._found

    def _look_for_itself(self) -> None:
        known = self._quorum.image.brokers.get(self._id)
        if known is not None and known.epoch >= self.epoch:
            settle(self._found)

    def _changed(self, _old: ClusterImage, _new: ClusterImage, _delta: ImageDelta) -> None:
        if self.epoch >= 0:
            self._look_for_itself()

    async def join(self) -> None:
        """The logs of this broker are ready. Returns when it is unfenced: it may lead, and clients are sent to it."""
        self._ready = True
        self.heartbeat_now()
        await self._unfenced

    # --- staying

    def heartbeat_now(self) -> None:
        """There is news for the controller: it does not wait for its turn, but for the answer to a heartbeat that is on
        its way."""
        self._has_news = True
        if self._early is not None:
            settle(self._early)

    async def _beat(self) -> None:
        """Heartbeats, one at a time, until this broker is released."""
        while not self._released.done():
            reply = await self._heartbeat()
            self._take(reply)
            if reply is None or not self._has_news:  # without an answer another one at once would be one of many
                await self._pause(self._interval_s(reply))

    def _interval_s(self, reply: HeartbeatReply | None) -> float:
        if reply is None:
            return AGAIN_S
        if self._leaving:
            return LEAVING_S
        if not self._unfenced.done():
            return STARTING_S
        return self._dynamic.config.broker_heartbeat_interval_ms / 1000

    async def _pause(self, seconds: float) -> None:
        self._early = self._node.future()
        timer = self._owner.later(seconds, self.heartbeat_now)
        await self._early
        timer.cancel()
        self._early = None

    async def _heartbeat(self) -> HeartbeatReply | None:
        """The controller's answer; None without one."""
        self._has_news = False
        failed = self._failed_directories()
        request = Heartbeat(
            self._id, self.epoch, self._quorum.image.offset, not self._ready, self._leaving, failed, None
        )
        try:
            return await self._controller.ask(request)
        except ControllerError as error:
            self._log.debug("no answer to a heartbeat", why=error)
            return None

    def _take(self, reply: HeartbeatReply | None) -> None:
        now = self._node.clock.monotonic()
        if reply is None:
            if self._leaving and now - self._heard_s >= self._alone_s():
                self._release("no controller answers")
            return
        self._heard_s = now
        if reply.error is not self._refusal and reply.error is not ErrorCode.NONE:
            self._log.warning("the controller refuses a heartbeat", error=reply.error.name, epoch=self.epoch)
        self._refusal = reply.error
        if reply.error is not ErrorCode.NONE:
            return
        if not reply.is_fenced:
            settle(self._unfenced)
        if reply.should_shut_down and self._leaving:
            self._release("")

    def _alone_s(self) -> float:
        """How long a broker that stops waits for a controller that answers: as long as voters may need for another one.
        Where all stop at once, there is none."""
        config = self._dynamic.config
        return (config.controller_quorum_fetch_timeout_ms + 2 * config.controller_quorum_election_timeout_ms) / 1000

    def _release(self, why: str) -> None:
        if why:
            self._log.warning("broker stops without being fenced", why=why)
        settle(self._released)

    # --- going

    async def leave(self) -> None:
        """A clean stop: returns when this broker leads nothing any more, or waits in vain for a controller; at once
        where `controlled.shutdown.enable` is false."""
        if self._beating is not None and self._dynamic.config.controlled_shutdown_enable:
            self._leaving = True
            self._heard_s = self._node.clock.monotonic()
            self.heartbeat_now()
            timer = self._owner.later(LEAVE_S, self._release, "its leaderships were not moved in time")
            await self._released
            timer.cancel()
            await self._let_others_leave()

    async def _let_others_leave(self) -> None:
        """The active controller goes last: where several stop at once, those after it may be too few for another one,
        and would wait for it in vain. One that is dead it fences at the end of its session."""
        last = self._node.clock.monotonic() + LEAVE_S
        while self._quorum.decides and self._node.clock.monotonic() < last:
            others = [each for each in self._quorum.image.online_brokers() if each.id != self._id]
            if not any(each.in_controlled_shutdown for each in others):
                return
            await asyncio.sleep(LEAVING_S)

    async def close(self) -> None:
        """Sends nothing any more."""
        await self._owner.closed()
