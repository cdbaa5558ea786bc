"""`python -m headrace.sim mutate`: tries small changes of the pure packages, and reports which nothing notices."""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headrace.sim.mutate.ledger import Ledger
from headrace.sim.mutate.mutations import Mutation, mutations_of
from headrace.sim.mutate.trial import KINDS, Copy

ROOT: Final = Path(__file__).resolve().parents[4]
PACKAGES: Final = ROOT / "src" / "headrace"


def every_mutation(packages: Sequence[str]) -> list[Mutation]:
    """Returns the changes of all files of these packages."""
    return [
        mutation
        for package in packages
        for path in sorted((PACKAGES / package).rglob("*.py"))
        for mutation in mutations_of(path.relative_to(PACKAGES).as_posix(), path.read_bytes())
    ]


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status: 0, whatever survives; a person judges that."""
    parser = argparse.ArgumentParser(prog="python -m headrace.sim mutate", description=__doc__)
    parser.add_argument("--ledger", type=Path, required=True, help="what is known so far; a later run goes on with it")
    parser.add_argument("--packages", default=",".join(KINDS), help="of these packages; a comma between them")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin no other trial after that; 0 reports alone")
    parser.add_argument("--jobs", type=int, default=2, help="trials at a time")
    parser.add_argument("--survivors", action="store_true", help="try those again that nothing noticed, and no others")
    parser.add_argument("--draw", type=int, default=1, help="the seed of the order in which changes are tried")
    given = parser.parse_args(arguments)
    packages = given.packages.split(",")
    if unknown := sorted(set(packages) - KINDS.keys()):
        parser.error(f"{unknown[0]} is no pure package; they are {', '.join(KINDS)}")
    if not (ROOT / "tests").is_dir():
        parser.error("there are no tests beside the source: run this in a checkout")
    mutations = every_mutation(packages)
    random.Random(given.draw).shuffle(mutations)
    ledger = Ledger(given.ledger)
    if given.minutes:
        if given.survivors:
            waiting = [mutation for mutation in mutations if ledger.has_survivor(mutation.key)]
        else:
            waiting = [mutation for mutation in mutations if mutation.key not in ledger]
        _Trials(waiting, ledger, packages, time.monotonic() + given.minutes * 60).run(given.jobs)
    print(f"{len(mutations)} changes can be made of {', '.join(packages)}")
    for line in ledger.report({mutation.key for mutation in mutations}):
        print(line)
    return 0


class _Trials:
    """Several trials at a time, each with a copy of the source of its own."""

    def __init__(self, waiting: list[Mutation], ledger: Ledger, packages: Sequence[str], until: float) -> None:
        self._waiting = iter(waiting)
        self._ledger = ledger
        self._packages = packages
        self._until = until
        self._lock = threading.Lock()
        self._failures: list[Exception] = []

    def run(self, jobs: int) -> None:
        """Returns when the time is over or nothing is left. Raises what ended a job."""
        threads = [threading.Thread(target=self._job) for _ in range(jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _job(self) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="headrace-mutate-") as folder:
                copy = Copy(ROOT, Path(folder))
                for package in self._packages:
                    copy.measure(package)
                while (mutation := self._next()) is not None:
                    began = time.monotonic()
                    outcome = copy.outcome(mutation)
                    with self._lock:
                        entry = self._ledger.add(mutation, outcome, time.monotonic() - began)
                        print(f"{entry.file}:{entry.line}: {entry.kind}: {outcome} ({entry.took_s:g} s)", flush=True)
        except Exception as error:  # it is raised where the jobs are waited for
            self._failures.append(error)

    def _next(self) -> Mutation | None:
        with self._lock:
            return next(self._waiting, None) if time.monotonic() < self._until and not self._failures else None
