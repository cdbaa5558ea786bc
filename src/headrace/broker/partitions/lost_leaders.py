"""Leaders whose connections have just ended: for a moment the metadata about them are likely to be stale.

A client whose leader dies asks another broker for the new leader at once, some 100 ms before the controller has
decided. If it gets the old answer it tries the dead broker, waits, and asks again, with growing pauses. So a broker
whose connection to that leader ended too answers when the metadata change, or after `HOLD_S`.

The lost leader stays in the list of brokers for clients for a while. librdkafka drops its handle of a broker that is no
longer listed, and a partition that is just moving from it to the next leader stays without one until librdkafka checks
all partitions a second later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncio import Future

    from headrace.env import Node, Owner
    from headrace.metadata.image import ClusterImage

HOLD_S: Final = 1.0
"""Longest time that answers wait after a loss. A dead leader has a successor after 0.2 s, one that was also the active
controller after 0.3 to 0.7 s. If the metadata have not changed by then, the network is cut, or the controller waits for
sessions; clients ask again."""
NAMED_S: Final = 3.0
"""Time after a loss during which the broker stays in the list for clients."""


class LostLeaders:
    """The lost leaders, and the requests that wait for news of them. Falsy while no leader is lost."""

    def __init__(self, node: Node, owner: Owner, image: Callable[[], ClusterImage]) -> None:
        """`image` returns the newest image."""
        self._node = node
        self._owner = owner
        self._image = image
        self._epochs: dict[int, int] = {}
        """Registration epochs of the lost leaders, by node id."""
        self.recent: dict[int, int] = {}
        """Registration epochs of recently lost leaders, dead or not, by node id."""
        self._stopped = False
        self._waiting: list[tuple[frozenset[int], Future[None]]] = []  # at most one a connection

    def __bool__(self) -> bool:
        return bool(self._epochs)

    def lost(self, leader: int) -> None:
        """Notes that a leader, not this broker, ended the connection."""
        known = self._image().brokers.get(leader)
        if known is None or known.fenced or leader in self._epochs or self._stopped:
            return
        self._epochs[leader] = self.recent[leader] = known.epoch
        self._owner.later(NAMED_S, self._forget, leader, known.epoch)
        self._owner.later(HOLD_S, self._expired, leader, known.epoch)

    def reached(self, leader: int) -> None:
        """Notes that the leader answers again."""
        if self._epochs.pop(leader, None) is not None:
            self._settle()

    def _forget(self, leader: int, epoch: int) -> None:
        if self.recent.get(leader) == epoch:
            del self.recent[leader]

    def _expired(self, leader: int, epoch: int) -> None:
        if self._epochs.get(leader) == epoch:
            self.reached(leader)

    def brokers_changed(self) -> None:
        """Forgets lost leaders that the metadata now show as fenced, gone, or registered again."""
        brokers = self._image().brokers
        for leader, epoch in list(self._epochs.items()):
            known = brokers.get(leader)
            if known is None or known.fenced or known.epoch != epoch:
                self.reached(leader)

    def among(self, leaders: Iterable[int]) -> frozenset[int]:
        """Returns the lost ones among some leaders."""
        return frozenset(self._epochs.keys() & set(leaders))

    def known(self, leaders: frozenset[int]) -> Future[None]:
        """Returns a future, done when none of these leaders is lost any longer or the wait has timed out."""
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
