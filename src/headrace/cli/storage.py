"""`headrace storage`: directories formatted for a cluster, and what formatted ones belong to. See Kafka's
`kafka-storage`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli.failures import Failure
from headrace.cli.help_text import CommandGroup
from headrace.cli.options import json_option
from headrace.cli.output import print_json, print_table
from headrace.metadata.levels import KRAFT_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.config import BrokerConfig
    from headrace.raft.control import Voter
    from headrace.wire.messages.metadata_records import UserScramCredentialRecord

CLUSTER_ID = re.compile(r"[A-Za-z0-9_-]+")

file_option = click.option(
    "--config",
    "-c",
    "file",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The node's server.properties.",
)


@click.group(cls=CommandGroup)
def storage() -> None:
    """Format the directories of a node, and show which cluster they belong to."""


@storage.command("format")
@click.option("--cluster-id", "-t", required=True, metavar="ID", help="The cluster: the same for each of its nodes.")
@file_option
@click.option("--standalone", "-s", is_flag=True, help="This controller is the only voter at first.")
@click.option(
    "--initial-controllers",
    "-I",
    metavar="VOTERS",
    help="The first voters of the cluster, as id@host:port:directory-id, with commas between them.",
)
@click.option("--no-initial-controllers", "-N", "joins", is_flag=True, help="The cluster exists, and this node joins.")
@click.option("--feature", "-f", "features", multiple=True, metavar="NAME=LEVEL", help="Begin with this level of a "
              "feature, as kraft.version=0; may be repeated.")  # fmt: skip
@click.option("--release-version", "-r", "release", metavar="RELEASE", help="Begin with the feature levels of this "
              "release, as 4.1 or 4.1-IV0, by default the newest.")  # fmt: skip
@click.option("--add-scram", "-S", "add_scram", multiple=True, metavar="USER", help="Begin with this user, as "
              "'SCRAM-SHA-256=[name=ann,password=...]'; may be repeated.")  # fmt: skip
@click.option(
    "--ignore-formatted",
    "-g",
    is_flag=True,
    help="Leave directories as they are if they are already formatted for this cluster.",
)
@json_option
def format_directories(
    cluster_id: str,
    file: Path,
    standalone: bool,
    initial_controllers: str | None,
    joins: bool,
    features: tuple[str, ...],
    release: str | None,
    add_scram: tuple[str, ...],
    ignore_formatted: bool,
    as_json: bool,
) -> None:
    """Format the directories that a server.properties names.

    The metadata log is in metadata.log.dir, or in the first of log.dirs. A controller without controller.quorum.voters
    is --standalone by default.
    """
    from headrace.broker.quorum.metadata_start import format_storage, when_replaced
    from headrace.broker.storage.storage_format import StorageError, is_formatted, unformatted
    from headrace.env.posix import PosixEnvironment

    if not CLUSTER_ID.fullmatch(cluster_id):
        why = f"{cluster_id!r} is no id: letters, digits, - and _; `headrace storage random-uuid` draws one"
        raise click.BadParameter(why, param_hint="--cluster-id")
    config = _config(file)
    levels = _first_levels(release, features)
    voters = _first_voters(config, standalone, initial_controllers, joins, levels.pop(KRAFT_VERSION, None))
    env = PosixEnvironment()
    users = _first_users(add_scram, levels, env.entropy.secret)
    formatted = [directory for directory in config.directories if is_formatted(env.disk, directory)]
    if formatted and not ignore_formatted:
        raise Failure(f"{formatted[0]} is formatted already: --ignore-formatted leaves it as it is")
    replaces = bool(formatted) and config.metadata_log_dir not in formatted
    founds = not (joins or config.static_voters or config.is_broker_alone)
    if replaces and (founds or not config.waits_for_others):  # it would begin with metadata of its own
        raise Failure(unformatted(env.disk, config.metadata_log_dir, formatted, when_replaced(config)))
    try:
        format_storage(
            env, config, cluster_id, voters=voters, joins=joins, levels=levels, users=users, replaces=replaces
        )
    except StorageError as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(f"{error.filename}: {error.strerror}") from error
    done = [directory for directory in config.directories if directory not in formatted]
    if as_json:
        print_json({"cluster": cluster_id, "formatted": done})
        return
    for directory in done:
        click.echo(f"formatted {directory} for cluster {cluster_id}")


@storage.command()
@file_option
@json_option
def info(file: Path, as_json: bool) -> None:
    """Show the cluster, the node and the id of each directory that a server.properties names."""
    from headrace.env.posix import PosixDisk
    from headrace.metadata.meta_properties import FILE_NAME, MetaPropertiesError, decode_meta_properties
    from headrace.wire import uuids

    config, disk = _config(file), PosixDisk()
    rows = []
    for directory in config.directories:
        path = f"{directory}/{FILE_NAME}"
        row: dict[str, object] = {"directory": directory, "formatted": disk.exists(path)}
        if row["formatted"]:
            try:
                found = decode_meta_properties(disk.read_file(path))
            except MetaPropertiesError as error:
                raise Failure(f"{path} cannot be used: {error}") from error
            row |= {
                "cluster": found.cluster_id,
                "node": found.node_id,
                "directory_id": uuids.to_text(found.directory_id),
            }
        rows.append(row)
    if as_json:
        print_json(rows)
    else:
        names = ("directory", "formatted", "cluster", "node", "directory_id")
        print_table(names, [[row.get(name, "-") for name in names] for row in rows])


@storage.command("random-uuid")
@json_option
def random_uuid(as_json: bool) -> None:
    """Print an id for a new cluster."""
    from headrace.env.posix import PosixEntropy
    from headrace.wire import uuids

    drawn = uuids.to_text(PosixEntropy().uuid())
    if as_json:
        print_json({"id": drawn})
    else:
        click.echo(drawn)


def _first_levels(release: str | None, features: tuple[str, ...]) -> dict[str, int]:
    """The feature levels that a cluster begins with, and kraft.version where it is given. Raises `Failure`."""
    from headrace.metadata import bootstrap, levels

    given: dict[str, int] = {}
    for feature in features:
        name, equals, level = feature.partition("=")
        if not equals or not level.isdecimal():
            raise Failure(f"--feature {feature}: it must read NAME=LEVEL, with a number")
        given[name] = int(level)
    if release is not None and levels.METADATA_VERSION in given:
        raise Failure("--release-version says the level of metadata.version: leave --feature metadata.version out")
    try:
        version = levels.LATEST_METADATA_VERSION if release is None else levels.parse_metadata_version(release)
        found = bootstrap.first_levels(given.get(levels.METADATA_VERSION, version), given)
    except ValueError as error:
        raise Failure(str(error)) from error
    return found | {name: level for name, level in given.items() if name == KRAFT_VERSION}


def _first_users(
    add_scram: tuple[str, ...], first_levels: dict[str, int], random: Callable[[int], bytes]
) -> list[UserScramCredentialRecord]:
    """The users that a cluster begins with. Raises `Failure`, and shows no password."""
    from headrace.metadata import levels
    from headrace.metadata.add_scram import parse_add_scram
    from headrace.metadata.scram_credentials import random_text

    if add_scram and not levels.supports_scram(first_levels[levels.METADATA_VERSION]):
        raise Failure("--add-scram needs metadata.version 3.5-IV2 or a later one")
    try:
        return [parse_add_scram(text, lambda: random_text(random).encode()) for text in add_scram]
    except ValueError as error:
        raise Failure(f"--add-scram: {error}") from error


def newest_users(add_scram: Sequence[str]) -> list[UserScramCredentialRecord]:
    """The users that a cluster of the newest release begins with. Raises `Failure`, and shows no password."""
    from headrace.env.posix import PosixEntropy
    from headrace.metadata import bootstrap, levels

    first = bootstrap.first_levels(levels.LATEST_METADATA_VERSION, {})
    return _first_users(tuple(add_scram), first, PosixEntropy().secret)


def _first_voters(
    config: BrokerConfig, standalone: bool, initial_controllers: str | None, joins: bool, kraft_version: int | None
) -> list[Voter]:
    """Whom --initial-controllers names; nobody without it. Raises `Failure` where the options, or they and the
    settings, say different things."""
    from headrace.broker.storage.initial_controllers import parse_initial_controllers

    if standalone + joins + (initial_controllers is not None) > 1:
        raise Failure("give one of --standalone, --initial-controllers and --no-initial-controllers")
    is_static = bool(config.controller_quorum_voters)
    if is_static and (standalone or joins or initial_controllers is not None):
        raise Failure("controller.quorum.voters names the voters: no option can say who else is one")
    if config.is_broker_alone and (standalone or initial_controllers is not None):
        raise Failure("process.roles=broker: this node is no controller, so it cannot be a voter")
    if config.is_by_itself and (joins or initial_controllers is not None):
        raise Failure("this node has no listener in controller.listener.names, so no other controller reaches it")
    if is_static and kraft_version == 1:
        raise Failure("controller.quorum.voters names the voters, so kraft.version must be 0")
    if not is_static and kraft_version == 0:
        raise Failure("kraft.version 0 takes controller.quorum.voters")
    if initial_controllers is None:
        return []
    try:
        return parse_initial_controllers(initial_controllers, config.node_id, config.controller_listener)
    except ValueError as error:
        raise Failure(f"--initial-controllers {initial_controllers}: {error}") from error


def joining_voter(file: Path) -> tuple[int, bytes, list[tuple[str, str, int]]]:
    """The (node id, metadata directory id, controller listeners) of the formatted controller that a server.properties
    describes. Raises `Failure` where it cannot become a voter."""
    from headrace.env.posix import PosixDisk
    from headrace.metadata.meta_properties import FILE_NAME, MetaPropertiesError, decode_meta_properties

    config = _config(file)
    if config.is_broker_alone or config.is_by_itself or config.static_voters:
        why = "a controller in process.roles, a listener of controllers, and no controller.quorum.voters"
        raise Failure(f"{file}: a node that joins the voters has {why}")
    path = f"{config.metadata_log_dir}/{FILE_NAME}"
    try:
        directory_id = decode_meta_properties(PosixDisk().read_file(path)).directory_id
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}; format the node first") from error
    except MetaPropertiesError as error:
        raise Failure(f"{path} cannot be used: {error}") from error
    if not config.names_its_controller:
        raise Failure(f"{file}: the listener of controllers must name the host by which the others reach this node")
    return config.node_id, directory_id, [(each.name, each.host, each.port) for each in config.advertised_controllers]


def _config(file: Path) -> BrokerConfig:
    """Raises `Failure` for a file that cannot be read, or settings that cannot be served."""
    from headrace.cli.serve.properties import properties_of
    from headrace.config import BrokerConfig, ConfigError

    try:
        return BrokerConfig.load(properties_of(file, (), None, None, ()), lambda _: None)
    except ConfigError as error:
        raise Failure(str(error)) from error
