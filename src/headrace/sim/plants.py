"""`python -m headrace.sim plants`: counts the seeds that find each planted fault."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headrace.sim.found_at import FOUND_BY_LEAST, seeds_of
from headrace.sim.kinds import EVERY_PLANT, kind_of, run_of_plant
from headrace.sim.sabotage import planted
from headrace.sim.world import Objection

SHOWN: Final = 8
"""Of the seeds that find a fault."""


class StalePlantError(Exception):
    """A planted fault does not fit what it replaces any longer: it fails by itself, and nothing finds it."""


def _look_at(name: str, objection: Objection) -> None:
    """Raises StalePlantError if the objection is to how a fault was planted."""
    if isinstance(objection.__cause__, TypeError | AttributeError | NameError):
        raise StalePlantError(f"{name}: {objection}") from objection


@dataclass(frozen=True, slots=True)
class Search:
    """Which of the seeds `tried` have `found` a planted fault."""

    name: str
    tried: int
    found: tuple[int, ...]

    @property
    def is_found_first(self) -> bool:
        """Whether the seed that the tests name finds it."""
        return seeds_of(self.name).start in self.found

    def line(self) -> str:
        """As the table has it."""
        kind = kind_of(self.name).flag or "one broker"
        shown = " ".join(map(str, self.found[:SHOWN])) + (" ..." if len(self.found) > SHOWN else "")
        stale = "" if self.is_found_first else f"; seed {seeds_of(self.name).start} does not find it"
        return f"{self.name:40} {kind:13} {len(self.found):2} of {self.tried:2}: {shown or 'none'}{stale}"


def search(name: str, enough: int | None = None) -> Search:
    """Runs the seeds of a planted fault: all of them, or until `enough` have found it. Raises StalePlantError."""
    run, seeds = run_of_plant(name), seeds_of(name)
    found: list[int] = []
    tried = 0
    with planted(name):
        for seed in seeds:
            tried += 1
            if (objection := run(seed, None).objection) is not None:
                _look_at(name, objection)
                found.append(seed)
                if len(found) == enough:
                    break
    return Search(name, tried, tuple(found))


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status: 0 if enough seeds find every fault, and the first seed of each is one of them."""
    parser = argparse.ArgumentParser(prog="python -m headrace.sim plants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="planted faults; without names, all of them")
    parser.add_argument("--enough", type=int, metavar="N", help="stop a search when N seeds have found the fault")
    given = parser.parse_args(arguments)
    if unknown := [name for name in given.names if name not in EVERY_PLANT]:
        parser.error(f"no fault is called {unknown[0]!r}; --sabotage list names them")
    if given.enough is not None and given.enough < FOUND_BY_LEAST:
        parser.error(f"--enough is {FOUND_BY_LEAST} at least")
    rare: list[str] = []
    stale: list[str] = []
    for name in given.names or EVERY_PLANT:
        began = time.perf_counter()
        done = search(name, given.enough)
        print(f"{done.line()} ({time.perf_counter() - began:.0f} s)", flush=True)
        if len(done.found) < FOUND_BY_LEAST:
            rare.append(name)
        elif not done.is_found_first:
            stale.append(name)
    if rare:
        print(f"found by fewer than {FOUND_BY_LEAST} seeds: {' '.join(rare)}")
    if stale:
        print(f"not found by their first seed: {' '.join(stale)}")
    return 1 if rare or stale else 0
