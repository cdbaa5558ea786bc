"""`headrace cluster`: what the cluster is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from headrace.cli.options import cluster_options, json_option
from headrace.cli.output import print_json, print_table, size_text, time_text

if TYPE_CHECKING:
    from headrace.client.cluster import Client


@click.group()
def cluster() -> None:
    """Describe the cluster: brokers, quorum, log directories."""


@cluster.command()
@json_option
@cluster_options
def describe(client: Client, as_json: bool) -> None:
    """Brokers, metadata quorum, feature levels and log directories."""
    from headrace.wire.address import address_text

    described = _describe(client)
    if as_json:
        print_json(described)
        return
    click.echo(f"cluster {described['cluster_id']}")
    print_table(
        ["broker", "address", "rack", "state", "controller"],
        [
            (b["id"], address_text(b["host"], b["port"]), b["rack"], "fenced" if b["fenced"] else "up", b["controller"])
            for b in described["brokers"]
        ],
    )
    quorum = described["quorum"]
    if quorum is not None:
        click.echo(
            f"quorum: leader {quorum['leader']}, epoch {quorum['epoch']}, high watermark {quorum['high_watermark']}"
        )
        print_table(
            ["node", "role", "end offset", "lag", "caught up"],
            [
                (
                    r["id"],
                    "voter" if r["voter"] else "observer",
                    r["end_offset"],
                    max(0, quorum["high_watermark"] - r["end_offset"]),
                    time_text(r["last_caught_up_ms"]),
                )
                for r in quorum["replicas"]
            ],
        )
    print_table(
        ["broker", "log directory", "replicas", "size", "free", "state"],
        [
            (
                d["broker"],
                d["path"],
                d["replicas"],
                size_text(d["size"]),
                size_text(d["usable"]),
                "ok" if d["error"] == 0 else d["error_name"],
            )
            for d in described["log_dirs"]
        ],
    )
    features = [f"{name}={level}" for name, level in sorted(described["features"].items())]
    click.echo("features: " + ("  ".join(features) or "-"))


def _describe(client: Client) -> dict[str, Any]:
    from headrace.client import describe
    from headrace.client.errors import BrokerError, ProtocolMismatchError, code_name

    found = describe.describe_cluster(client)
    quorum: dict[str, Any] | None = None
    try:
        voted = describe.describe_quorum(client)
        quorum = {
            "leader": voted.leader_id,
            "epoch": voted.leader_epoch,
            "high_watermark": voted.high_watermark,
            "replicas": [
                {
                    "id": r.id,
                    "voter": r.voter,
                    "end_offset": r.log_end_offset,
                    "last_fetch_ms": r.last_fetch_ms,
                    "last_caught_up_ms": r.last_caught_up_ms,
                }
                for r in voted.replicas
            ],
        }
    except (BrokerError, ProtocolMismatchError):
        quorum = None
    return {
        "cluster_id": found.cluster_id,
        "controller": found.controller_id,
        "brokers": [
            {
                "id": broker.id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "fenced": broker.id in found.fenced,
                "controller": broker.id == found.controller_id,
            }
            for broker in found.brokers
        ],
        "quorum": quorum,
        "features": describe.describe_features(client),
        "log_dirs": [
            {
                "broker": directory.broker,
                "path": directory.path,
                "error": directory.error,
                "error_name": code_name(directory.error),
                "replicas": len(directory.replicas),
                "size": sum(replica.size for replica in directory.replicas),
                "total": directory.total,
                "usable": directory.usable,
            }
            for directory in describe.describe_log_dirs(client)
        ],
    }
