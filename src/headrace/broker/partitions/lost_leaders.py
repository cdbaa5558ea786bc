"""Leaders that this broker has just lost sight of: for a moment, what the metadata say of them is likely to be untrue.

A client whose leader dies asks another broker at once who leads now, some 100 ms before the controller has decided it.
If it hears the old answer it tries the dead broker, waits, and asks again; its pauses double. So a broker that is
asked, and saw the connection to that leader end too, answers when the metadata change, or after `HOLD_S`.

The lost one stays among the brokers that are named to clients for a while. librdkafka ends its handle of a broker that
is no longer named, and a partition that is just then on its way from there to the next leader is left without one,
until it looks at all of its partitions a second later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.env import Node, Owner
    from headrace.metadata.image import ClusterImage

HOLD_S: Final = 1.0
"""For so long after a loss answers wait: a dead leader of partitions has a successor after 0.2 s, one that was the
active controller too after 0.3 to 0.7 s. Metadata that say nothing more by then are of a cut network, or of a
controller that waits for sessions; clients ask again."""
NAMED_S: Final = 3.0
"""How long after a loss clients still get the broker."""


class LostLeaders:
    """See the module. It is false while no leader is lost, as it is nearly always."""

    def __init__(self, node: Node, owner: Owner, image: Callable[[], ClusterImage]) -> None:
        """`image` returns the newest image."""
        self._node = node
        self._owner = owner
        self._image = image
        self._epochs: dict[int, int] = {}
        """The lost ones, with the epoch of the registration that each had."""
        self.recent: dict[int, int] = {}
        """Those that were lost a short time ago, dead by now or not, with the same epochs."""
        self._stopped = False
        self._waiting: list[tuple[frozenset[int], Future[None]]] = []  # at most one a connection

    def __bool__(self) -> bool:
        return bool(self._epochs)

    def lost(self, leader: int) -> None:
        """The connection to a leader ended, and not from here."""
        known = self._image().brokers.get(leader)
        if known is None or known.fenced or leader in self._epochs or self._stopped:
            return
        self._epochs[leader] = self.recent[leader] = known.epoch
        self._owner.later(NAMED_S, self._forget, leader, known.epoch)
        self._owner.later(HOLD_S, self._expired, leader, known.epoch)

    def reached(self, leader: int) -> None:
        """The leader answers again."""
        if self._epochs.pop(leader, None) is not None:
            self._settle()

    def _forget(self, leader: int, epoch: int) -> None:
        if self.recent.get(leader) == epoch:
            del self.recent[leader]

    def _expired(self, leader: int, epoch: int) -> None:
        if self._epochs.get(leader) == epoch:
            self.reached(leader)

    def brokers_changed(self) -> None:
        """The metadata may have found a lost leader dead, or registered its next incarnation."""
        brokers = self._image().brokers
        for leader, epoch in list(self._epochs.items()):
            known = brokers.get(leader)
            if known is None or known.fenced or known.epoch != epoch:
                self.reached(leader)

    def among(self, leaders: Iterable[int]) -> frozenset[int]:
        """Those of some leaders that are lost."""
        return frozenset(self._epochs.keys() & set(leaders))

    def known(self, leaders: frozenset[int]) -> Future[None]:
        """Done when more is known of each of these, or when it has been waited for long enough."""
        settled: Future[None] = self._node.future()
        self._waiting.append((leaders, settled))
        self._settle()
        return settled

    def _settle(self) -> None:
        left: list[tuple[frozenset[int], Future[None]]] = []
        for leaders, settled in self._waiting:
            if settled.done():
                continue  # its connection has ended
            if leaders & self._epochs.keys():
                left.append((leaders, settled))
            else:
                settled.set_result(None)
        self._waiting = left

    def stop(self) -> None:
        """Ends all waits."""
        self._stopped = True
        self._epochs.clear()
        self._settle()
