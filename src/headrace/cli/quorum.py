"""`headrace quorum`: who votes on the metadata, and how far everyone is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.options import cluster_options, json_option
from headrace.cli.output import print_json, print_table, time_text

if TYPE_CHECKING:
    from headrace.client.cluster import Client
    from headrace.client.describe import QuorumDescription


@click.group()
def quorum() -> None:
    """Describe the metadata quorum."""


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
