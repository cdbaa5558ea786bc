"""A partition has one owner in a group at each step.

No coordinator reaches into a member: one that is cut off goes on with what it was given, and hears that it is out when
it asks again. The law is about what a coordinator gives, therefore, and when. Epochs are the generations of a classic
group, whose members alone know what they own (those of a KIP-848 group are judged by the coordinator's records, too:
`Shares`).

1. *By epoch.* In one epoch of a group a partition is given to one member, whichever broker coordinates.
2. *By lease.* An answer that leaves a member its partitions holds for `lease_s` from the moment that the member asked:
   the shorter one of its session timeout and its rebalance timeout, since a coordinator may begin to wait for it only
   after that answer; a little less, as steady clocks drift, and none that one of them leaps over. Until then no later
   epoch gives a partition of its to another member, unless it gave that up: an eager member all before it joins again,
   others what an answer takes from them when they hear it.
3. *By claim.* What a member listed as owned when it joined a generation, that generation gives to no other member.

A member is who it says it is: its instance id if it is static, since another process takes its place at any time, else
its member id. Neither a lease nor a claim comes of an answer whose coordinator has been replaced by the time that it
arrives: it may not have known that. Another coordinator may begin a generation of the same number: claims are of one.
Nor is it held against anybody what an earlier epoch gives, where an answer was on its way for long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.sim.clock import RATES
from headrace.wire.sharding import partition_of

if TYPE_CHECKING:
    from headrace.metadata.image import ClusterImage
    from headrace.sim.world import World

Place = tuple[str, int]
OFFSETS: Final = "__consumer_offsets"


@dataclass(slots=True)
class _Holding:
    """What a member has been given and has not given up."""

    epoch: int
    asked_s: float = 0.0
    """When it asked for its lease..."""
    until_s: float = 0.0
    """... and when that ends."""
    claimed: _Claim | None = None


_Term = tuple[str, int]
"""Of a coordinator: its host, and the epoch of the partition that it leads."""
_Claim = tuple[int, _Term]
"""In which generation, and with which coordinator, a member claims what it owns."""


class Owners:
    """Checks that a partition has one owner in a group.

    Members say what they are given, what they keep, and what they give up.
    """

    def __init__(self, world: World, newest: Callable[[], ClusterImage | None]) -> None:
        """`newest` is the newest image that any node has applied."""
        self._world = world
        self._newest = newest
        self._given: dict[tuple[str, int, Place], str] = {}
        """Whom an epoch of a group gives a partition to."""
        self._held: dict[tuple[str, Place], dict[str, _Holding]] = {}
        self.taken = 0
        """How often a partition was given to somebody."""

    def takes(
        self, group: str, who: str, epoch: int, places: Iterable[Place], asked_s: float, lease_s: float, at: str | None
    ) -> None:
        """A member has heard that these partitions are its own in this epoch: it asked at `asked_s`, and `at` answered.
        What it had before, and is not among them, it has given up."""
        places = list(places)
        self.gives_up(group, who, [place for place in self._of(group, who) if place not in places])
        for place in places:
            self.taken += 1
            what = f"group {group}: epoch {epoch} gives {place[0]}-{place[1]} to {who}"
            first = self._given.setdefault((group, epoch, place), who)
            self._world.demand(first == who, f"{what}, and it gave it to {first}")
            holders = self._held.setdefault((group, place), {})
            for other, holding in holders.items():
                if other != who and (why := self._right_of(holding, group, epoch)):
                    self._world.object(f"{what}, and {other} has it since epoch {holding.epoch}: {why}")
            holders[who] = _Holding(epoch)
        self.keeps(group, who, epoch, asked_s, lease_s, at)

    def keeps(self, group: str, who: str, epoch: int, asked_s: float, lease_s: float, at: str | None) -> None:
        """A member has heard that it may go on with what it has in this epoch."""
        if self._term(group, at) is None:
            return
        for place in self._of(group, who):
            holding = self._held[group, place][who]
            if holding.epoch == epoch and asked_s >= holding.asked_s:
                holding.asked_s, holding.until_s = asked_s, asked_s + lease_s / RATES[1]

    def claims(self, group: str, who: str, epoch: int, at: str | None) -> None:
        """A member has heard that it is in this generation, which it joined with what it owns."""
        term = self._term(group, at)
        for place in self._of(group, who):
            self._held[group, place][who].claimed = None if term is None else (epoch, term)

    def gives_up(self, group: str, who: str, places: Iterable[Place] | None = None) -> None:
        """A member owns these no longer, or none at all: before anybody hears so."""
        for place in self._of(group, who) if places is None else places:
            self._held.get((group, place), {}).pop(who, None)

    def _of(self, group: str, who: str) -> list[Place]:
        return [place for (name, place), holders in self._held.items() if name == group and who in holders]

    def _right_of(self, holding: _Holding, group: str, epoch: int) -> str:
        """Why who has a partition owns it still, when an epoch gives it to another member; "" where it does not."""
        is_leased = holding.asked_s > self._world.leapt_s and self._world.loop.time() < holding.until_s
        if holding.epoch < epoch and is_leased:
            return f"by a lease that ends at {holding.until_s:.3f} s"
        if holding.claimed is not None and holding.claimed == (epoch, self._term(group)):
            return "it said so when it joined this generation"
        return ""

    def _term(self, group: str, host: str | None = None) -> _Term | None:
        """That of the coordinator, as far as anybody knows; None where `host` is given, and it is another one."""
        image = self._newest()
        topic = None if image is None else image.topics.by_name(OFFSETS)
        if image is None or topic is None:
            return None
        partition = topic.partitions[partition_of(group, len(topic.partitions))]
        leader = image.brokers.get(partition.leader)
        if leader is None or host not in (None, leader.endpoints[0].host):
            return None
        return leader.endpoints[0].host, partition.leader_epoch
