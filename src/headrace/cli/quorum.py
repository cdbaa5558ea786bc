"""`headrace quorum`: who votes on the metadata, and how far everyone is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failures import Failure
from headrace.cli.help_text import CommandGroup
from headrace.cli.options import INT32_MAX, cluster_options, confirm, json_option, yes_option
from headrace.cli.output import print_json, print_table, time_text
from headrace.cli.storage import file_option, joining_voter
from headrace.wire import uuids

if TYPE_CHECKING:
    from headrace.client.cluster import Client
    from headrace.client.describe import QuorumDescription


@click.group(cls=CommandGroup)
def quorum() -> None:
    """Describe the metadata quorum, and change who votes."""


@quorum.command()
@json_option
@cluster_options
def describe(client: Client, as_json: bool) -> None:
    """Show the leader, the epoch, and how far voters and observers are behind the leader."""
    from headrace.client.describe import describe_quorum

    found = describe_quorum(client)
    if as_json:
        print_json(quorum_json(found))
    else:
        print_quorum(found)


@quorum.command()
@file_option
@json_option
@cluster_options
def add(client: Client, file: Path, as_json: bool) -> None:
    """Make this machine's controller a voter.

    The controller must be running and have been formatted with --no-initial-controllers. The command waits until it has
    caught up with the leader. Requires kraft.version 1.
    """
    from headrace.client.voters import add_voter

    voter, directory_id, endpoints = joining_voter(file)
    add_voter(client, voter, directory_id, endpoints)
    if as_json:
        print_json({"voter": voter, "directory_id": uuids.to_text(directory_id), "added": True})
    else:
        click.echo(f"added voter {voter}")


@quorum.command()
@click.argument("id_", metavar="ID", type=click.IntRange(0, INT32_MAX))
@click.option("--directory-id", metavar="UUID", help="The voter's metadata directory, if another one has the same id.")
@yes_option
@json_option
@cluster_options
def remove(client: Client, id_: int, directory_id: str | None, yes: bool, as_json: bool) -> None:
    """Remove the voter ID, whether it is running or not.

    A running node becomes an observer. Requires kraft.version 1.
    """
    from headrace.client.describe import describe_quorum
    from headrace.client.voters import remove_voter

    if directory_id is None:
        found = next((r.directory_id for r in describe_quorum(client).replicas if r.voter and r.id == id_), None)
        if found is None:
            raise Failure(f"node {id_} is no voter")
    else:
        try:
            found = uuids.from_text(directory_id)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--directory-id") from error
    confirm(f"Remove voter {id_}?", yes)
    remove_voter(client, id_, found)
    if as_json:
        print_json({"voter": id_, "directory_id": uuids.to_text(found), "removed": True})
    else:
        click.echo(f"removed voter {id_}")


def quorum_json(found: QuorumDescription) -> dict[str, Any]:
    """The quorum for programs."""
    return {
        "leader": found.leader_id,
        "epoch": found.leader_epoch,
        "high_watermark": found.high_watermark,
        "replicas": [
            {
                "id": r.id,
                "voter": r.voter,
                "end_offset": r.log_end_offset,
                "lag": found.lag(r),
                "last_fetch_ms": r.last_fetch_ms,
                "last_caught_up_ms": r.last_caught_up_ms,
            }
            for r in found.replicas
        ],
    }


def print_quorum(found: QuorumDescription) -> None:
    """The quorum for people."""
    click.echo(f"quorum: leader {found.leader_id}, epoch {found.leader_epoch}, high watermark {found.high_watermark}")
    print_table(
        ["node", "role", "end offset", "lag", "last fetch", "caught up"],
        [
            (
                r.id,
                "leader" if r.id == found.leader_id else "voter" if r.voter else "observer",
                r.log_end_offset if r.log_end_offset >= 0 else None,
                found.lag(r),
                time_text(r.last_fetch_ms),
                time_text(r.last_caught_up_ms),
            )
            for r in found.replicas
        ],
    )
