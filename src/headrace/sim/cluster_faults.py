"""Faults between the nodes of a cluster: several die at once, one is paused, links are slow or one-way.

The faults stay within the guarantees. If acknowledgements wait for the disks, power may fail anywhere and at any time.
At the default flush policy one node loses its unsynced data, and no other before all replicas are in sync again: no
cluster that acknowledges from memory survives more.
"""

from __future__ import annotations

from asyncio import gather, sleep
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headrace.sim.machine import Machine
    from headrace.sim.world import World

OUSTED: Final = "leader ousted"
CLUSTER_KINDS: Final = (
    "two die",
    "two stop",
    "pause",
    "one way",
    "split",
    OUSTED,
    "slow link",
    "restart at once",
    "leave in turn",
)
LOSSY_LINK: Final = "lossy link"
ONE_LOSES: Final = "one loses power"
REFUSES: Final = "refuses"
LOOK_S: Final = 0.1
OUSTED_S: Final = (5.0, 10.0)
"""Longer than a broker's session, also where the controllers have to elect one of theirs first."""


class ClusterFaults:
    """Injects faults of some kinds into the nodes of a cluster, one after the other, until `heal`."""

    def __init__(
        self,
        world: World,
        machines: Mapping[int, Machine[Any]],
        kinds: Sequence[str],
        mean_s: float,
        *,
        in_sync: Callable[[], bool],
        leading: Callable[[], Sequence[Machine[Any]]],
        may_be_emptied: Sequence[Machine[Any]],
    ) -> None:
        """`in_sync` tells whether every replica of every partition is in sync, as all nodes know, and `leading` who
        leads any, as far as it knows itself. Those that `may_be_emptied` get new disks where others lose their power:
        no voter can, for it must not forget its vote."""
        self._world = world
        self._machines = list(machines.values())
        self._kinds = list(kinds)
        self._mean_s = mean_s
        self._in_sync = in_sync
        self._leading = leading
        self._may_be_emptied = list(may_be_emptied)
        self._rng = world.rng("faults of the cluster")
        self._handlers: dict[str, Callable[[], Awaitable[None]]] = {
            "two die": self._two_die,
            "two stop": self._two_stop,
            "pause": self._pause,
            "one way": self._one_way,
            "split": self._split,
            OUSTED: self._leader_ousted,
            "slow link": self._slow_link,
            "restart at once": self._restart_at_once,
            "leave in turn": self._leave_in_turn,
            LOSSY_LINK: self._lossy_link,
            ONE_LOSES: self._one_loses_power,
            REFUSES: self._refuses,
        }

    async def run(self) -> None:
        """One fault after the other; its task is cancelled when it is enough."""
        while self._kinds:
            await sleep(self._rng.expovariate(1 / self._mean_s))
            kind = self._rng.choice(self._kinds)
            if self._world.strikes(kind):
                await self._handlers[kind]()

    def heal(self) -> None:
        """Every process goes on. The network is healed by `Faults.heal`."""
        for machine in self._machines:
            machine.resume()
            machine.bring_back()

    def _some(self, count: int) -> list[Machine[Any]]:
        return self._rng.sample(self._machines, count)

    def _others(self, machine: Machine[Any]) -> list[str]:
        return [each.host for each in self._machines if each is not machine]

    async def _two_die(self) -> None:
        for machine in self._some(2):
            machine.kill()
            await sleep(self._rng.choice((0.0, self._rng.uniform(0.0, 2.0))))

    async def _two_stop(self) -> None:
        await gather(*[machine.stop() for machine in self._some(2)])

    async def _restart_at_once(self) -> None:
        """A process ends and the next one begins well within its session, several times in a row."""
        (machine,) = self._some(1)
        for _ in range(self._rng.randint(2, 4)):
            machine.kill()
            await sleep(self._rng.uniform(0.5, 1.5))

    async def _leave_in_turn(self) -> None:
        """All but one stop cleanly and stay away; then that one dies, and they come back without it."""
        *first, last = self._some(len(self._machines))
        for machine in first:
            machine.hold_back()
            await machine.stop()
        await sleep(self._rng.uniform(0.5, 3.0))
        last.take_away()
        for machine in first:
            machine.bring_back()
        await sleep(self._rng.uniform(1.0, 6.0))
        last.bring_back()

    async def _pause(self) -> None:
        (machine,) = self._some(1)
        if machine.pause():
            await sleep(self._rng.choice((self._rng.uniform(0.1, 2.0), self._rng.uniform(2.0, 8.0))))
            machine.resume()

    async def _one_way(self) -> None:
        one, other = self._some(2)
        self._world.network.cut_one_way(one.host, other.host)
        await sleep(self._rng.uniform(0.5, 6.0))
        self._world.network.reconnect(one.host, other.host)

    async def _split(self) -> None:
        """One node reaches no other, and clients reach it."""
        (alone,) = self._some(1)
        await self._world.network.cut_off_for(self._rng.uniform(1.0, 8.0), alone.host, self._others(alone))

    async def _leader_ousted(self) -> None:
        """The same of one that leads, for so long that another one takes its place: it comes back, and learns it."""
        if leading := self._leading():
            leader = self._rng.choice(leading)
            await self._world.network.cut_off_for(self._rng.uniform(*OUSTED_S), leader.host, self._others(leader))

    async def _slow_link(self) -> None:
        pairs = [pair for pair in combinations(self._machines, 2) if self._rng.random() < 0.5]
        longest_s = self._rng.choice((0.1, 0.5, 2.0))
        for one, other in pairs:
            self._world.network.slow_down(one.host, other.host, (0.0, longest_s))
        await sleep(self._rng.uniform(1.0, 8.0))
        for one, other in pairs:
            self._world.network.reconnect(one.host, other.host)

    async def _lossy_link(self) -> None:
        """Between two nodes every connection breaks that is made, at some time or other."""
        one, other = self._some(2)
        until = self._world.loop.time() + self._rng.uniform(1.0, 8.0)
        mean_s = self._rng.choice((0.02, 0.1, 0.5))
        while self._world.loop.time() < until:
            await sleep(self._rng.expovariate(1 / mean_s))
            between = [each for each in one.streams() if each.peer_host == other.host]
            if between:
                self._world.network.cut(self._rng.choice(between))

    async def _refuses(self) -> None:
        """A node lives on, and looks dead to the others: its connections end, and it takes no new ones of theirs."""
        (machine,) = self._some(1)
        others = self._others(machine)
        for other in others:
            self._world.network.refuse(other, machine.host)
        for stream in [each for each in machine.streams() if each.peer_host in others]:
            self._world.network.cut(stream)
        await sleep(self._rng.uniform(0.5, 6.0))
        self._world.network.rejoin(machine.host, others)

    async def _one_loses_power(self) -> None:
        machine = self._rng.choice(self._may_be_emptied or self._machines)
        machine.kill(power=True)
        if self._may_be_emptied:
            machine.disk.empty()
        await machine.ready()
        while not self._in_sync():  # noqa: ASYNC110
            await sleep(LOOK_S)
