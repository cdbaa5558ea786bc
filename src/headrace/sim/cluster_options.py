"""The options that a cluster's seed draws: its size, its clients, and its faults."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from headrace.sim.cluster_faults import CLUSTER_KINDS, ONE_LOSES, OUSTED
from headrace.sim.faults import KINDS

SNAPSHOT_BYTES_RARE: Final = 20_000_000
SAFE_FROM_MEMORY: Final = ("stop", "cut", "silence", "partition", "slow disk", "clock")
"""Faults of one node after which it has all that it acknowledged."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a seed has drawn."""

    nodes: int
    durable: bool
    """Acknowledgements wait for the disks, and power may go; else processes are killed, and machines stay up."""
    kinds: tuple[str, ...]
    """What goes wrong on each node."""
    cluster_kinds: tuple[str, ...]
    """What goes wrong between the nodes, or with several."""
    mean_s: float
    """Between two faults of each node, and between two of the cluster."""
    faults_s: float
    plain: int
    idempotent: int
    members: int
    topics_come_and_go: bool
    is_reborn: bool
    """Whether a topic is deleted and made again under the same name, over and over."""
    is_administered: bool
    calm_trouble: str
    """What happens in calm times: "one goes" and stays away, or "two apart" do not reach each other for long. The
    others get on all the same."""
    small_pieces: bool
    answers_are_lost: bool
    """Whether leaders that want a replica in sync may not hear that it is."""
    links_are_lossy: bool
    snapshot_bytes: int
    """After how much of the metadata log each node writes a snapshot, and keeps little of what lies before it."""
    is_emptied: bool
    """Whether a broker that votes nowhere loses its disks where another one would lose its power."""
    transactors: int
    """Producers with transactional ids; of three or more, two have the same."""
    copiers: int
    """Those that consume, transform and produce; likewise."""
    keys: int
    """Partitions that they append to."""
    pause_s: float
    """At most between two transactions of one of them, while there are faults."""
    coordinators_fail: bool
    """Whether coordinators of transactions fail in the middle of an end."""
    verdicts_are_late: bool
    """Whether leaders hear late from coordinators that a batch belongs to a transaction."""

    @classmethod
    def draw(cls, rng: random.Random) -> Options:
        """Any mixture: also of nothing at all."""
        durable = rng.random() < 0.5
        loses = not durable and rng.random() < 0.3
        kinds = [kind for kind in KINDS if durable or kind != "power"]
        cluster_kinds = list(CLUSTER_KINDS)
        if loses:
            kinds = [kind for kind in kinds if kind in SAFE_FROM_MEMORY]
            cluster_kinds = ["pause", "one way", "split", OUSTED, "slow link"]
        many = rng.choice((0.15, 0.4, 0.8))
        return cls(
            nodes=rng.choice((3, 3, 3, 3, 5)),
            durable=durable,
            kinds=tuple(kind for kind in kinds if rng.random() < many),
            cluster_kinds=(
                *(kind for kind in cluster_kinds if rng.random() < many),
                *((ONE_LOSES,) * len(cluster_kinds) if loses else ()),
            ),
            mean_s=rng.uniform(2.0, 10.0),
            faults_s=rng.uniform(10.0, 30.0),
            plain=rng.randint(0, 2),
            idempotent=rng.randint(1, 2),
            members=rng.choice((0, 2)),
            topics_come_and_go=rng.random() < 0.3,
            is_reborn=rng.random() < 0.4,
            is_administered=rng.random() < 0.4,
            small_pieces=rng.random() < 0.2,
            calm_trouble=rng.choice(("", "", "one goes", "two apart")),
            answers_are_lost=rng.random() < 0.3,
            links_are_lossy=rng.random() < 0.3,
            snapshot_bytes=rng.choice((SNAPSHOT_BYTES_RARE, SNAPSHOT_BYTES_RARE, 2_000, 10_000)),
            is_emptied=rng.random() < 0.5,
            transactors=rng.choice((0, 0, 2, 3)),
            copiers=rng.choice((0, 2)),
            keys=3,
            pause_s=0.4,
            coordinators_fail=rng.random() < 0.3,
            verdicts_are_late=rng.random() < 0.3,
        )

    @classmethod
    def draw_transactional(cls, rng: random.Random) -> Options:
        """Transactions, and hardly anything else."""
        drawn = cls.draw(rng)
        return replace(
            drawn,
            plain=0,
            idempotent=1,
            members=0,
            topics_come_and_go=False,
            is_reborn=False,
            faults_s=rng.uniform(4.0, 10.0),
            transactors=rng.choice((3, 4)),
            copiers=rng.choice((2, 3)),
            keys=rng.choice((4, 12)),
            pause_s=rng.choice((0.15, 0.5)),
            coordinators_fail=rng.random() < 0.8,
            verdicts_are_late=rng.random() < 0.85,
        )


def undisturbed(drawn: Options) -> Options:
    """Returns options for a run that is steered: three nodes, producers, and nothing else that comes by chance."""
    return replace(
        drawn,
        nodes=3,
        kinds=(),
        cluster_kinds=(),
        plain=2,
        topics_come_and_go=False,
        is_reborn=False,
        is_administered=False,
        calm_trouble="",
        transactors=0,
        copiers=0,
        coordinators_fail=False,
        verdicts_are_late=False,
    )
