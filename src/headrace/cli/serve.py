"""`headrace serve`: a broker in this process, until SIGTERM."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from headrace.cli.failures import NOT_FOUND, Failure
from headrace.cli.options import parse_pairs

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
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any setting; may be repeated.")
@click.option("--self-topics", is_flag=True, help="Publish the broker's own log and metrics in topics.")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Format of log lines. [text]")
@click.option("--verbose", "-v", is_flag=True, help="Log more.")
def serve(
    file: Path | None,
    data: tuple[Path, ...],
    listen: str | None,
    advertise: str | None,
    settings: tuple[str, ...],
    self_topics: bool,
    log_format: str,
    verbose: bool,
) -> None:
    """Run a broker until SIGTERM, SIGHUP or an interrupt, each of which shuts it down cleanly.

    The file is Apache Kafka's server.properties; without one, the process is a broker and a controller. Options win
    over the file. The broker formats empty log directories, and adopts those of Apache Kafka as they are.

    With --self-topics it also publishes its log lines and metrics as JSON, in headrace.logs and headrace.metrics.
    """
    properties = properties_of(file, [str(path) for path in data], listen, advertise, settings)
    if self_topics:
        properties["self.topics"] = "true"
    click.echo(f"headrace: data in {properties.get('log.dirs') or properties.get('log.dir')}", err=True)
    raise SystemExit(_run(properties, as_json=log_format == "json", verbose=verbose))


def properties_of(
    file: Path | None,
    data: Sequence[str],
    listen: str | None,
    advertise: str | None,
    settings: Sequence[str],
) -> dict[str, str]:
    """What a server.properties with all of this would say. Raises `Failure` for a file that cannot be read."""
    properties: dict[str, str] = {}
    if file is None:
        properties = {"process.roles": "broker,controller", "node.id": "1"}
    else:
        from headrace.config import load_properties_file

        try:
            properties = load_properties_file(str(file))
        except OSError as error:
            raise Failure(f"{file}: {error.strerror}", NOT_FOUND) from error
        except ValueError as error:
            raise Failure(f"{file}: {error}") from error
    given = parse_pairs(settings, "--set")
    names_directories = {"log.dirs", "log.dir"} & (properties.keys() | given.keys())
    if data:
        properties.pop("log.dir", None)
        properties["log.dirs"] = ",".join(data)
    elif not names_directories:
        properties["log.dirs"] = str(default_data_directory())
    if listen is not None or (file is None and "listeners" not in given):
        properties["listeners"] = _with_listener(properties, listen or DEFAULT_LISTEN)
        properties.pop("advertised.listeners", None)
    if listen is not None and advertise is None and "advertised.listeners" not in given:
        if listen.rpartition(":")[0] in EVERY_INTERFACE:
            why = f"{listen} means every interface, which no client can connect to: add --advertise HOST:PORT"
            raise click.BadParameter(why, param_hint="--listen")
    if advertise is not None:
        properties["advertised.listeners"] = f"{_client_listener(properties)}://{_address(advertise, '--advertise')}"
    properties.update(given)
    return properties


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


def _run(properties: dict[str, str], *, as_json: bool, verbose: bool) -> int:
    """Check the settings, start, serve. Raises `Failure` for what must not or cannot start, in one line."""
    import logging

    from headrace.broker.serve import StartError, run
    from headrace.broker.telemetry.log_format import log_to_standard_error
    from headrace.config import ConfigError

    log_to_standard_error(as_json=as_json, level=logging.DEBUG if verbose else logging.INFO)
    try:
        return run(properties)
    except (ConfigError, StartError) as error:
        raise Failure(str(error)) from error
