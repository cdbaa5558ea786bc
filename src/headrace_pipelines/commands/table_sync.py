"""`headrace pipeline run table-sync`: a topic kept equal to a table, or a table's changes into a topic."""

from __future__ import annotations

import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from headrace.cli.failures import Failure
from headrace.cli.options import INT32_MAX, duration_option, parse_pairs
from headrace_pipelines.commands.driving import (
    Drive,
    Report,
    Request,
    Stopping,
    claim_checkpoint,
    delivery_option,
    delivery_setting,
    drive,
    need_spark,
    run_options,
)

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from headrace.spark.options import SinkOptions
    from headrace_pipelines.running import Batch
    from headrace_pipelines.tables.dead_letters import DeadLetters
    from headrace_pipelines.tables.following import Target, Topic
    from headrace_pipelines.tables.layout import Layout
    from headrace_pipelines.tables.places import Place
    from headrace_pipelines.tables.watching import Ledger, Page, Source, Watch, Watcher

NAME = "table-sync"
COMMITS = "headrace-table-sync-commits"
"""The topic where runs keep, exactly once, which of their batches the cluster has."""
PLACES = "TOPIC|TABLE"
TO_TABLE = (
    "key_schema", "value_schema", "key_format", "buckets", "grace", "dead_letters", "starting_offsets", "settings",
)  # fmt: skip
TO_TOPIC = ("key_columns", "by", "look_back", "deleted_column", "included", "excluded", "partitions")
"""Options of one direction alone."""


@click.command(NAME)
@click.option("--from", "source", required=True, metavar=PLACES, help="The topic, or the table, to read.")
@click.option("--to", "sink", required=True, metavar=PLACES, help="The table, or the topic, to write; created if new.")
@click.option("--key-schema", metavar="COLUMNS", help="Columns of the key. Default: key STRING.")
@click.option("--value-schema", metavar="COLUMNS", help="Columns of the value, such as 'name STRING, price DOUBLE'.")
@click.option("--key-format", type=click.Choice(["text", "json"]),
              help="Format of the record's key. Default: text for one column, json for several.")  # fmt: skip
@click.option("--buckets", type=click.IntRange(1, 65536), default=16, show_default=True, help="Files of Parquet.")
@duration_option("--grace", "10m", "How long a replaced file of Parquet stays.")
@click.option("--dead-letters", metavar="TOPIC",
              help="Send unreadable and refused records here. Default: skip unreadable ones, fail at a "
                   "refused one.")  # fmt: skip
@click.option("--key-column", "key_columns", multiple=True, metavar="NAME", help="From a table: its key; repeatable.")
@click.option("--by", metavar="NAME", help="From a table: the column that increases with every change.")
@click.option("--look-back", metavar="TIME|NUMBER",
              help="From a table: how late a change may appear. Default: 1m, or 1000 for a number.")  # fmt: skip
@click.option("--deleted-column", metavar="NAME", help="From a table: the column that marks deleted rows.")
@click.option("--include-column", "included", multiple=True, metavar="NAME",
              help="From a table: put only this column in the value; repeatable. Default: all.")  # fmt: skip
@click.option("--exclude-column", "excluded", multiple=True, metavar="NAME",
              help="From a table: leave this column out of the value; repeatable.")  # fmt: skip
@click.option("--partitions", "-p", type=click.IntRange(1, INT32_MAX), help="Partitions of a new topic. Default: 1.")
@delivery_option("exactly-once: the run writes to a topic in transactions.")
@run_options
@click.pass_context
def table_sync(ctx: click.Context, /, **given: Any) -> None:
    """Keep a table equal to a topic, or write the changes of a table to a topic.

    \b
    A table is  postgresql://USER@HOST:PORT/DATABASE#TABLE  (or #SCHEMA.TABLE)
                sqlite:PATH#TABLE
                parquet:DIRECTORY                           (to write only)

    To a table: a value is a JSON object, a null value deletes. The run applies each batch atomically, together with its
    offsets, so that a repeated batch changes nothing. From a table: the run writes rows as JSON objects, at least once
    unless --delivery says otherwise.
    """
    request = Request.out_of(given)
    _need_packages(request)
    source, sink = _place(request.source, "--from"), _place(request.sink, "--to")
    if (source is None) == (sink is None):
        what = "topics; `headrace pipeline run mirror` copies those" if source is None else "tables"
        raise click.UsageError(f"--from and --to are both {what}: one must be a topic, the other a table")
    for name in TO_TOPIC if sink is not None else TO_TABLE:
        if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT:
            direction = "from a table" if sink is not None else "to a table"
            raise click.UsageError(f"{_option(ctx, name)} works only {direction}")
    if sink is not None:
        _to_table(request, sink, **{name: given[name] for name in TO_TABLE if name in given})
    else:
        assert source is not None
        _to_topic(request, source, **{name: given[name] for name in TO_TOPIC if name in given})


def _option(ctx: click.Context, name: str) -> str:
    return next(each.opts[0] for each in ctx.command.params if each.name == name)


def _need_packages(request: Request) -> None:
    from importlib.util import find_spec

    need_spark()
    if any(text.startswith(("postgresql:", "postgres:")) for text in (request.source, request.sink)):
        if find_spec("psycopg") is None:
            raise Failure("psycopg is not installed; `pip install headrace-pipelines[postgres]` installs it")


def _place(text: str, option: str) -> Place | None:
    from headrace_pipelines.tables.places import parse_place

    try:
        return parse_place(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


# -- a topic into a table


def _to_table(
    request: Request,
    place: Place,
    *,
    key_schema: str | None,
    value_schema: str | None,
    key_format: str | None,
    buckets: int,
    grace: int,
    dead_letters: str | None,
) -> None:
    """Check everything that can be checked without Spark, which takes seconds to start; then run."""
    from headrace.spark.options import source_options
    from headrace_pipelines.tables import syncing
    from headrace_pipelines.tables.following import TableError
    from headrace_pipelines.tables.layout import layout_of

    spark_settings = parse_pairs(request.settings, "--set")
    job = request.job(str(place))
    if dead_letters == request.source:
        raise click.UsageError("--dead-letters names the topic that the run reads")
    try:
        layout = layout_of(key_schema or "key STRING", value_schema or "", key_format)
        source_options(job.read_options(), streaming=True)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    ours = {"pipeline": NAME, "from": request.source, "to": str(place), **layout.stored()}
    if dead_letters is not None and (delivery := delivery_setting(request.delivery)):
        ours |= {**delivery, "dead_letters": dead_letters}
    claim_checkpoint(request.checkpoint, ours)
    target = _target(place, layout, buckets, grace / 1000)
    topic = _topic(request)
    try:
        target.open(topic, uuid.uuid4().hex)
    except TableError as error:
        raise Failure(str(error)) from None
    letters = None if dead_letters is None else _dead_letters(request, dead_letters)
    sync = syncing.sync_of(layout, target, letters)
    begin = partial(syncing.start, sync=sync, target=target, job=job)
    run = Drive(begin, f"{request.source} to {place}", request.checkpoint, request.once, spark_settings)
    drive(Report(NAME, request.as_json), run)


def _target(place: Place, layout: Layout, buckets: int, grace_s: float) -> Target:
    from headrace_pipelines.tables.places import ParquetPlace, PostgresPlace

    if isinstance(place, ParquetPlace):
        from headrace_pipelines.tables.parquet import ParquetTable

        return ParquetTable(place, layout, buckets=buckets, grace_s=grace_s)
    if isinstance(place, PostgresPlace):
        from headrace_pipelines.tables.postgres import PostgresTable

        return PostgresTable(place, layout)
    from headrace_pipelines.tables.sqlite import SqliteTable

    return SqliteTable(place, layout)


def _dead_letters(request: Request, topic: str) -> DeadLetters:
    """The way to the topic, which is made where it does not exist."""
    from headrace.client import admin
    from headrace_pipelines.tables.dead_letters import DeadLetters

    with request.connect() as client:
        admin.create_topic(client, topic, exist_ok=True)
    options = _sink(request, topic)
    if options.exactly_once is None:
        return DeadLetters(request.source, lambda rows, _: _send(rows, options))
    return DeadLetters(request.source, partial(_send_once, options=options, checkpoint=request.checkpoint), once=True)


def _sink(request: Request, topic: str) -> SinkOptions:
    """How the run writes to a topic."""
    from headrace.spark.client_settings import security_options
    from headrace.spark.options import sink_options

    options = {"kafka.bootstrap.servers": request.bootstrap, "topic": topic, "delivery": request.delivery}
    options |= security_options(request.security)
    return sink_options({**options, "commitTopic": COMMITS, "markerTopic": COMMITS})


def _send(rows: pa.RecordBatch, options: SinkOptions) -> None:
    """Writes rows, and returns once the brokers have acknowledged them."""
    from headrace.spark.delivery.at_least_once import write_rows

    write_rows(iter([rows]), options)


def _send_once(rows: pa.RecordBatch, batch_id: int, *, options: SinkOptions, checkpoint: Path) -> None:
    """Writes what a batch of the query has for the topic, unless it is there."""
    from headrace.spark.checkpoint_offsets import digest, query_id
    from headrace.spark.delivery.exactly_once import commit_batch
    from headrace.spark.delivery.messages import encode_rows
    from headrace.spark.delivery.spark_task import QueryBatch

    task = encode_rows(iter([rows]), options, QueryBatch(query_id(checkpoint), "", batch_id))
    commit_batch(options, [task], batch_id, digest(str(checkpoint), batch_id))


def _topic(request: Request) -> Topic:
    from headrace_pipelines.tables.following import Topic

    with request.connect() as client:
        (found,) = client.topics([request.source])
        return Topic(found.name, found.id.hex() if any(found.id) else "")


# -- a table into a topic


def _to_topic(
    request: Request,
    place: Place,
    *,
    key_columns: tuple[str, ...],
    by: str | None,
    look_back: str | None,
    deleted_column: str | None,
    included: tuple[str, ...],
    excluded: tuple[str, ...],
) -> None:
    """Look, send, wait; until there is nothing more with --once, else until a signal."""
    from headrace.client import admin
    from headrace.spark.delivery.markers import HistoryError
    from headrace_pipelines.tables.following import TableError
    from headrace_pipelines.tables.moments import look_back_of
    from headrace_pipelines.tables.watching import PAGE_ROWS, Watch, Watcher

    if not key_columns or by is None:
        raise click.UsageError("from a table, give --key-column and --by")
    try:
        back = look_back_of(look_back)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--look-back") from None
    if included and excluded:
        raise click.UsageError("choose one of --include-column and --exclude-column")
    watch = Watch(key_columns, by, deleted_column, included, excluded)
    source = _source(place, watch)
    ours: dict[str, Any] = {"key": list(key_columns), "by": by, "deleted": deleted_column}
    ours |= delivery_setting(request.delivery)
    claim_checkpoint(request.checkpoint, {"pipeline": NAME, "from": str(place), "to": request.sink, **ours})
    try:
        source.check()
        with request.connect() as client:
            settings, partitions = {"cleanup.policy": "compact"}, request.partitions or 1
            admin.create_topic(client, request.sink, partitions=partitions, configs=settings, exist_ok=True)
        watcher = Watcher(source, _ledger(request), back, request.max_per_batch or PAGE_ROWS)
        _watch(request, watcher, f"{place} to {request.sink}")
    except (TableError, HistoryError) as error:
        raise Failure(str(error)) from None


def _ledger(request: Request) -> Ledger:
    """How the run sends its pages, and what it knows of those sent before."""
    from headrace_pipelines.tables.moments import Position
    from headrace_pipelines.tables.pages import Pages
    from headrace_pipelines.tables.watching import Acknowledged

    options = _sink(request, request.sink)
    if options.exactly_once is None:
        return Acknowledged(partial(_send, options=options), Position(request.checkpoint))
    return Pages(request.checkpoint, options)


def _source(place: Place, watch: Watch) -> Source:
    from headrace_pipelines.tables.places import PostgresPlace, SqlitePlace
    from headrace_pipelines.tables.sources import PostgresSource, SqliteSource

    if isinstance(place, PostgresPlace):
        return PostgresSource(place, watch, _say)
    if isinstance(place, SqlitePlace):
        return SqliteSource(place, watch, _say)
    raise click.UsageError("the run cannot read from a table of Parquet files: it has no increasing column")


def _say(line: str) -> None:
    click.echo(f"headrace: {line}", err=True)


def _watch(request: Request, watcher: Watcher, route: str) -> None:
    """Look for changes, as often as `--trigger` says, until a signal; once with `--once`."""
    stopping = Stopping()
    report = Report(NAME, request.as_json)
    report.say(f"{NAME}: {route}")
    pages = 0
    with report:
        while not stopping.requested:
            for page in watcher.look():
                report.add(_batch(pages, page))
                pages += 1
                if stopping.requested:
                    break
            if request.once:
                break
            stopping.wait(request.trigger / 1000)
    stopping.leave(once=request.once)


def _batch(number: int, page: Page) -> Batch:
    from headrace_pipelines.running import Batch

    rows_per_s = page.sent / max(page.took_ms, 1) * 1000
    return Batch(number, page.sent, rows_per_s, 0, 0, page.remembered, page.took_ms)
