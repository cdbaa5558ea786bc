"""`make bench-spark`: our source and sink beside Spark's own Kafka connector, rounds taken in turn, medians, ratios.

python -m bench.spark [--only ROW]... [--quick] [--side SIDE]... [--rounds N] [--list]

The ratio is ours on Headrace over theirs on Apache Kafka. Each connector is also measured on the other broker, which
tells what of a ratio is the connector's and what the broker's. `prebuilt` is a Python source that does nothing but hand
out batches made beforehand: what no source written in Python can pass.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from bench.__main__ import keep, number, result_file
from bench.rigs import DATA, ROOT, Kafka, Ours, Rig
from bench.spark.once_rows import ONCE_WORKS
from bench.spark.rows import QUICK, WORKS, Row, Scale, Work, fill
from bench.spark.sides import OURS, PEER, PREBUILT, Side
from tests.peers import spark

SIDES = {
    "headrace": (OURS, "headrace"),
    "kafka": (PEER, "kafka"),
    "headrace-on-kafka": (OURS, "kafka"),
    "kafka-on-headrace": (PEER, "headrace"),
    "prebuilt": (PREBUILT, "headrace"),
}
"""The connector and the broker of each side; the first two make the ratio."""
EVERY_WORK = WORKS + ONCE_WORKS


@dataclasses.dataclass
class Result:
    """What a row came to: a value a round on each side."""

    row: Row
    values: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    error: str = ""

    def middle(self, side: str) -> float | None:
        values = self.values.get(side)
        return median(values) if values else None

    def ratio(self) -> float | None:
        """Ours on Headrace over theirs on Apache Kafka."""
        ours, theirs = self.middle("headrace"), self.middle("kafka")
        return ours / theirs if ours and theirs else None

    def holds(self) -> bool | None:
        return self.row.holds(self.ratio())

    def line(self) -> dict[str, Any]:
        """The row as it is kept, with the names that the other bench's rows have."""
        return {
            "row": self.row.key,
            "title": self.row.title,
            "unit": self.row.unit,
            **{side.replace("-", "_"): self.values.get(side, []) for side in SIDES},
            "ratio": self.ratio(),
            "bar": self.row.bar,
            "lower_is_better": self.row.lower,
            "holds": self.holds(),
            "error": self.error,
        }


def say(result: Result) -> None:
    """One line of the table, as soon as it is known."""
    ours, theirs, on_kafka, on_headrace, prebuilt = (number(result.middle(side)) for side in SIDES)
    ratio = result.ratio()
    times = f"{ratio:.2f}x" if ratio is not None else "-"
    bar = f"({result.row.sign} {result.row.bar:g}x)"
    mark = {True: "holds", False: "MISSES", None: ""}[result.holds()]
    head = f"{result.row.title:40} {ours:>8} {theirs:>8} {result.row.unit:8} {times:>7} {bar:9} {mark:6}"
    print(f"{head} {on_kafka:>10} {on_headrace:>10} {prebuilt:>10} {result.error}".rstrip(), flush=True)


class Run:
    """One run: which rows, which sides, how much."""

    def __init__(self, only: list[str], sides: list[str], scale: Scale) -> None:
        self.scale = scale
        self.works = [work for work in EVERY_WORK if any(wanted(row, only) for row in work.rows)]
        brokers = {SIDES[name][1] for name in sides}
        self.rigs: dict[str, Rig] = {}
        if "headrace" in brokers:
            self.rigs["headrace"] = Ours()
        if "kafka" in brokers:
            self.rigs["kafka"] = Kafka()
        self.sides = [Side(connector, self.rigs[broker]) for connector, broker in map(SIDES.__getitem__, sides)]
        self.results: list[Result] = []
        self.about: dict[str, Any] = {}

    def all(self) -> None:
        """Everything; brokers and Sparks are gone when it is over."""
        try:
            for rig in self.rigs.values():
                rig.start()
                for topic in sorted({topic for work in self.works for topic in work.topics}):
                    fill(rig, topic, self.scale)
            for work in self.works:
                if work.alone:
                    self.rounds(work)
            if any(not work.alone for work in self.works):
                for side in self.sides:
                    self.about = side.start()
            for work in self.works:
                if not work.alone:
                    self.rounds(work)
        finally:
            for side in self.sides:
                side.stop()
            for rig in self.rigs.values():
                rig.clean()

    def rounds(self, work: Work) -> None:
        results = [Result(row) for row in work.rows]
        if not work.alone and not work.warms_itself:
            for side in self.sides:
                self.one(work, [Result(row) for row in work.rows], side)
        for _ in range(self.scale.rounds):
            for side in self.sides:
                self.one(work, results, side)
        for result in results:
            self.results.append(result)
            say(result)

    def one(self, work: Work, results: list[Result], side: Side) -> None:
        """One round on one side; what goes wrong is the row's, and the run goes on."""
        if (work.needs_broker and side.connector == PREBUILT) or (work.ours_alone and side.connector != OURS):
            return
        try:
            values = work.measure(side, self.scale)
        except (AssertionError, OSError, RuntimeError, subprocess.TimeoutExpired) as error:
            for result in results:
                result.error = f"{side.name}: {type(error).__name__}: {str(error)[:800]}"
            return
        for result, value in zip(results, values):
            result.values.setdefault(side.name, []).append(value)

    def save(self) -> Path:
        """The run as JSON lines: the first says what was run, each other is a row."""
        about = {"pyspark": spark.PYSPARK_VERSION, **self.about, "scale": dataclasses.asdict(self.scale)}
        path = result_file("spark-")
        keep(path, about, [each.line() for each in self.results])
        return path


def wanted(row: Row, only: list[str]) -> bool:
    """Whether a row is among those asked for."""
    return not only or any(row.key.startswith(each) for each in only)


def arguments_of(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.spark", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", action="append", default=[], help="rows whose name begins so; may be given again")
    parser.add_argument("--quick", action="store_true", help="a fraction of the work and one round: shape, not size")
    parser.add_argument("--side", action="append", choices=list(SIDES), help="one side alone; may be given again")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--list", action="store_true", help="name the rows")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    asked = arguments_of(argv)
    if asked.list:
        for row in (row for work in EVERY_WORK for row in work.rows):
            print(f"{row.key:22} {row.title}")
        return 0
    scale = QUICK if asked.quick else Scale()
    if asked.rounds is not None:
        scale = dataclasses.replace(scale, rounds=asked.rounds)
    run = Run(asked.only, asked.side or list(SIDES), scale)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # brokers and Sparks end with us
    shutil.rmtree(DATA, ignore_errors=True)
    heads = f"{'':40} {'headrace':>8} {'kafka':>8} {'':8} {'ratio':>7} {'':9} {'':6}"
    print(f"{heads} {'our/Kafka':>10} {'their/Hdr':>10} {'prebuilt':>10}", flush=True)
    try:
        run.all()
    finally:
        shutil.rmtree(DATA, ignore_errors=True)
    print(f"kept in {run.save().relative_to(ROOT)}")
    return 1 if any(result.error for result in run.results) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
