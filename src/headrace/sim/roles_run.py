"""A cluster with interrupted workers whose partitions change their role meanwhile.

Leaders alternate that do not reach each other, so that logs are truncated and followers fall behind;
`roles_under_workers` has the changes that come while a worker has a log.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.sim.cluster_client import ClusterClient
from headrace.sim.cluster_options import Options, undisturbed
from headrace.sim.replica_faults import APART, IN_TURN
from headrace.sim.roles_under_workers import RolesUnderWorkers
from headrace.sim.steered_run import SteeredRun

if TYPE_CHECKING:
    from headrace.sim.run import Result


def _options(rng: random.Random) -> Options:
    """Producers that wait for the disks, and a group whose log is compacted."""
    return replace(
        undisturbed(Options.draw(rng)),
        durable=rng.random() < 0.7,
        mean_s=1.5,
        faults_s=rng.uniform(7.0, 10.0),
        idempotent=1,
        members=rng.choice((0, 2)),
        answers_are_lost=False,
    )


class RolesRun(SteeredRun):
    """A run in which partitions change roles under workers."""

    interrupts = True

    def __init__(self, seed: int, say: Callable[[str], None] | None = None) -> None:
        super().__init__(seed, say, _options(random.Random(f"{seed}/roles")), apart=True)
        operator = ClusterClient(self.world, "role operator", self.hosts)
        self.roles = RolesUnderWorkers(self.world, self.machines, ("log",), operator)
        self._moments = [(self.roles, True)]
        self._steer(self.world.rng("steered").choice(([IN_TURN], [APART], [IN_TURN, APART])))


def run_roles_seed(seed: int, say: Callable[[str], None] | None = None) -> Result:
    """One run of a cluster whose partitions change their role under workers."""
    return RolesRun(seed, say).run()
