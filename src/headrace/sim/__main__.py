"""python -m headrace.sim: runs seeds of the simulator, with or without a planted fault.

`mutate` tries small changes of the code, and `plants` counts the seeds that find each planted fault.

Exit status: 0 if no checker objects, 1 if one does, 2 if the simulator itself failed.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Final

from headrace.sim.kinds import EVERY_PLANT, KINDS, ONE_BROKER, run_of_plant
from headrace.sim.run import Result
from headrace.sim.sabotage import planted
from headrace.sim.story import Run, shortest_story

CONTENT: Final = 0
OBJECTION: Final = 1
BROKEN: Final = 2


def _run_of(given: argparse.Namespace) -> Run:
    """Returns the kind of run that is asked for, or in which a planted fault is to be found."""
    for kind in KINDS:
        if getattr(given, kind.flag):
            return kind.run
    return ONE_BROKER.run if given.sabotage is None else run_of_plant(given.sabotage)


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["mutate"]:
        from headrace.sim.mutate.command import main as mutate

        return mutate(arguments[1:])
    if arguments[:1] == ["plants"]:
        from headrace.sim.plants import main as plants

        return plants(arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m headrace.sim", description="Whole brokers in virtual time.")
    parser.add_argument("--seed", type=int, help="run one seed; the last line holds the digest of its trace")
    parser.add_argument("--seeds", type=_range, metavar="A-B", help="run these seeds, a line each")
    parser.add_argument("--first", action="store_true", help="stop at the first objection")
    parser.add_argument("--sabotage", metavar="NAME", help="plant a fault, stop at the first find; 'list' names them")
    kind = parser.add_mutually_exclusive_group()
    for each in KINDS:
        kind.add_argument(f"--{each.flag}", action="store_true", help=each.summary)
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--trace", action="store_true", help="print everything that crosses a seam")
    output.add_argument(
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
