"""Checks that a broker's session lasts as long as the active controller's own clock says, whatever all other clocks
show.

It is alive while less than its timeout has passed since the controller last received a heartbeat, and expires after
that. The time that has passed for the controller is known only within the drift of its clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from headrace.controller.sessions import BrokerSessions
from headrace.sim.clock import RATES
from headrace.sim.moments import after_each, before_each, in_place

if TYPE_CHECKING:
    from headrace.metadata.image import ClusterImage
    from headrace.sim.world import World

MARGIN_S: Final = 0.2
"""Between the moment that a decision is about and the one at which it is made."""


class Sessions:
    """Checks when sessions of brokers expire."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._heard: WeakKeyDictionary[BrokerSessions, dict[int, float]] = WeakKeyDictionary()
        """When each controller has last heard of a broker."""

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hears of every contact and of every look at a session inside the block."""
        is_live = vars(BrokerSessions)["is_live"]

        def looked(sessions: BrokerSessions, broker_id: int, now_ms: int) -> bool:
            found: bool = is_live(sessions, broker_id, now_ms)
            self._look(sessions, broker_id, found)
            return found

        with ExitStack() as taps:
            taps.enter_context(after_each(BrokerSessions, "begin", self._begun))
            taps.enter_context(after_each(BrokerSessions, "registered", self._contact))
            taps.enter_context(before_each(BrokerSessions, "heard", self._heartbeat))
            taps.enter_context(in_place(BrokerSessions, "is_live", looked))
            yield

    def _begun(self, sessions: BrokerSessions, image: ClusterImage, *_: Any) -> None:
        self._heard[sessions] = {}
        for broker in image.online_brokers():
            self._contact(sessions, broker.id)

    def _contact(self, sessions: BrokerSessions, broker_id: int, *_: Any) -> None:
        self._heard.setdefault(sessions, {})[broker_id] = self._world.loop.time()

    def _heartbeat(self, sessions: BrokerSessions, broker_id: int, broker_epoch: int, *_: Any) -> None:
        session = vars(sessions)["_sessions"].get(broker_id)
        if session is not None and session.epoch == broker_epoch:
            self._contact(sessions, broker_id)

    def _look(self, sessions: BrokerSessions, broker_id: int, is_live: bool) -> None:
        heard_s = self._heard.get(sessions, {}).get(broker_id)
        if heard_s is None or heard_s <= self._world.leapt_s or broker_id not in vars(sessions)["_sessions"]:
            return
        passed_s, lasts_s = self._world.loop.time() - heard_s, sessions.session_timeout_ms / 1000
        what = f"{passed_s:.3f} s after it was heard of, and it lasts {lasts_s:.1f} s"
        if is_live:
            is_over = (passed_s - MARGIN_S) * RATES[0] > lasts_s
            self._world.demand(not is_over, f"the session of broker {broker_id} goes on {what}")
        else:
            goes_on = (passed_s + MARGIN_S) * RATES[1] < lasts_s
            self._world.demand(not goes_on, f"the session of broker {broker_id} is over {what}")
