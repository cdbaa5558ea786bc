"""What every run of a pipeline shares: options, checkpoint, a session from start to signal, and what it reports."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from headrace.cli.failures import Failure
from headrace.cli.options import bootstrap_options, duration_option, json_option
from headrace.cli.output import Progress, print_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.spark.pipelines.running import Batch

F = TypeVar("F", bound=Callable[..., Any])

LOG = "spark.log"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_options(command: F) -> F:
    """The options of every run, as the arguments `checkpoint`, `once`, `starting_offsets`, `trigger`, `max_per_batch`,
    `settings`, `as_json`, `bootstrap` and `timeout`.
    """
    options = (
        click.option("--checkpoint", required=True, metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
                     help="Where the run keeps how far it is, its state, and Spark's log."),
        click.option("--once", is_flag=True, help="End with what is there now; without it, run until stopped."),
        click.option("--starting-offsets", default="earliest", show_default=True, metavar="WHERE",
                     help="Of a new checkpoint: earliest, latest, or JSON as for Spark's Kafka connector."),
        duration_option("--trigger", "1s", "A batch at most so often."),
        click.option("--max-per-batch", type=click.IntRange(1), metavar="N", help="At most so many records a batch."),
        click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
                     help="A setting of Spark; may be repeated."),
        json_option,
        bootstrap_options,
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def need_spark() -> None:
    """Raises `Failure` where Spark is not installed."""
    from importlib.util import find_spec

    if find_spec("pyspark") is None:
        raise Failure("Spark is not installed; `pip install headrace[spark]` does it")


def claim_checkpoint(checkpoint: Path, settings: dict[str, Any]) -> None:
    """`claim`, with `Failure` where the checkpoint is of other settings."""
    from headrace.spark.pipelines.running import claim

    try:
        claim(checkpoint, settings)
    except ValueError as error:
        raise Failure(str(error)) from error


@dataclass(frozen=True, slots=True)
class Drive:
    """A run: how its query is started in a session, from where to where it goes, and what is to be done beside it.

    `beside` is called every few moments until the query has ended or is stopped.
    """

    start: Callable[[SparkSession], StreamingQuery]
    route: str
    checkpoint: Path
    once: bool
    settings: dict[str, str]
    beside: Callable[[], None] | None = None


def drive(report: Report, run: Drive) -> None:
    """Run until the end, or until a signal, which stops the query cleanly."""
    from headrace.spark.pipelines.running import PipelineError, follow, open_session

    asked: list[int] = []

    def on_signal(number: int, _: FrameType | None) -> None:
        asked.append(number)

    def listen() -> None:
        for number in SIGNALS:
            signal.signal(number, on_signal)

    listen()
    log = run.checkpoint / LOG
    with ExitStack() as open_things:
        try:
            spark = open_session(f"headrace-{report.name}", log, run.settings)
            open_things.callback(_stop_quietly, spark)
            listen()  # Spark has put a handler of its own there
            if not asked:
                report.say(f"{report.name}: {run.route}; Spark logs to {log}")
                with report:
                    for batch in follow(run.start(spark), lambda: bool(asked), run.beside):
                        report.add(batch)
        except Exception as error:
            # what is stopped half-way, with a JVM that perhaps had the signal too, fails in ways of its own
            if isinstance(error, PipelineError) and not asked:
                raise Failure(f"{error}; {log} may say more") from error
            if not asked:
                raise
    if asked and run.once:
        sys.exit(128 + asked[0])


def _stop_quietly(spark: Any) -> None:
    # the JVM may be gone; where it is not, it goes with this process
    with suppress(Exception):
        spark.stop()


@dataclass
class Report:
    """Says what gets done: JSON lines, a line a batch, or on a terminal one line that changes; and what it came to."""

    name: str
    as_json: bool
    batches: int = 0
    rows: int = 0
    late: int = 0
    unreadable: int = 0
    _live: Progress = field(init=False)

    def __post_init__(self) -> None:
        self._live = Progress(self.name, unit="records")

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.__exit__(kind, error, at)
        self.say(
            f"{self.batches:,} batches, {self.rows:,} records; "
            f"{self.late:,} dropped as late, {self.unreadable:,} unreadable"
        )

    def say(self, line: str) -> None:
        if not self.as_json:
            click.echo(line)

    def add(self, batch: Batch) -> None:
        self.batches += 1
        self.rows += batch.rows
        self.late += batch.late
        self.unreadable += batch.unreadable
        self._live.what = f"{self.name}: batch {batch.number}, {self.late:,} late, {self.unreadable:,} unreadable;"
        if self.as_json:
            print_json(asdict(batch))
        elif not sys.stdout.isatty():
            click.echo(
                f"batch {batch.number}: {batch.rows:,} records, {batch.rows_per_s:,.0f} a second, "
                f"{batch.late:,} dropped as late, {batch.unreadable:,} unreadable, {batch.state_rows:,} in the state"
            )
        self._live.advance(batch.rows)
