"""One world of the simulator: its time, its chance, its network, its machines, and the first objection to them."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from headrace.sim.loop import SimLoop
from headrace.sim.network import SimNetwork
from headrace.sim.trace import Trace

if TYPE_CHECKING:
    from headrace.sim.node import SimNode

EPOCH_MS: Final = 1_750_000_000_000
WRITES_PAGES: Final = 0.5
"""How often pages of files survive a loss of power in any order, and not the writes in theirs."""


class Objection(Exception):
    """A checker saw a promise broken; the text says which."""


INTERRUPTED: Final = 0.3
"""How often work of workers is interrupted: the loop, and other work, have turns in the middle of it."""


LEFT_OUT: Final[ContextVar[frozenset[int]]] = ContextVar("faults that are left out", default=frozenset())
"""By their numbers, of the worlds that are made meanwhile."""


class World:
    """The time, the randomness, the network and the machines of one run.

    Every part draws from a generator of its own, so that one draw more in one changes no other.
    """

    def __init__(self, seed: int, say: Callable[[str], None] | None = None, *, interrupts: bool = False) -> None:
        """`interrupts`: the work of workers is interrupted, whatever is drawn."""
        self.seed = seed
        self.epoch_ms = EPOCH_MS
        self.loop = SimLoop()
        self.trace = Trace(self.loop.time, say)
        self.writes_pages = self.rng("pages").random() < WRITES_PAGES
        """Of all disks."""
        self.interrupts = interrupts or self.rng("interrupts").random() < INTERRUPTED
        """Whether the work of all workers is."""
        self.network = SimNetwork(self, self.rng("network"))
        self.objection: Objection | None = None
        self.calm_since: float | None = None
        """Since when nothing is broken, cut or slow; None while faults are on."""
        self.leapt_s = -1.0
        """When a steady clock last jumped: leases that were granted shortly before may have expired on that node."""
        self._nodes: list[SimNode] = []
        self._without_power: dict[str, None] = {}
        self._left_out = LEFT_OUT.get()
        self._faults_due = 0
        self.faults = 0
        """Those that came."""
        self._is_over = False

    def rng(self, purpose: str) -> random.Random:
        """The generator of one part. Strings seed alike in every process."""
        return random.Random(f"{self.seed}/{purpose}")

    def object(self, text: str, cause: BaseException | None = None) -> None:
        """Keeps the first objection: the run ends with it."""
        if self.objection is None and not self._is_over:
            self.objection = Objection(text)
            self.objection.__cause__ = cause
            self.trace.note("objection", text)

    def demand(self, holds: bool, text: str) -> None:
        """Objects unless a promise holds."""
        if not holds:
            self.object(text)

    def strikes(self, kind: str, *what: str) -> bool:
        """Returns whether to inject the fault that is due. Faults are numbered in order, skipped ones included."""
        number = self._faults_due
        self._faults_due += 1
        if number in self._left_out:
            return False
        self.faults += 1
        self.trace.note("fault", number, kind, *what)
        return True

    # --- machines

    def add(self, node: SimNode) -> None:
        """A process begins to run."""
        self._nodes.append(node)

    def nodes(self) -> list[SimNode]:
        """The processes that run."""
        return [node for node in self._nodes if node.alive]

    def end(self) -> None:
        """The run is over: every process is killed, everything else of it ends, and none of that is held against it."""
        self._is_over = True
        self.trace.close()
        for node in self.nodes():
            node.kill()
        self.loop.end()

    def has_power(self, host: str) -> bool:
        """Whether a machine answers at all."""
        return host not in self._without_power

    def set_power(self, host: str, on: bool) -> None:
        """Pulls the plug of a machine, or puts it back."""
        if on:
            self._without_power.pop(host, None)
        else:
            self._without_power[host] = None
