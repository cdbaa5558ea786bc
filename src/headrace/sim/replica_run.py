"""Clusters whose leaders and ISRs change all the time: steered runs of `cluster_run` with histories that the others
hardly ever reach. Each seed has one kind of them, and no other fault."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.sim.cluster_options import Options, undisturbed
from headrace.sim.lost_answers import LostAnswers
from headrace.sim.replica_faults import APART, IN_TURN, UNHEARD
from headrace.sim.shrinks_unheard import ShrinksUnheard
from headrace.sim.stale_alterations import StaleAlterations
from headrace.sim.steered_run import SteeredRun

if TYPE_CHECKING:
    from headrace.sim.run import Result


def _options(rng: random.Random) -> Options:
    """Producers, and leaders whose patience with their followers is short."""
    return replace(
        undisturbed(Options.draw(rng)),
        mean_s=0.5,
        faults_s=rng.uniform(7.0, 10.0),
        idempotent=2,
        members=0,
        answers_are_lost=True,
    )


class ReplicaRun(SteeredRun):
    """A run whose leaders and in-sync sets change all the time."""

    def __init__(self, seed: int, say: Callable[[str], None] | None = None) -> None:
        super().__init__(seed, say, _options(random.Random(f"{seed}/replicas")), apart=True)
        stale = StaleAlterations(self.world, self.machines)
        unheard = ShrinksUnheard(self.world, self.everybody)
        lost = LostAnswers(self.world, self.everybody)
        kind = self.world.rng("steered").choice(("in turn", "leaders", "stale", "shrinks", "lost"))
        self._moments = [(stale, kind == "stale"), (unheard, kind == "shrinks"), (lost, kind == "lost")]
        kinds = {"in turn": [IN_TURN], "leaders": [UNHEARD]}.get(kind, [APART])
        self._steer(kinds, lambda: stale.lasts or unheard.lasts)


def run_replica_seed(seed: int, say: Callable[[str], None] | None = None) -> Result:
    """One run of a cluster whose leaders and in-sync sets change all the time."""
    return ReplicaRun(seed, say).run()
