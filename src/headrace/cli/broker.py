"""`headrace broker`: drain, unregister."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.cli import moving
from headrace.cli.failures import NOT_FOUND, Failure
from headrace.cli.help_text import CommandGroup
from headrace.cli.moving import cancel_option, execute_option, throttle_option
from headrace.cli.options import INT32_MAX, cluster_options, confirm, json_option, yes_option
from headrace.cli.output import counted, print_json

if TYPE_CHECKING:
    from headrace.client.cluster import Client
    from headrace.client.describe import ClusterDescription
    from headrace.client.metadata import PartitionInfo

broker_argument = click.argument("id_", metavar="ID", type=click.IntRange(0, INT32_MAX))


@click.group(cls=CommandGroup)
def broker() -> None:
    """Take brokers out of the cluster."""


@broker.command()
@broker_argument
@throttle_option
@cancel_option
@execute_option
@json_option
@cluster_options
def drain(client: Client, id_: int, rate: int | None, cancel: bool, execute: bool, as_json: bool) -> None:
    """Move all replicas off the broker ID.

    Each goes to a broker in the rack that has fewest replicas of its partition. The command shows the plan; --execute
    carries it out and waits.
    """
    from headrace.client import describe, moves
    from headrace.client.placement import Placed, PlacementError, place

    found = describe.describe_cluster(client)
    held = _held(client, id_)
    _must_be_known(found, id_, held)
    under_way = moves.list_moves(client)
    if cancel:
        if rate:
            raise click.UsageError("--throttle limits moves; it does not go with --cancel")
        off = {at: moving.called_off(move) for at, move in under_way.items() if id_ in move.removing}
        if not off:
            raise Failure(f"no partition is being moved off broker {id_}", NOT_FOUND)
        moving.run(client, off, execute=execute, as_json=as_json, what="calling off")
        return
    infos = {(p.topic, p.index): p for p in held}
    if busy := sorted(infos.keys() & under_way.keys()):
        topic, index = busy[0]
        raise Failure(f"topic {topic} partition {index} is already being moved; wait for it, or use --cancel")
    try:
        then = place(
            {at: Placed(p.replicas, p.isr) for at, p in infos.items()},
            {each.id: each.rack for each in found.brokers if each.id != id_},
            evenly=False,
            load=_load(client, set(infos)),
            closed=found.fenced,
        )
    except PlacementError as error:
        hint = "lower it with `headrace partition reassign --replication-factor`, or add a broker"
        raise Failure(f"broker {id_} cannot be drained: {error}; {hint}") from error
    plan, what = moving.plan_of(infos, then), f"draining broker {id_}"
    moving.run(client, plan, rate=rate, execute=execute, as_json=as_json, what=what)


@broker.command()
@broker_argument
@yes_option
@json_option
@cluster_options
def unregister(client: Client, id_: int, yes: bool, as_json: bool) -> None:
    """Make the cluster forget the broker ID, which is stopped and will not come back.

    A broker that is started again registers again.
    """
    from headrace.client import describe, moves

    found = describe.describe_cluster(client)
    held = _held(client, id_)
    if any(each.id == id_ for each in found.brokers) and id_ not in found.fenced:
        raise Failure(f"broker {id_} is up; stop it first")
    still = (
        f" It is still a replica of {counted(len(held), 'partition')}: `headrace broker drain {id_}`." if held else ""
    )
    confirm(f"Forget broker {id_}?{still}", yes)
    moves.unregister_broker(client, id_)
    if as_json:
        print_json({"broker": id_, "unregistered": True})
    else:
        click.echo(f"unregistered broker {id_}")


def _held(client: Client, id_: int) -> list[PartitionInfo]:
    return [p for topic in client.topics() for p in topic.partitions if id_ in p.replicas]


def _load(client: Client, besides: set[tuple[str, int]]) -> dict[int, int]:
    from collections import Counter

    return Counter(
        r for t in client.topics() for p in t.partitions if (p.topic, p.index) not in besides for r in p.replicas
    )


def _must_be_known(found: ClusterDescription, id_: int, held: list[PartitionInfo]) -> None:
    """A broker that is gone may hold replicas all the same."""
    if not held and all(each.id != id_ for each in found.brokers):
        raise Failure(f"the cluster has no broker {id_}; `headrace cluster describe` lists the brokers", NOT_FOUND)
