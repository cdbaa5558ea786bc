"""The properties that a node starts with: of a file, of the environment, and of options."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from headrace.cli.failures import NOT_FOUND, Failure
from headrace.cli.options import parse_pairs
from headrace.cli.serve.environment import settings_of

DEFAULT_LISTEN = "127.0.0.1:9092"
EVERY_INTERFACE = ("0.0.0.0", "[::]")


def default_data_directory() -> Path:
    """`headrace` in the user's data directory (XDG base directories)."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "headrace"


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


def properties_of_all(
    file: Path | None, listen: str | None, advertise: str | None, settings: Sequence[str]
) -> dict[str, str]:
    """Returns the properties of all nodes of a cluster, with the listeners of the first one."""
    given = {**({} if file is None else read_properties(file)), **settings_of(os.environ)}
    own = parse_pairs(settings, "--set")
    return _with_addresses({**given, **own}, own, listen, advertise, is_bare=file is None)


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
