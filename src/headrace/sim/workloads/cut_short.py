"""A sequence of steps on a disk that forgets, of which a loss of power may interrupt any."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import ClassVar

from headrace.sim.disk import PowerCut, SimDisk


class CutShort(ABC):
    """One such run; see the workloads."""

    cut_chance: ClassVar[float]
    """How likely the power goes within a step."""
    cut_within: ClassVar[int]
    """Operations on the disk after which it goes, at most."""
    rng: random.Random
    disk: SimDisk

    def run(self, steps: int) -> None:
        """Runs that many steps. Raises Broken."""
        for _ in range(steps):
            self._arm()
            try:
                self._step()
            except PowerCut:
                self._restart(power_lost=True)
            finally:
                self.disk.fail = None
        self._restart(power_lost=self.rng.random() < 0.5)

    def _arm(self) -> None:
        """Every now and then the power goes some operations from here."""
        if self.rng.random() > self.cut_chance:
            return
        at = self.disk.operations + self.rng.randint(1, self.cut_within)

        def cut(_operation: str, _path: str) -> None:
            if self.disk.operations >= at:
                raise PowerCut

        self.disk.fail = cut

    @abstractmethod
    def _step(self) -> None:
        """Does one thing."""

    @abstractmethod
    def _restart(self, *, power_lost: bool) -> None:
        """Starts again, and looks at what is there. Raises Broken."""
