"""`headrace pipeline`: programs over Spark's Structured Streaming, from topics to topics or tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

import click

from headrace.cli.help_text import CommandGroup
from headrace.cli.options import INT32_MAX, duration_option, json_option, parse_pairs
from headrace.cli.output import print_json, print_table
from headrace_pipelines.commands.driving import (
    Drive,
    Report,
    Request,
    claim_checkpoint,
    delivery_option,
    delivery_setting,
    drive,
    need_spark,
    run_options,
)
from headrace_pipelines.commands.mirror import mirror
from headrace_pipelines.commands.table_sync import table_sync

F = TypeVar("F", bound=Callable[..., Any])


@click.group(cls=CommandGroup)
def pipeline() -> None:
    """Run Spark pipelines, from topics to topics or tables. Needs the extra `spark` and Java 17 or later."""


@pipeline.group(cls=CommandGroup)
def run() -> None:
    """Run the pipeline NAME: headrace pipeline run NAME --checkpoint DIR, with its source and its target.

    A run continues from its checkpoint, also after it was killed. Delivery is at least once, unless --delivery says
    otherwise: a run may write a result again, under the same key. log-monitor, sessions and surge read JSON objects;
    the options ending in -field name their fields. They skip a record that lacks a needed field, and count it as
    unreadable.
    """


@pipeline.command("list")
@json_option
def list_pipelines(as_json: bool) -> None:
    """List the pipelines."""
    found = [(name, command.get_short_help_str(limit=100)) for name, command in run.commands.items()]
    if as_json:
        print_json([{"pipeline": name, "about": about} for name, about in found])
    else:
        print_table(["pipeline", "about"], found)


def shared_options(command: F) -> F:
    """The options that all pipelines share; the command receives them as `request`."""
    from functools import wraps

    @click.option("--from", "source", required=True, metavar="TOPIC", help="The topic to read.")
    @click.option("--to", "sink", required=True, metavar="TOPIC", help="The topic to write; if new, compacted.")
    @click.option("--partitions", "-p", type=click.IntRange(1, INT32_MAX),
                  help="Partitions of --to if it is new. Default: as --from.")  # fmt: skip
    @delivery_option("exactly-once: a batch of results is one transaction.")
    @run_options
    @wraps(command)
    def with_request(**given: Any) -> Any:
        return command(Request.out_of(given), **given)

    return with_request  # type: ignore[return-value]


time_unit_option = click.option(
    "--time-unit",
    type=click.Choice(["s", "ms", "us"]),
    default="ms",
    show_default=True,
    help="Unit of numeric times, since 1970; text times are ISO 8601, in UTC if they name no zone.",
)
watermark_option = duration_option("--watermark", "10m", "Drop events that are later than this.")


@run.command()
@click.option("--zone-field", default="zone", show_default=True, metavar="NAME")
@click.option("--time-field", default="time", show_default=True, metavar="NAME",
              help="The field with the event's time.")  # fmt: skip
@click.option("--supply-field", default="supply", show_default=True, metavar="NAME",
              help="The event counts as supply if this is true, or a number other than 0.")  # fmt: skip
@click.option("--supply-at-most", type=float, metavar="NUMBER", help="Instead: it counts if the field is at most this.")
@time_unit_option
@duration_option("--window", "5m", "Length of a window.", step_ms=1000)
@watermark_option
@shared_options
def surge(request: Request, window: int, watermark: int, **fields: Any) -> None:
    """Supply and demand by zone and window; surge is the demand for each one supplied.

    Every event counts as demand. The run writes a window with each batch that changes it, under the key
    `zone|start of the window`:
    {"zone", "start", "demand", "supply", "surge"}.
    """
    _run("surge", request, {**fields, "window": spark_time(window), "watermark": spark_time(watermark)})


@run.command()
@click.option("--user-field", default="user", show_default=True, metavar="NAME")
@click.option("--time-field", default="time", show_default=True, metavar="NAME",
              help="The field with the event's time.")  # fmt: skip
@click.option("--page-field", default="page", show_default=True, metavar="NAME",
              help="The field with the page that the user saw.")  # fmt: skip
@time_unit_option
@duration_option("--gap", "30m", "A session ends after a gap of this length.", step_ms=1000)
@watermark_option
@click.option("--top", type=click.IntRange(1, 100), default=3, show_default=True, metavar="N",
              help="How many pages to keep.")  # fmt: skip
@shared_options
def sessions(request: Request, gap: int, watermark: int, **fields: Any) -> None:
    """Sessions of users: how many events, and the pages seen most.

    The run writes a session once, when the watermark has passed its end and the gap, under the key `user|first event`:
    {"user", "start", "end", "events", "top_pages": [{"page", "views"}]}.
    """
    _run("sessions", request, {**fields, "gap": spark_time(gap), "watermark": spark_time(watermark)})


@run.command("log-monitor")
@click.option("--service-field", default="service", show_default=True, metavar="NAME")
@click.option("--time-field", default="time", show_default=True, metavar="NAME", help="The field with the line's time.")
@click.option("--level-field", default="level", show_default=True, metavar="NAME")
@click.option("--error-level", "error_levels", multiple=True, default=("ERROR", "CRITICAL", "FATAL"), show_default=True,
              metavar="LEVEL", help="A level that counts as an error, in any case; may be repeated.")  # fmt: skip
@click.option("--lines-field", default="", metavar="NAME",
              help="The field with a record's number of lines. Default: one.")  # fmt: skip
@click.option("--errors-field", default="", metavar="NAME",
              help="The field with its number of errors. Default: by the level.")  # fmt: skip
@time_unit_option
@duration_option("--window", "1m", "Length of a window.", step_ms=1000)
@watermark_option
@click.option("--alert-rate", type=click.FloatRange(0, 1), default=0.05, show_default=True, metavar="SHARE",
              help="A window alerts if at least this share of its lines are errors,")  # fmt: skip
@click.option("--alert-lines", type=click.IntRange(1), default=20, show_default=True, metavar="N",
              help="and it has at least this many lines.")  # fmt: skip
@shared_options
def log_monitor(request: Request, window: int, watermark: int, **fields: Any) -> None:
    """Error rates of services by window, with alerts.

    The run writes a window with each batch that changes it, under the key `service|start of the window`:
    {"service", "start", "lines", "errors", "rate", "alert"}.
    """
    _run("log-monitor", request, {**fields, "window": spark_time(window), "watermark": spark_time(watermark)})


run.add_command(table_sync)
run.add_command(mirror)


def spark_time(ms: int) -> str:
    """Milliseconds as a duration of Spark."""
    return f"{ms} milliseconds"


def _run(name: str, request: Request, chosen: dict[str, Any]) -> None:
    """Check everything that can be checked without Spark, which takes seconds to start; then run."""
    if request.source == request.sink:
        raise click.UsageError("--from and --to are one topic: the pipeline would read what it writes")
    spark_settings = parse_pairs(request.settings, "--set")
    need_spark()
    from headrace.spark.options import source_options
    from headrace_pipelines.plots import latest_results
    from headrace_pipelines.running import start

    job = request.job(request.sink)
    try:
        source_options(job.read_options(), streaming=True)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    program = _program(name, chosen)
    ours = {"pipeline": name, "from": request.source, "to": request.sink, **asdict(program)}
    ours |= delivery_setting(request.delivery)
    claim_checkpoint(request.checkpoint, ours)
    _prepare_topics(request)
    route = f"{request.source} to {request.sink}"
    begin = partial(start, pipeline=program, job=job)
    results = partial(latest_results, request.bootstrap, request.sink, request.security)
    report = Report(name, request.as_json, results)
    drive(report, Drive(begin, route, request.checkpoint, request.once, spark_settings))


def _program(name: str, chosen: dict[str, Any]) -> Any:
    from headrace_pipelines.log_monitor import LogMonitor
    from headrace_pipelines.sessions import Sessions
    from headrace_pipelines.surge import Surge

    programs: dict[str, type[Any]] = {"surge": Surge, "sessions": Sessions, "log-monitor": LogMonitor}
    return programs[name](**chosen)


def _prepare_topics(request: Request) -> None:
    """The topic to read must be there; the one to write is made where it is not."""
    from headrace.client import admin

    with request.connect() as client:
        (source,) = client.topics([request.source])
        partitions = request.partitions or len(source.partitions)
        settings = {"cleanup.policy": "compact"}
        admin.create_topic(client, request.sink, partitions=partitions, configs=settings, exist_ok=True)
