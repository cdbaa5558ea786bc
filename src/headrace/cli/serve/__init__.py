"""`headrace serve`: a broker in this process, or several in processes of their own, until SIGTERM."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from headrace import __version__
from headrace.cli.failures import NOT_FOUND, Failure
from headrace.cli.options import parse_pairs
from headrace.cli.serve.environment import settings_of

DEFAULT_LISTEN = "127.0.0.1:9092"
EVERY_INTERFACE = ("0.0.0.0", "[::]")


def default_data_directory() -> Path:
    """`headrace` in the user's data directory (XDG base directories)."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "headrace"


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
        given = _given_for_all(file, listen, advertise, [*settings, *(["self.topics=true"] if self_topics else [])])
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


def _given_for_all(file: Path | None, listen: str | None, advertise: str | None, settings: list[str]) -> dict[str, str]:
    """The settings of all nodes, with the listeners of the first one."""
    given = {**({} if file is None else read_properties(file)), **settings_of(os.environ)}
    own = parse_pairs(settings, "--set")
    return _with_addresses({**given, **own}, own, listen, advertise, is_bare=file is None)


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


def read_properties(file: Path) -> dict[str, str]:
    """What a server.properties says. Raises `Failure` for one that cannot be read."""
    from headrace.config import load_properties_file

    try:
        return load_properties_file(str(file))
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}", NOT_FOUND) from error
    except ValueError as error:
        raise Failure(f"{file}: {error}") from error


def properties_of(
    file: Path | None,
    data: Sequence[str],
    listen: str | None,
    advertise: str | None,
    settings: Sequence[str],
) -> dict[str, str]:
    """What a server.properties with all of this would say. Raises `Failure` for a file that cannot be read."""
    properties = {"process.roles": "broker,controller", "node.id": "1"} if file is None else read_properties(file)
    properties.update(settings_of(os.environ))
    given = parse_pairs(settings, "--set")
    names_directories = {"log.dirs", "log.dir"} & (properties.keys() | given.keys())
    if data:
        properties.pop("log.dir", None)
        properties["log.dirs"] = ",".join(data)
    elif not names_directories:
        properties["log.dirs"] = str(default_data_directory())
    return _with_addresses(properties, given, listen, advertise, is_bare=file is None)


def _with_addresses(
    properties: dict[str, str], given: Mapping[str, str], listen: str | None, advertise: str | None, *, is_bare: bool
) -> dict[str, str]:
    """The properties with what --listen and --advertise say, where --set (`given`) does not say it; `is_bare`: there is
    no file, and somewhere a node has to listen."""
    if listen is not None or (is_bare and "listeners" not in {**properties, **given}):
        properties["listeners"] = _with_listener(properties, listen or DEFAULT_LISTEN)
        properties.pop("advertised.listeners", None)
    if listen is not None and advertise is None and "advertised.listeners" not in given:
        if listen.rpartition(":")[0] in EVERY_INTERFACE:
            why = f"{listen} means every interface, which no client can connect to: add --advertise HOST:PORT"
            raise click.BadParameter(why, param_hint="--listen")
    if advertise is not None:
        properties["advertised.listeners"] = f"{_client_listener(properties)}://{_address(advertise, '--advertise')}"
    return {**properties, **given}


def _address(text: str, option: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT", param_hint=option)
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise click.BadParameter(f"{text!r}: put an IPv6 address in brackets, such as [::1]:9092", param_hint=option)
    return f"{host}:{port}"


def _endpoints(properties: dict[str, str]) -> list[str]:
    return [text.strip() for text in properties.get("listeners", "").split(",") if text.strip()]


def _controller_names(properties: dict[str, str]) -> set[str]:
    return {name.strip().upper() for name in properties.get("controller.listener.names", "").split(",")}


def _client_listener(properties: dict[str, str]) -> str:
    """The name of the first listener that is not a controller's."""
    controllers = _controller_names(properties)
    names = [text.partition("://")[0] for text in _endpoints(properties)]
    return next((name for name in names if name.upper() not in controllers), "PLAINTEXT")


def _with_listener(properties: dict[str, str], listen: str) -> str:
    """The file's controller listeners, and one for clients at this address."""
    name = _client_listener(properties)
    controllers = _controller_names(properties)
    kept = [text for text in _endpoints(properties) if text.partition("://")[0].upper() in controllers]
    return ",".join([f"{name}://{_address(listen, '--listen')}", *kept])


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
