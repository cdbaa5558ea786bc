"""The kinds of runs: their names on the command line, and the planted faults that each has to find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.sim.clients_run import run_clients_seed
from headrace.sim.cluster_run import (
    run_apart_seed,
    run_cluster_seed,
    run_dynamic_seed,
    run_encrypted_seed,
    run_grouped_seed,
    run_guarded_seed,
    run_raised_seed,
    run_transactions_seed,
)
from headrace.sim.consumers_run import run_consumers_seed
from headrace.sim.deleting_run import run_deleting_seed
from headrace.sim.failing_run import run_failing_seed
from headrace.sim.load_run import run_load_seed
from headrace.sim.quorum_run import run_quorum_seed
from headrace.sim.replica_run import run_replica_seed
from headrace.sim.roles_run import run_roles_seed
from headrace.sim.run import Result, run_light_seed, run_moving_seed, run_seed
from headrace.sim.sabotage import (
    PLANTED,
    PLANTED_IN_CLIENTS,
    PLANTED_IN_CLOCKS,
    PLANTED_IN_CLUSTERS,
    PLANTED_IN_CONSUMERS,
    PLANTED_IN_DELETIONS,
    PLANTED_IN_FAILURES,
    PLANTED_IN_GROUPS,
    PLANTED_IN_LOADS,
    PLANTED_IN_LOGS,
    PLANTED_IN_MOVES,
    PLANTED_IN_QUORUMS,
    PLANTED_IN_RAISES,
    PLANTED_IN_REPLICAS,
    PLANTED_IN_RIGHTS,
    PLANTED_IN_ROLES,
    PLANTED_IN_SINKS,
    PLANTED_IN_TRANSACTIONS,
    PLANTED_IN_UNCLEAN_ELECTIONS,
)
from headrace.sim.unclean_run import run_unclean_seed
from headrace.sim.workloads.log_reading import run_log_seed

if TYPE_CHECKING:
    from headrace.sim.story import Run


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of runs; `flag` is empty for that of one broker."""

    flag: str
    summary: str
    run: Run
    plants: tuple[str, ...] = ()


def _run_sink_seed(seed: int, say: Callable[[str], None] | None) -> Result:
    """Loads Spark's packages only if they are needed."""
    from headrace.sim.sink_run import run_sink_seed

    return run_sink_seed(seed, say)


ONE_BROKER: Final = Kind("", "one broker", run_seed, PLANTED)
KINDS: Final[tuple[Kind, ...]] = (
    Kind("light", "a little load and no faults: the pace of the simulator", run_light_seed),
    Kind(
        "moving",
        "one broker whose replicas move between its disks, under its workers",
        run_moving_seed,
        PLANTED_IN_MOVES,
    ),
    Kind(
        "cluster",
        "three brokers, each of them a controller too",
        run_cluster_seed,
        (*PLANTED_IN_CLUSTERS, *PLANTED_IN_CLOCKS),
    ),
    Kind(
        "replicas",
        "a cluster whose leaders and in-sync sets change all the time",
        run_replica_seed,
        PLANTED_IN_REPLICAS,
    ),
    Kind("roles", "a cluster whose partitions change their role under its workers", run_roles_seed, PLANTED_IN_ROLES),
    Kind("apart", "brokers of a cluster beside three controllers", run_apart_seed),
    Kind("dynamic", "a cluster whose voters come and go", run_dynamic_seed),
    Kind(
        "raised",
        "a cluster of static voters that raises kraft.version, and whose voters come and go then",
        run_raised_seed,
        PLANTED_IN_RAISES,
    ),
    Kind(
        "transactions",
        "a cluster, and transactions of all kinds on it",
        run_transactions_seed,
        PLANTED_IN_TRANSACTIONS,
    ),
    Kind("grouped", "the same, and some of them commit as groups", run_grouped_seed, PLANTED_IN_GROUPS),
    Kind(
        "consumers", "a cluster, and a group of consumers of both protocols", run_consumers_seed, PLANTED_IN_CONSUMERS
    ),
    Kind("clients", "a cluster, and the asyncio client as an application has it", run_clients_seed, PLANTED_IN_CLIENTS),
    Kind("guarded", "a cluster with an authorizer, whose rights change", run_guarded_seed, PLANTED_IN_RIGHTS),
    Kind("encrypted", "nodes that speak TLS; OpenSSL draws its own random numbers", run_encrypted_seed),
    Kind("deleting", "a cluster whose operators delete records", run_deleting_seed, PLANTED_IN_DELETIONS),
    Kind("failing", "a cluster whose log directories fail", run_failing_seed, PLANTED_IN_FAILURES),
    Kind(
        "unclean",
        "a cluster with a topic whose leaders may lack records",
        run_unclean_seed,
        PLANTED_IN_UNCLEAN_ELECTIONS,
    ),
    Kind("quorum", "three controllers of one metadata quorum, and no broker", run_quorum_seed, PLANTED_IN_QUORUMS),
    Kind("loads", "coordinators whose logs are in a bad state for a while", run_load_seed, PLANTED_IN_LOADS),
    Kind("sink", "a cluster, and queries of Spark that write exactly once", _run_sink_seed, PLANTED_IN_SINKS),
    Kind("log", "one log of a follower that is cut, compacted and crashes", run_log_seed, PLANTED_IN_LOGS),
)
EVERY_PLANT: Final = tuple(name for kind in (ONE_BROKER, *KINDS) for name in kind.plants)


def kind_of(name: str) -> Kind:
    """Returns the kind of runs that is to find a planted fault."""
    return next(kind for kind in (ONE_BROKER, *KINDS) if name in kind.plants)


def run_of_plant(name: str) -> Run:
    """Returns the runs that are to find a planted fault: for one of the sink of Spark, with the queries that meet
    it."""
    if name not in PLANTED_IN_SINKS:
        return kind_of(name).run
    from headrace.sim.sink_run import run_sink_seed
    from headrace.sim.sink_sabotage import SHAPES

    def run(seed: int, say: Callable[[str], None] | None = None) -> Result:
        return run_sink_seed(seed, say, [SHAPES[name]])

    return run
