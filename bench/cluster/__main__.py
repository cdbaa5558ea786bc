"""`make bench CLUSTER=1`: three nodes of Headrace beside three of Apache Kafka, rounds in turn, never both at once.

python -m bench --cluster [--only ROW]... [--quick] [--side SIDE]... [--rounds N] [--seconds S] [--into FILE] [--list]

A round of a side is a cluster of its own for each group of rows: load, coordinators, many clients, failures, many
partitions, a follower that catches up. `--into` adds what is measured to a file that is there, so that a long run can
be taken in pieces.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from bench.__main__ import keep, number, result_file
from bench.cluster.busy import BUSY_WORKS
from bench.cluster.coordinators import COORDINATOR_WORKS
from bench.cluster.failures import FAILURE_WORKS
from bench.cluster.nodes import Nodes
from bench.cluster.rows import LOAD_WORKS, QUICK, Row, Scale, Work, warm_up
from bench.cluster.sizes import CATCH_UP_WORKS, MANY_WORKS
from bench.rigs import DATA
from bench.wire_rows import GB

SIDES = ("headrace", "kafka")
GROUPS = (LOAD_WORKS, COORDINATOR_WORKS, BUSY_WORKS, FAILURE_WORKS, MANY_WORKS, CATCH_UP_WORKS)
"""The works of a group are done on one cluster, one after the other."""
OUR_WARM_UP_SHARE = 0.25


@dataclasses.dataclass
class Result:
    """What a row came to: a value a round on each side, or one a try."""

    row: Row
    values: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    error: str = ""

    def value(self, side: str) -> float | None:
        """The median of a side, or the worst where each try counts."""
        values = self.values.get(side)
        if not values:
            return None
        return max(values) if self.row.worst else median(values)

    def ratio(self) -> float | None:
        """Ours over Kafka's."""
        ours, theirs = (self.value(side) for side in SIDES)
        return ours / theirs if ours is not None and theirs else None

    def holds(self) -> bool | None:
        return self.row.holds(self.value("headrace") if self.row.of_itself else self.ratio())

    def line(self, scale: Scale) -> dict[str, Any]:
        """The row as it is kept, with the names that the other bench's rows have."""
        return {
            "row": self.row.key,
            "title": title_of(self.row, scale),
            "unit": self.row.unit,
            **{side: self.values.get(side, []) for side in SIDES},
            "ratio": self.ratio(),
            "bar": self.row.bar,
            "bar_is_of": self.row.unit if self.row.of_itself else "ratio",
            "lower_is_better": self.row.lower,
            "holds": self.holds(),
            "error": self.error,
        }


def title_of(row: Row, scale: Scale) -> str:
    catch_up = f"{scale.catch_up_bytes / GB:g}"
    return row.title.format(partitions=f"{scale.partitions:,}", catch_up=catch_up, members=f"{scale.members:,}")


def say(result: Result, scale: Scale) -> None:
    """One line of the table."""
    ours, theirs = (number(result.value(side)) for side in SIDES)
    ratio = result.ratio()
    times = f"{ratio:.2f}x" if ratio is not None else "-"
    of = f" {result.row.unit}" if result.row.of_itself else "x"
    bar = result.row.asked(of)
    mark = {True: "holds", False: "MISSES", None: ""}[result.holds()]
    head = f"{title_of(result.row, scale):48} {ours:>10} {theirs:>10} {result.row.unit:8}"
    print(f"{head} {times:>7} {bar:10} {mark:7} {result.error}".rstrip(), flush=True)


class Run:
    """One run of the bench: which rows, which sides, how much."""

    def __init__(self, only: list[str], sides: list[str], scale: Scale, into: Path | None) -> None:
        self.sides = sides
        self.scale = scale
        self.path = into or result_file("cluster-")
        self.groups = [[work for work in group if wanted(work, only)] for group in GROUPS]
        self.results = {row.key: Result(row) for group in GROUPS for work in group for row in work.rows}
        if into is not None and into.exists():
            self._go_on()

    def _go_on(self) -> None:
        """Takes what the file has."""
        for line in self.path.read_text().splitlines()[1:]:
            kept = json.loads(line)
            self.results[kept["row"]].values = {side: kept[side] for side in SIDES if kept[side]}

    def all(self) -> None:
        """Every round of every group; each side's nodes are gone before the other's start."""
        for group in self.groups:
            for _ in range(self.scale.rounds if group else 0):
                for side in self.sides:
                    self.round(group, side)
            for work in group:
                for row in work.rows:
                    say(self.results[row.key], self.scale)

    def round(self, group: list[Work], side: str) -> None:
        nodes = Nodes(side)
        try:
            nodes.start()
            if group[0] in LOAD_WORKS:
                warm_up(nodes, self.scale.warm_up_s * (1.0 if side == "kafka" else OUR_WARM_UP_SHARE))
            for work in group:
                self.one(work, nodes)
        finally:
            nodes.clean()

    def one(self, work: Work, nodes: Nodes) -> None:
        """One round on one side; what goes wrong is the row's, and the run goes on."""
        results = [self.results[row.key] for row in work.rows]
        try:
            measured = work.measure(nodes, self.scale)
        except (AssertionError, OSError, RuntimeError, subprocess.TimeoutExpired) as error:
            for result in results:
                result.error = f"{nodes.name}: {type(error).__name__}: {str(error)[:300]}"
            return
        for result, values in zip(results, measured, strict=True):
            result.values.setdefault(nodes.name, []).extend(values)
            print(f"  {nodes.name} {result.row.key}: {' '.join(map(number, values))}", file=sys.stderr, flush=True)
        about = {"cluster": len(nodes.peers), "scale": dataclasses.asdict(self.scale)}
        known = [each for each in self.results.values() if each.values or each.error]
        keep(self.path, about, [each.line(self.scale) for each in known])


def wanted(work: Work, only: list[str]) -> bool:
    return not only or any(row.key.startswith(each) for row in work.rows for each in only)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench --cluster", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", action="append", default=[], help="rows whose name begins so; may be given again")
    parser.add_argument("--quick", action="store_true", help="a fraction of the work and one round: shape, not size")
    parser.add_argument("--side", action="append", choices=SIDES, help="one side alone")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="length of a wire measurement")
    parser.add_argument("--tries", type=int, help="how often one of our nodes is killed, a round")
    parser.add_argument("--into", type=Path, help="a file of results that is added to")
    parser.add_argument("--list", action="store_true", help="name the rows")
    asked = parser.parse_args(argv)
    scale = QUICK if asked.quick else Scale()
    changes = {key: value for key in ("rounds", "seconds", "tries") if (value := getattr(asked, key)) is not None}
    scale = dataclasses.replace(scale, **changes)
    run = Run(asked.only, asked.side or list(SIDES), scale, asked.into)
    if asked.list:
        for result in run.results.values():
            print(f"{result.row.key:22} {title_of(result.row, scale)}")
        return 0
    print(f"{'':48} {'headrace':>10} {'kafka':>10} {'':8} {'ratio':>7}", flush=True)
    try:
        run.all()
    finally:
        shutil.rmtree(DATA, ignore_errors=True)
    print(f"kept in {run.path}")
    return 1 if any(result.error for result in run.results.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
