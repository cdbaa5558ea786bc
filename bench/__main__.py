"""`make bench`: every row on both brokers in one run, rounds taken in turn, medians, ratios, JSON lines.

python -m bench [--only ROW]... [--quick] [--side SIDE | --against CHECKOUT] [--rounds N] [--seconds S] [--list]
python -m bench --cluster ...    three nodes beside three: see bench.cluster.__main__
python -m bench --scale ...      hundreds of brokers, hundreds of thousands of partitions: see bench.scale
python -m bench --cores ...      several brokers on this machine over one: see bench.cores
python -m bench --security ...   what TLS and ACLs cost: see bench.security
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from bench.coordinator_rows import COORDINATOR_ROWS
from bench.crowd_rows import CROWD_ROWS
from bench.life_rows import IDLE_S, LIFE_ROWS, MEMORY_ROWS
from bench.rigs import DATA, ROOT, Before, Kafka, Ours, Rig
from bench.wire_rows import QUICK, WIRE_ROWS, Row, Scale, warm_up

RESULTS = ROOT / "bench" / "results"
OUR_WARM_UP_SHARE = 0.25


@dataclasses.dataclass
class Result:
    """What a row came to: a value a round on each side, and the machine's own limit."""

    row: Row
    ours: list[float] = dataclasses.field(default_factory=list)
    kafka: list[float] = dataclasses.field(default_factory=list)
    limit: float | None = None
    error: str = ""

    def ratio(self) -> float | None:
        """Ours over Kafka's; a row against itself is its own ratio."""
        if self.row.against_itself and self.ours:
            return median(self.ours)
        if not self.ours or not self.kafka:
            return None
        return median(self.ours) / median(self.kafka)

    def holds(self) -> bool | None:
        return self.row.holds(self.ratio())

    def share_of_limit(self) -> float | None:
        """How near ours comes to what a bare loop does on this machine."""
        if not self.limit or not self.ours:
            return None
        ours = median(self.ours)
        return self.limit / ours if self.row.lower else ours / self.limit

    def line(self, scale: Scale) -> dict[str, Any]:
        """The row as it is kept."""
        return {
            "row": self.row.key,
            "title": title_of(self.row, scale),
            "unit": self.row.unit,
            "headrace": self.ours,
            "kafka": self.kafka,
            "ratio": self.ratio(),
            "bar": self.row.bar,
            "lower_is_better": self.row.lower,
            "holds": self.holds(),
            "limit": self.limit,
            "share_of_limit": self.share_of_limit(),
            "error": self.error,
        }


def title_of(row: Row, scale: Scale) -> str:
    unflushed = f"{scale.unflushed_bytes / 1e9:g}"
    return row.title.format(partitions=f"{scale.partitions:,}", unflushed=unflushed, members=f"{scale.members:,}")


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def say(result: Result, scale: Scale) -> None:
    """One line of the table, as soon as it is known."""
    ours = number(median(result.ours)) if result.ours else "-"
    kafka = number(median(result.kafka)) if result.kafka else "-"
    ratio = result.ratio()
    near = result.share_of_limit()
    share = f"{near:.0%} of bare" if near is not None else ""
    mark = {True: "holds", False: "MISSES", None: ""}[result.holds()]
    times = f"{ratio:.2f}x" if ratio is not None else "-"
    head = f"{title_of(result.row, scale):48} {ours:>10} {kafka:>10} {result.row.unit:8}"
    print(f"{head} {times:>7} {result.row.asked():10} {mark:7} {share} {result.error}", flush=True)


class Run:
    """One run of the bench: which rows, which sides, how much."""

    def __init__(self, only: list[str], sides: list[str], scale: Scale, against: Path | None) -> None:
        self.only = only
        self.sides = sides
        self.scale = scale
        self.against = against
        self.results: list[Result] = []
        self.path = result_file("before-" if against else "")

    def wanted(self, rows: tuple[Row, ...]) -> list[Row]:
        return [row for row in rows if not self.only or any(row.key.startswith(each) for each in self.only)]

    def rigs(self) -> list[Rig]:
        rigs: list[Rig] = []
        if "headrace" in self.sides:
            rigs.append(Ours())
        if self.against is not None:
            rigs.append(Before(self.against))
        elif "kafka" in self.sides:
            rigs.append(Kafka())
        return rigs

    def one(self, result: Result, rig: Rig) -> None:
        """One round of a row on one side; what goes wrong is the row's, and the run goes on."""
        try:
            value = result.row.measure(rig, self.scale)
        except (AssertionError, OSError, RuntimeError, StopIteration, subprocess.TimeoutExpired) as error:
            result.error = f"{rig.name}: {type(error).__name__}: {str(error)[:300]}"
            return
        (result.ours if rig.name == "headrace" else result.kafka).append(value)

    def warm(self) -> None:
        """Rows on two brokers that stay up."""
        wire, memory = self.wanted((*WIRE_ROWS, *CROWD_ROWS, *COORDINATOR_ROWS)), self.wanted(MEMORY_ROWS)
        if not wire and not memory:
            return
        rigs = self.rigs()
        try:
            for rig in rigs:
                rig.start()
            time.sleep(IDLE_S)
            self.memory("memory-idle", memory, rigs)
            for rig in rigs:
                share = 1.0 if rig.name == "kafka" else OUR_WARM_UP_SHARE
                warm_up(rig, self.scale.warm_up_s * share)
            for row in wire:
                self.rounds(row, rigs)
            self.memory("memory-loaded", memory, rigs)
        finally:
            for rig in rigs:
                rig.clean()

    def memory(self, key: str, rows: list[Row], rigs: list[Rig]) -> None:
        for row in rows:
            if row.key == key:
                result = Result(row)
                for rig in rigs:
                    self.one(result, rig)
                self.keep(result)

    def rounds(self, row: Row, rigs: list[Rig]) -> None:
        result = Result(row)
        for _ in range(self.scale.rounds):
            for rig in rigs:
                self.one(result, rig)
        if row.limit is not None:
            result.limit = row.limit(self.scale)
        self.keep(result)

    def lives(self) -> None:
        """Rows that start and stop brokers of their own."""
        for row in self.wanted(LIFE_ROWS):
            result = Result(row)
            for _ in range(self.scale.rounds):
                for rig in self.rigs():
                    self.one(result, rig)
            self.keep(result)

    def keep(self, result: Result) -> None:
        """Each row as soon as it is there: a run that is cut off has measured what it has."""
        self.results.append(result)
        say(result, self.scale)
        about = {"scale": dataclasses.asdict(self.scale)}
        keep(self.path, about, [result.line(self.scale) for result in self.results])


def result_file(kind: str) -> Path:
    """Where a run that begins now is kept; the name begins with the `kind` of run."""
    return RESULTS / f"{kind}{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}.jsonl"


def keep(path: Path, about: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Writes a run's results as JSON lines, behind one on where they were measured."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=False, capture_output=True)
    head = {
        "commit": commit.stdout.decode().strip(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        **about,
    }
    path.write_text("".join(json.dumps(line) + "\n" for line in [head, *rows]))


def arguments_of(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", action="append", default=[], help="rows whose name begins so; may be given again")
    parser.add_argument("--quick", action="store_true", help="a fraction of the work and one round: shape, not size")
    parser.add_argument("--side", action="append", choices=["headrace", "kafka"], help="one side alone")
    parser.add_argument("--against", type=Path, help="another checkout of Headrace, in the place of Kafka")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="length of a wire measurement")
    parser.add_argument("--list", action="store_true", help="name the rows")
    return parser.parse_args(argv)


BENCHES = {
    "--cluster": "bench.cluster.__main__",
    "--scale": "bench.scale",
    "--cores": "bench.cores",
    "--security": "bench.security",
}
"""What is measured by a module of its own, by the option that asks for it."""


def main(argv: list[str]) -> int:
    # A user's Python keeps what it has compiled, which is half of a broker's start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    for option, module in BENCHES.items():
        if option in argv:
            return int(import_module(module).main([each for each in argv if each != option]))
    asked = arguments_of(argv)
    if asked.list:
        for row in (*MEMORY_ROWS, *WIRE_ROWS, *CROWD_ROWS, *COORDINATOR_ROWS, *LIFE_ROWS):
            print(f"{row.key:22} {row.title}")
        return 0
    scale = QUICK if asked.quick else Scale()
    changes = {key: value for key in ("rounds", "seconds") if (value := getattr(asked, key)) is not None}
    scale = dataclasses.replace(scale, **changes)
    run = Run(asked.only, asked.side or ["headrace", "kafka"], scale, asked.against)
    shutil.rmtree(DATA, ignore_errors=True)
    print(f"{'':48} {'headrace':>10} {'before' if asked.against else 'kafka':>10} {'':8} {'ratio':>7}", flush=True)
    try:
        run.warm()
        run.lives()
    finally:
        shutil.rmtree(DATA, ignore_errors=True)
    print(f"kept in {run.path.relative_to(ROOT)}")
    return 1 if any(result.error for result in run.results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
