"""The checker of brokers' sessions: they last as long as the controller's own clock says."""

from __future__ import annotations

from headrace.controller.sessions import BrokerSessions
from headrace.metadata.image import Broker, ClusterImage
from headrace.sim.checkers.sessions import Sessions
from headrace.sim.world import World

SESSION_MS = 3_000
IMAGE = ClusterImage(brokers={1: Broker(1, 5, bytes(16), (), (), None, False, False, ())})


class _Controller:
    """Sessions in a world that passes time when it is asked to, by a clock that may be wrong."""

    def __init__(self, rate: float = 1.0) -> None:
        self.world = World(1)
        self.sessions = BrokerSessions(SESSION_MS)
        self._rate = rate

    def now_ms(self) -> int:
        return int(self.world.loop.time() * 1000 * self._rate)

    def objection_after(self, *passing_s: float) -> str | None:
        """Of the look after so long, with a heartbeat between any two times."""
        with Sessions(self.world).listening():
            self.sessions.begin(IMAGE, self.now_ms())
            for at, passed_s in enumerate(passing_s):
                if at:
                    self.sessions.heard(1, 5, 0, self.now_ms())
                self.world.loop.pass_time(passed_s)
            self.sessions.expired(IMAGE, self.now_ms())
        return None if self.world.objection is None else str(self.world.objection)


def test_what_a_clock_within_its_rates_says_is_right() -> None:
    for rate in (0.95, 1.0, 1.05):
        for passed_s in (0.1, 2.5, 2.9, 3.1, 3.5, 10.0):
            assert _Controller(rate).objection_after(passed_s, passed_s) is None


def test_a_session_that_ends_too_early_is_objected_to() -> None:
    objection = _Controller(rate=2.0).objection_after(1.0, 2.0)
    assert objection == "the session of broker 1 is over 2.000 s after it was heard of, and it lasts 3.0 s"


def test_a_session_that_goes_on_too_long_is_objected_to() -> None:
    objection = _Controller(rate=0.5).objection_after(1.0, 5.0)
    assert objection == "the session of broker 1 goes on 5.000 s after it was heard of, and it lasts 3.0 s"


def test_nothing_is_known_of_a_session_over_which_a_clock_has_leapt() -> None:
    controller = _Controller(rate=2.0)
    controller.world.leapt_s = 1.5
    assert controller.objection_after(1.0, 2.0) is None
