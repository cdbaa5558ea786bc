"""`headrace cluster`: what the cluster is made of."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failures import FAILED
from headrace.cli.help_text import CommandGroup
from headrace.cli.options import cluster_options, json_option
from headrace.cli.output import counted, print_json, print_table, size_text
from headrace.cli.quorum import print_quorum, quorum_json

if TYPE_CHECKING:
    from headrace.client.cluster import Client
    from headrace.client.describe import QuorumDescription
    from headrace.client.health import Health
    from headrace.client.metadata import TopicPartition

NAMED_MAX = 5
"""How many partitions a line of `health` names."""

ASK_AGAIN_S = 0.5
"""How often `health --wait` asks."""


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Describe the cluster (brokers, quorum, log directories), and check its health."""


@cluster.command()
@json_option
@cluster_options
def describe(client: Client, as_json: bool) -> None:
    """Show the brokers, the metadata quorum, feature levels and log directories."""
    from headrace.wire.address import address_text

    found_quorum, described = describe_all(client)
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
    if found_quorum is not None:
        print_quorum(found_quorum)
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


def describe_all(client: Client) -> tuple[QuorumDescription | None, dict[str, Any]]:
    from headrace.client import describe
    from headrace.client.errors import BrokerError, ProtocolMismatchError, code_name

    found = describe.describe_cluster(client)
    quorum: QuorumDescription | None
    try:
        quorum = describe.describe_quorum(client)
    except (BrokerError, ProtocolMismatchError):
        quorum = None
    return quorum, {
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
        "quorum": None if quorum is None else quorum_json(quorum),
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


@cluster.command()
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Retry for this time, until the cluster answers and is healthy.",
)
@json_option
@cluster_options
@click.pass_context
def health(ctx: click.Context, client: Client, wait_s: float, as_json: bool) -> None:
    """Check whether the cluster is healthy, and list the problems.

    The exit code is 0 if it is healthy, 1 if not. Problems are: partitions without a leader, or with fewer replicas in
    sync than they have or than min.insync.replicas requires; brokers that are down or do not answer; log directories
    that failed; voters of the metadata quorum that are behind. Moves in progress and leaders that are not the preferred
    ones are shown, but are not problems.
    """
    found = _healthy_within(client, wait_s)
    if as_json:
        print_json(health_json(found))
    else:
        _print_health(found)
    if not found.healthy:
        ctx.exit(FAILED)


def _healthy_within(client: Client, wait_s: float) -> Health:
    """The cluster's health as soon as nothing is wrong, or at the end of the time. Raises ClientError."""
    from headrace.client.errors import ConnectionLostError, TimedOutError, UnreachableError
    from headrace.client.health import examine

    last = time.monotonic() + wait_s
    while True:
        try:
            found = examine(client)
            if found.healthy or time.monotonic() >= last:
                return found
        except (UnreachableError, ConnectionLostError, TimedOutError):
            if time.monotonic() >= last:
                raise
        time.sleep(ASK_AGAIN_S)


def _problems(found: Health) -> list[str]:
    """A line for each kind of thing that is wrong."""
    kinds = [
        (found.offline, "without a leader"),
        (found.below_min_isr, "with fewer replicas in sync than min.insync.replicas"),
        (found.under_replicated, "with replicas that are not in sync"),
    ]
    lines = [f"{counted(len(wrong), 'partition')} {what}: {_named(wrong)}" for wrong, what in kinds if wrong]
    lines += [f"broker {broker.node.id} is down" for broker in found.brokers if broker.fenced]
    lines += [f"broker {broker} does not answer" for broker in found.silent]
    lines += [f"log directory {path} of broker {broker} failed" for broker, path in found.failed_dirs]
    lines += [f"voter {voter} of the metadata quorum is behind" for voter in found.behind]
    return lines


def _named(partitions: tuple[TopicPartition, ...]) -> str:
    shown = ", ".join(f"{topic}:{index}" for topic, index in partitions[:NAMED_MAX])
    return shown + (f" and {len(partitions) - NAMED_MAX:,} more" if len(partitions) > NAMED_MAX else "")


def _print_health(found: Health) -> None:
    problems = _problems(found)
    click.echo(f"cluster {found.cluster_id}: " + (counted(len(problems), "problem") if problems else "healthy"))
    for line in problems:
        click.echo(f"  {line}")
    counts = [
        (found.offline, "offline"),
        (found.under_replicated, "under-replicated"),
        (found.below_min_isr, "under min ISR"),
        (found.moving, "on the move"),
        (found.not_preferred, "led by another than the preferred replica"),
    ]
    click.echo(f"{counted(found.partitions, 'partition')}: " + ", ".join(f"{len(p):,} {what}" for p, what in counts))
    print_table(
        ["broker", "rack", "state", "leaders", "preferred", "replicas"],
        [
            (b.node.id, b.node.rack, "down" if b.fenced else "up", b.leaders, b.preferred, b.replicas)
            for b in found.brokers
        ],
    )
    if found.quorum is not None:
        print_quorum(found.quorum)


def health_json(found: Health) -> dict[str, Any]:
    def texts(partitions: tuple[TopicPartition, ...]) -> list[dict[str, Any]]:
        return [{"topic": topic, "partition": index} for topic, index in partitions]

    return {
        "cluster_id": found.cluster_id,
        "healthy": found.healthy,
        "problems": _problems(found),
        "partitions": found.partitions,
        "offline": texts(found.offline),
        "under_replicated": texts(found.under_replicated),
        "under_min_isr": texts(found.below_min_isr),
        "moving": texts(found.moving),
        "not_preferred": texts(found.not_preferred),
        "skew": round(found.skew, 4),
        "brokers": [
            {
                "id": b.node.id,
                "rack": b.node.rack,
                "fenced": b.fenced,
                "answers": b.node.id not in found.silent and not b.fenced,
                "leaders": b.leaders,
                "preferred": b.preferred,
                "replicas": b.replicas,
            }
            for b in found.brokers
        ],
        "quorum": None if found.quorum is None else quorum_json(found.quorum),
        "behind": list(found.behind),
        "failed_dirs": [{"broker": broker, "path": path} for broker, path in found.failed_dirs],
    }
