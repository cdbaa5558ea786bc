"""python -m headrace.sim: runs seeds of the simulator, with or without a planted fault; `mutate` makes small faults.

Exit status: 0 where all checkers are content, 1 where one objects, 2 where the simulator itself broke.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Final

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
from headrace.sim.run import Result, run_moving_seed, run_seed
from headrace.sim.sabotage import (
    PLANTED,
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
    PLANTED_IN_SINKS,
    PLANTED_IN_TRANSACTIONS,
    PLANTED_IN_UNCLEAN_ELECTIONS,
    planted,
)
from headrace.sim.story import Run, shortest_story
from headrace.sim.unclean_run import run_unclean_seed
from headrace.sim.workloads.log_following import run_log_seed

EVERY_PLANT: Final = (
    *PLANTED,
    *PLANTED_IN_MOVES,
    *PLANTED_IN_QUORUMS,
    *PLANTED_IN_CLUSTERS,
    *PLANTED_IN_CLOCKS,
    *PLANTED_IN_REPLICAS,
    *PLANTED_IN_RAISES,
    *PLANTED_IN_TRANSACTIONS,
    *PLANTED_IN_GROUPS,
    *PLANTED_IN_CONSUMERS,
    *PLANTED_IN_RIGHTS,
    *PLANTED_IN_LOADS,
    *PLANTED_IN_LOGS,
    *PLANTED_IN_DELETIONS,
    *PLANTED_IN_SINKS,
    *PLANTED_IN_FAILURES,
    *PLANTED_IN_UNCLEAN_ELECTIONS,
)
CONTENT: Final = 0
OBJECTION: Final = 1
BROKEN: Final = 2


def _run_sink_seed(seed: int, say: Callable[[str], None] | None) -> Result:
    from headrace.sim.sink_run import run_sink_seed

    return run_sink_seed(seed, say)


def _run_of(given: argparse.Namespace) -> Run:
    """The kind of run that is asked for, or in which a planted fault is to be found."""
    kinds: tuple[tuple[bool, Sequence[str], Run], ...] = (
        (given.quorum, PLANTED_IN_QUORUMS, run_quorum_seed),
        (given.sink, PLANTED_IN_SINKS, _run_sink_seed),
        (given.loads, PLANTED_IN_LOADS, run_load_seed),
        (given.log, PLANTED_IN_LOGS, run_log_seed),
        (given.replicas, PLANTED_IN_REPLICAS, run_replica_seed),
        (given.apart, (), run_apart_seed),
        (given.dynamic, (), run_dynamic_seed),
        (given.raised, PLANTED_IN_RAISES, run_raised_seed),
        (given.guarded, PLANTED_IN_RIGHTS, run_guarded_seed),
        (given.encrypted, (), run_encrypted_seed),
        (given.grouped, PLANTED_IN_GROUPS, run_grouped_seed),
        (given.consumers, PLANTED_IN_CONSUMERS, run_consumers_seed),
        (given.transactions, PLANTED_IN_TRANSACTIONS, run_transactions_seed),
        (given.deleting, PLANTED_IN_DELETIONS, run_deleting_seed),
        (given.failing, PLANTED_IN_FAILURES, run_failing_seed),
        (given.unclean, PLANTED_IN_UNCLEAN_ELECTIONS, run_unclean_seed),
        (given.moving, PLANTED_IN_MOVES, run_moving_seed),
        (given.cluster, (*PLANTED_IN_CLUSTERS, *PLANTED_IN_CLOCKS), run_cluster_seed),
    )
    for is_asked_for, plants, run in kinds:
        if is_asked_for or given.sabotage in plants:
            return run
    return partial(run_seed, light=given.light)


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["mutate"]:
        from headrace.sim.mutate.command import main as mutate

        return mutate(arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m headrace.sim", description="Whole brokers in virtual time.")
    parser.add_argument("--seed", type=int, help="run one seed; the last line holds the digest of its trace")
    parser.add_argument("--seeds", type=_range, metavar="A-B", help="run these seeds, a line each")
    parser.add_argument("--first", action="store_true", help="stop at the first objection")
    parser.add_argument("--sabotage", metavar="NAME", help="plant a fault, stop at the first find; 'list' names them")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--light", action="store_true", help="a little load and no faults: the pace of the simulator")
    kind.add_argument(
        "--moving", action="store_true", help="one broker whose replicas move between its disks, under its workers"
    )
    kind.add_argument("--cluster", action="store_true", help="three brokers, each of them a controller too")
    kind.add_argument(
        "--replicas", action="store_true", help="a cluster whose leaders and in-sync sets change all the time"
    )
    kind.add_argument("--apart", action="store_true", help="brokers of a cluster beside three controllers")
    kind.add_argument("--dynamic", action="store_true", help="a cluster whose voters come and go")
    kind.add_argument(
        "--raised",
        action="store_true",
        help="a cluster of static voters that raises kraft.version, and whose voters come and go then",
    )
    kind.add_argument("--transactions", action="store_true", help="a cluster, and transactions of all kinds upon it")
    kind.add_argument("--grouped", action="store_true", help="the same, and some of them commit as groups")
    kind.add_argument("--consumers", action="store_true", help="a cluster, and a group of consumers of both protocols")
    kind.add_argument("--guarded", action="store_true", help="a cluster with an authorizer, whose rights change")
    kind.add_argument("--encrypted", action="store_true", help="nodes that speak TLS; OpenSSL has its own chance")
    kind.add_argument("--deleting", action="store_true", help="a cluster of which operators delete records")
    kind.add_argument("--failing", action="store_true", help="a cluster of which log directories fail")
    kind.add_argument("--unclean", action="store_true", help="a cluster of which leaders of one topic may lack records")
    kind.add_argument("--quorum", action="store_true", help="three controllers of one metadata quorum, and no broker")
    kind.add_argument("--loads", action="store_true", help="coordinators whose logs are in a bad state for a while")
    kind.add_argument("--sink", action="store_true", help="a cluster, and queries of Spark's that write exactly once")
    kind.add_argument("--log", action="store_true", help="one log of a follower that is cut, compacted and crashes")
    told = parser.add_mutually_exclusive_group()
    told.add_argument("--trace", action="store_true", help="print everything that crosses a seam")
    told.add_argument(
        "--story",
        action="store_true",
        help="tell what happens in a seed that fails, with as few faults as break it",
    )
    given = parser.parse_args(arguments)
    if given.sabotage == "list":
        for name in EVERY_PLANT:
            print(name)
        return CONTENT
    if given.sabotage is not None and given.sabotage not in EVERY_PLANT:
        parser.error(f"no fault is called {given.sabotage!r}; --sabotage list names them")
    if (given.seed is None) == (given.seeds is None):
        parser.error("give --seed N or --seeds A-B")
    if given.story and given.seed is None:
        parser.error("--story is of one seed: give --seed N")
    run = _run_of(given)
    try:
        with planted(given.sabotage) if given.sabotage else nullcontext():
            if given.story:
                return _tell(given.seed, run)
            if given.seed is not None:
                return _one(given.seed, print if given.trace else None, run)
            return _many(given.seeds, run, stop=given.first or given.sabotage is not None)
    except Exception:
        traceback.print_exc()
        print("the simulator itself broke", file=sys.stderr)
        return BROKEN


def _range(text: str) -> range:
    first, dash, last = text.partition("-")
    if not dash or not first.isdigit() or not last.isdigit() or int(last) < int(first):
        raise argparse.ArgumentTypeError(f"{text!r} is not A-B, with B not below A")
    return range(int(first), int(last) + 1)


def _one(seed: int, say: Callable[[str], None] | None, run: Run) -> int:
    result = run(seed, say)
    print(_line(result))
    if result.objection is not None:
        traceback.print_exception(result.objection)
        sys.stderr.flush()
    print(f"digest: {result.digest}")
    return CONTENT if result.objection is None else OBJECTION


def _tell(seed: int, run: Run) -> int:
    story = shortest_story(run, seed)
    for line in story.lines:
        print(line)
    if story.objection is None:
        print(f"seed {seed} holds, with all of its {len(story.faults)} faults")
        return CONTENT
    print(f"seed {seed} fails with {len(story.faults)} faults, and without {len(story.left_out)} others")
    return OBJECTION


def _many(seeds: range, run: Run, *, stop: bool) -> int:
    """A line a seed, and the pace at the end; `stop` at the first objection."""
    began = time.perf_counter()
    simulated_s = 0.0
    transactions = judged = raised = changes = 0
    failed: list[int] = []
    for seed in seeds:
        result = run(seed, None)
        simulated_s += result.simulated_s
        transactions += result.transactions
        judged += result.judged
        raised += result.kraft_version > 0
        changes += result.voter_changes
        print(_line(result), flush=True)
        if result.objection is not None:
            failed.append(seed)
            if stop:
                break
    took_s = time.perf_counter() - began
    print(f"{simulated_s:.0f} s simulated in {took_s:.1f} s: {simulated_s / took_s:.0f} simulated seconds a second")
    if judged:
        print(f"{judged} transactions judged, {transactions} of them known to be committed")
    if raised:
        print(f"kraft.version was raised in {raised} seeds")
    if changes:
        print(f"{changes} changes of voters were confirmed")
    if failed:
        print(f"objections in {len(failed)} seeds: {' '.join(map(str, failed))}")
    return OBJECTION if failed else CONTENT


def _line(result: Result) -> str:
    verdict = "ok" if result.objection is None else f"OBJECTION: {result.objection}"
    return (
        f"seed {result.seed}: {result.simulated_s:.1f} s, {result.acknowledged} records, {result.commits} commits and "
        f"{result.transactions} transactions confirmed, {result.faults} faults, {result.starts} starts: {verdict}"
    )


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # what brokers log in virtual time is in the trace
    sys.exit(main())
