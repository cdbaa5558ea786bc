"""`headrace serve`: a broker in this process, or several in processes of their own, until SIGTERM."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from headrace.cli.failures import Failure
from headrace.cli.serve.properties import (
    DEFAULT_LISTEN,
    default_data_directory,
    properties_of,
    properties_of_all,
)
from headrace.version import __version__


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[server.properties]")
@click.option(
    "--data", multiple=True, type=click.Path(path_type=Path), metavar="DIR", help="Log directory; repeatable."
)
@click.option("--listen", metavar="HOST:PORT", help=f"Listen here; port 0 takes a free one. [{DEFAULT_LISTEN}]")
@click.option("--advertise", metavar="HOST:PORT", help="The address that clients connect to.")
@click.option("--brokers", type=click.IntRange(min=1), metavar="N", help="Run a cluster of N brokers on this machine.")
@click.option(
    "--controller-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="With --brokers: the first controller's port. [10000 above the first client's]",
)
@click.option("--add-scram", "-S", multiple=True, metavar="USER", help="With --brokers: a fresh cluster begins with "
              "this user, as 'SCRAM-SHA-256=[name=ann,password=...]'; may be repeated.")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any setting; may be repeated.")
@click.option("--self-topics", is_flag=True, help="Publish the broker's own log and metrics in topics.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Format of log lines. [text]")
@click.option("--verbose", "-v", is_flag=True, help="Log more.")
@click.option("--lifeline", type=int, hidden=True, help="Stop when this descriptor is at its end.")
def serve(
    file: Path | None,
    data: tuple[Path, ...],
    listen: str | None,
    advertise: str | None,
    brokers: int | None,
    controller_port: int | None,
    add_scram: tuple[str, ...],
    settings: tuple[str, ...],
    self_topics: bool,
    log_format: str,
    verbose: bool,
    lifeline: int | None,
) -> None:
    """Run a broker until SIGTERM, SIGHUP or an interrupt, each of which shuts it down cleanly.

    The file is Apache Kafka's server.properties; without one, the process is a broker and a controller. Variables such
    as HEADRACE_SERVER_LOG_DIRS (log.dirs; `__` is an underscore, `___` a hyphen) override the file, and options
    override both. The broker formats empty log directories, and adopts those of Apache Kafka as they are.

    With --brokers N this process runs N of them as one cluster, a process each, in folders below one --data, and
    restarts those that die. The brokers listen on the port of --listen and the ports after it; with port 0, on free
    ports, which later starts in the same folder use again. Topics have three replicas if there are three brokers.
    Metrics are served from port 9404 on, or from the port of --set metrics.listener=HOST:PORT on. The file applies to
    all nodes, and has the listeners of the first one. If clients have to log in, nodes log in to each other too: as the
    file configures their listeners, or at listeners of their own.

    With --self-topics it also publishes its log lines and metrics as JSON, in headrace.logs and headrace.metrics.
    """
    if brokers is not None:
        options = ["--log-format", log_format, *(["--verbose"] if verbose else [])]
        given = properties_of_all(file, listen, advertise, [*settings, *(["self.topics=true"] if self_topics else [])])
        _serve_several(brokers, data, controller_port, given, add_scram, options, as_json=log_format == "json")
        return
    for value, option in ((controller_port, "--controller-port"), (add_scram or None, "--add-scram")):
        if value is not None:
            raise click.BadParameter("it goes with --brokers", param_hint=option)
    properties = properties_of(file, [str(path) for path in data], listen, advertise, settings)
    if self_topics:
        properties["self.topics"] = "true"
    if log_format == "text":
        _introduce(properties)
    raise SystemExit(_run(properties, as_json=log_format == "json", verbose=verbose, lifeline=lifeline))


def _serve_several(
    brokers: int,
    data: tuple[Path, ...],
    controller_port: int | None,
    given: dict[str, str],
    add_scram: tuple[str, ...],
    options: list[str],
    *,
    as_json: bool,
) -> None:
    from headrace.cli.serve.several import serve_several

    if len(data) > 1:
        raise click.BadParameter("one folder, in which each node has its own", param_hint="--data")
    folder = data[0] if data else default_data_directory().with_name("headrace-cluster")
    if not as_json:
        click.echo(f"headrace: version {__version__}, a cluster of {brokers} brokers", err=True)
        click.echo(f"headrace: data in {folder}", err=True)
    serve_several(brokers, folder, controller_port, given, add_scram, options, as_json=as_json)


def _introduce(properties: Mapping[str, str]) -> None:
    """Prints what starts, and where its data is. Where it listens follows once it does."""
    roles = " and ".join(each.strip() for each in properties.get("process.roles", "").split(",") if each.strip())
    node_id = properties.get("node.id") or properties.get("broker.id")
    click.echo(f"headrace: version {__version__}, node {node_id}: {roles}", err=True)
    click.echo(f"headrace: data in {properties.get('log.dirs') or properties.get('log.dir')}", err=True)


def _run(properties: dict[str, str], *, as_json: bool, verbose: bool, lifeline: int | None) -> int:
    """Check the settings, start, serve. Raises `Failure` for what must not or cannot start, in one line."""
    import logging

    from headrace.broker.serve import StartError, run, say_line
    from headrace.broker.telemetry.log_format import log_to_standard_error
    from headrace.config import ConfigError

    log_to_standard_error(as_json=as_json, level=logging.DEBUG if verbose else logging.INFO)
    say = _say_as_json if as_json else say_line
    try:
        return run(properties, say, lifeline=lifeline)
    except (ConfigError, StartError) as error:
        raise Failure(str(error)) from error


def _say_as_json(line: str) -> None:
    """Prints a line about a listener where all else is JSON too."""
    import json

    print(json.dumps({"event": line.removeprefix("headrace: ")}), flush=True)
