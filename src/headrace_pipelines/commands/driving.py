"""What every run of a pipeline shares: options, checkpoint, a session from start to signal, and what it reports."""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from headrace.cli.failures import Failure
from headrace.cli.options import bootstrap_options, connect, duration_option, json_option
from headrace.cli.output import Progress, counted, print_json
from headrace.wire.address import address_text
from headrace_pipelines.commands.metrics import Metric, MetricsServer, exposition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.client import Client
    from headrace.client.security import Security
    from headrace_pipelines.plots import Result
    from headrace_pipelines.running import Batch, Job

F = TypeVar("F", bound=Callable[..., Any])

LOG = "spark.log"
SIGNALS = (signal.SIGINT, signal.SIGTERM)
DRAWN_BATCHES = 50_000
"""So many batches are kept for the picture of a run, the last ones."""


def _kept(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    """Keep an option that is about what a run says, for its `Report`: no command has to hand it on."""
    ctx.meta[f"{__name__}.{option.name}"] = value


def _picture(ctx: click.Context, option: click.Parameter, value: Path | None) -> None:
    """What the end of a run would fail with fails before it."""
    from importlib.util import find_spec

    if value is not None:
        if value.suffix.lower() != ".png":
            raise click.BadParameter(f"{value} is not the name of a PNG: it must end in .png")
        if not value.absolute().parent.is_dir():
            raise click.BadParameter(f"there is no directory {value.absolute().parent}")
        if find_spec("matplotlib") is None:
            raise Failure("matplotlib is not installed; `pip install headrace-pipelines[plot]` installs it")
    _kept(ctx, option, value)


def run_options(command: F) -> F:
    """The options of every run, as the arguments `checkpoint`, `once`, `starting_offsets`, `trigger`, `max_per_batch`,
    `settings`, `as_json`, `bootstrap`, `timeout` and `security`.
    """
    options = (
        click.option("--checkpoint", required=True, metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
                     help="The run keeps its position, its state and Spark's log here."),
        click.option("--once", is_flag=True, help="Stop after the records of now; without it, run until a signal."),
        click.option("--starting-offsets", default="earliest", show_default=True, metavar="WHERE",
                     help="Start of a new checkpoint: earliest, latest, or JSON as for Spark's Kafka connector."),
        duration_option("--trigger", "1s", "Start at most one batch in this time."),
        click.option("--max-per-batch", type=click.IntRange(1), metavar="N", help="Read at most N records in a batch."),
        click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
                     help="A setting of Spark; may be repeated."),
        click.option("--plot", metavar="FILE.png", type=click.Path(path_type=Path, dir_okay=False), expose_value=False,
                     callback=_picture, help="Draw a picture of the results, or of the run, at its end."),
        click.option("--metrics-port", type=click.IntRange(0, 65535), metavar="PORT", expose_value=False,
                     callback=_kept, help="Serve the run's metrics for Prometheus; 0 is any free port."),
        click.option("--metrics-host", default="127.0.0.1", show_default=True, metavar="HOST", expose_value=False,
                     callback=_kept, help="The host for --metrics-port."),
        json_option,
        bootstrap_options,
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def delivery_option(about: str) -> Callable[[F], F]:
    """The option `--delivery`, with what it is about."""
    return click.option(
        "--delivery", type=click.Choice(["at-least-once", "exactly-once"]), default="at-least-once",
        show_default=True, help=about,
    )  # fmt: skip


def delivery_setting(delivery: str) -> dict[str, str]:
    """Returns what a checkpoint stores of it: a batch begun in one mode must not be repeated in the other."""
    return {} if delivery == "at-least-once" else {"delivery": delivery}


@dataclass(frozen=True, slots=True)
class Request:
    """What a run is asked for with `run_options`, --from, --to and --partitions.

    `timeout` is in seconds, `trigger` in milliseconds.
    """

    bootstrap: str
    timeout: float
    source: str
    sink: str
    partitions: int | None
    checkpoint: Path
    once: bool
    starting_offsets: str
    trigger: int
    max_per_batch: int | None
    settings: tuple[str, ...]
    as_json: bool
    security: Security
    delivery: str = "at-least-once"
    """Where a pipeline lets one choose."""

    @classmethod
    def out_of(cls, given: dict[str, Any]) -> Request:
        """Takes its fields out of the arguments of a command."""
        return cls(**{name: given.pop(name) for name in cls.__dataclass_fields__ if name in given})

    def job(self, sink: str) -> Job:
        """What Spark is to do; `sink` is --to, as it is to be shown."""
        from headrace_pipelines.running import Job

        return Job(
            bootstrap=self.bootstrap,
            source=self.source,
            sink=sink,
            checkpoint=self.checkpoint,
            starting=self.starting_offsets,
            once=self.once,
            trigger_ms=self.trigger,
            max_per_batch=self.max_per_batch,
            delivery=self.delivery,
            security=self.security,
        )

    def connect(self) -> Client:
        """A client of the cluster; the caller closes it."""
        return connect(self.bootstrap, self.timeout, self.security)


def need_spark() -> None:
    """Raises `Failure` where Spark is not installed."""
    from importlib.util import find_spec

    if find_spec("pyspark") is None:
        raise Failure("Spark is not installed; `pip install headrace[spark]` installs it")


def claim_checkpoint(checkpoint: Path, settings: dict[str, Any]) -> None:
    """`claim`, with `Failure` where the checkpoint is of other settings."""
    from headrace_pipelines.running import claim

    try:
        claim(checkpoint, settings)
    except ValueError as error:
        raise Failure(str(error)) from error


@dataclass(frozen=True, slots=True)
class Drive:
    """A run: how its query is started in a session, its source and target, and the work beside it.

    `beside` is called every few moments until the query has ended or is stopped.
    """

    start: Callable[[SparkSession], StreamingQuery]
    route: str
    checkpoint: Path
    once: bool
    settings: dict[str, str]
    beside: Callable[[], None] | None = None


class Stopping:
    """Listens for the signals that end a run; without it they would end it in the middle of something."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        # unlike an event, it may be woken in the middle of its own waiting, which is where signals are handled
        self._wake: SimpleQueue[None] = SimpleQueue()
        self.listen()

    def listen(self) -> None:
        """Starts listening, in the place of earlier handlers."""
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._numbers.append(number)
        self._wake.put(None)

    @property
    def requested(self) -> bool:
        """Whether there was a signal."""
        return bool(self._numbers)

    def wait(self, timeout_s: float) -> None:
        """Until there is a signal, or the time is over."""
        with suppress(Empty):
            self._wake.get(timeout=timeout_s)

    def leave(self, *, once: bool) -> None:
        """The end of a run: one that was to end by itself, and was stopped, leaves with the signal's exit code."""
        if self._numbers and once:
            sys.exit(128 + self._numbers[0])


def drive(report: Report, run: Drive) -> None:
    """Run until the end, or until a signal, which stops the query cleanly."""
    from headrace_pipelines.running import PipelineError, follow, open_session

    stopping = Stopping()
    log = run.checkpoint / LOG
    # if a signal ends the Java process first, py4j logs it
    logging.basicConfig(filename=log)
    with ExitStack() as open_things:
        try:
            spark = open_session(f"headrace-{report.name}", log, run.settings)
            open_things.callback(_stop_quietly, spark)
            stopping.listen()  # Spark has put a handler of its own there
            if not stopping.requested:
                report.say(f"{report.name}: {run.route}; Spark logs to {log}")
                with report:
                    for batch in follow(run.start(spark), lambda: stopping.requested, run.beside):
                        report.add(batch)
        except Exception as error:
            # a query stopped half-way, whose JVM perhaps had the signal too, fails in ways of its own
            if isinstance(error, PipelineError) and not stopping.requested:
                raise Failure(f"{error}; {log} may say more") from error
            if not stopping.requested:
                raise
    stopping.leave(once=run.once)


def _stop_quietly(spark: Any) -> None:
    # the JVM may be gone; where it is not, it goes with this process
    with suppress(Exception):
        spark.stop()


@dataclass
class Report:
    """Says what gets done: JSON lines, a line a batch, or on a terminal one line that changes; and what it came to.

    Where the command line asks for it, the numbers are served meanwhile, and a picture is drawn at the end: of what the
    run's target holds then, which `results` gives, or where there is nothing, of the run itself.
    """

    name: str
    as_json: bool
    results: Callable[[], list[Result]] | None = None
    batches: int = 0
    rows: int = 0
    late: int = 0
    unreadable: int = 0
    _live: Progress = field(init=False)
    _plot: Path | None = field(init=False)
    _listen: tuple[str, int | None] = field(init=False)
    _server: MetricsServer | None = field(init=False, default=None)
    _done: deque[tuple[float, Batch]] = field(init=False)

    def __post_init__(self) -> None:
        self._live = Progress(self.name, unit="records")
        ctx = click.get_current_context(silent=True)
        requested = {} if ctx is None else ctx.meta
        self._plot = requested.get(f"{__name__}.plot")
        self._listen = requested.get(f"{__name__}.metrics_host", ""), requested.get(f"{__name__}.metrics_port")
        self._done = deque(maxlen=DRAWN_BATCHES if self._plot else 1)

    def __enter__(self) -> Self:
        host, port = self._listen
        if port is not None:
            try:
                self._server = MetricsServer(host, port, self._page)
            except OSError as error:
                at = address_text(host, port)
                raise Failure(f"cannot serve metrics on {at}: {error.strerror or error}") from error
            self.say(f"metrics on {address_text(host, self._server.port)}/metrics")
        self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._live.__exit__(kind, error, at)
        if self._server is not None:
            self._server.close()
        self.say(
            f"{counted(self.batches, 'batch', 'batches')}, {counted(self.rows, 'record')}; "
            f"{self.late:,} dropped as late, {self.unreadable:,} unreadable"
        )
        if self._plot is not None and kind is None:
            self._draw(self._plot)

    def say(self, line: str) -> None:
        if not self.as_json:
            click.echo(line)

    def add(self, batch: Batch) -> None:
        self._done.append((time.time(), batch))
        self.batches += 1
        self.rows += batch.rows
        self.late += batch.late
        self.unreadable += batch.unreadable
        self._live.what = f"{self.name}: batch {batch.number}, {self.late:,} late, {self.unreadable:,} unreadable;"
        if self.as_json:
            print_json(asdict(batch))
        elif not sys.stdout.isatty():
            click.echo(
                f"batch {batch.number}: {counted(batch.rows, 'record')}, {batch.rows_per_s:,.0f} a second, "
                f"{batch.late:,} dropped as late, {batch.unreadable:,} unreadable, {batch.state_rows:,} in the state"
            )
        self._live.advance(batch.rows)

    def _draw(self, path: Path) -> None:
        from headrace_pipelines.plots import Done, draw

        batches = [Done(at_s, batch.rows, batch.behind, batch.rows_per_s) for at_s, batch in self._done]
        try:
            draw(path, self.name, batches, self.results() if self.results is not None else [])
        except OSError as error:
            raise Failure(f"cannot write the picture {path}: {error.strerror or error}") from error
        self.say(f"picture in {path}")

    def _page(self) -> str:
        """The numbers for Prometheus; asked for in another thread."""
        metrics = [
            Metric("batches_total", "Batches that this run has finished.", self.batches),
            Metric("records_total", "Records that this run has read.", self.rows),
            Metric("late_total", "Records that this run dropped behind the watermark.", self.late),
            Metric("unreadable_total", "Unreadable records that this run skipped.", self.unreadable),
        ]
        if self._done:
            at_s, batch = self._done[-1]
            metrics += [
                Metric("last_batch_timestamp_seconds", "When the last batch ended, since 1970.", at_s),
                Metric("last_batch_duration_seconds", "How long the last batch took.", batch.took_ms / 1000),
                Metric("last_batch_records", "Records in the last batch.", batch.rows),
                Metric("state_rows", "Windows, sessions or rows in the state.", batch.state_rows),
            ]
            if batch.behind is not None:
                metrics.append(Metric("behind_records", "Records left to read after the last batch.", batch.behind))
        return exposition(self.name, metrics)
