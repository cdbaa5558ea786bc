"""`headrace partition`: reassign, move, elect, throttle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headrace.cli import moving
from headrace.cli.failures import NOT_FOUND, Failure
from headrace.cli.help_text import CommandGroup
from headrace.cli.moving import cancel_option, execute_option, parse_rate, throttle_option
from headrace.cli.naming import brokers_up, chosen_partitions, named_brokers, parse_brokers
from headrace.cli.options import INT16_MAX, cluster_options, json_option
from headrace.cli.output import counted, print_json, print_table

if TYPE_CHECKING:
    from headrace.client.cluster import Client
    from headrace.client.metadata import PartitionInfo, TopicPartition

partitions_argument = click.argument("topics", nargs=-1, metavar="[TOPIC[:P,P]]...")


@click.group(cls=CommandGroup)
def partition() -> None:
    """Move partitions between brokers, elect their leaders, throttle their replication."""


@partition.command()
@partitions_argument
@click.option("--brokers", metavar="ID,ID", help="Spread each topic evenly over these brokers and their racks.")
@click.option(
    "--replication-factor", "-r", type=click.IntRange(1, INT16_MAX), help="The number of replicas of each partition."
)
@click.option("--file", "-f", type=click.Path(path_type=Path), help="Take the replicas from a file such as "
              "kafka-reassign-partitions reads.")  # fmt: skip
@click.option("--undo", type=click.Path(path_type=Path), help="Write the current replicas to "
              "this file, for --file to restore.")  # fmt: skip
@throttle_option
@cancel_option
@execute_option
@json_option
@cluster_options
def reassign(
    client: Client,
    topics: tuple[str, ...],
    brokers: str | None,
    replication_factor: int | None,
    file: Path | None,
    undo: Path | None,
    rate: int | None,
    cancel: bool,
    execute: bool,
    as_json: bool,
) -> None:
    """Move topics to other brokers, or change how many replicas they have.

    With --brokers the replicas of each topic are spread evenly over these brokers, and those of a partition over as
    many racks as there are. With --replication-factor alone only replicas are added or dropped. The command shows the
    plan; --execute carries it out and waits. If the command is interrupted, the brokers continue the moves; --cancel
    cancels those of the topics named, of those in the file, or all. --throttle sets the same limits as `headrace
    partition throttle`, and removes them when the moves have ended; --cancel removes the limits of the moves that it
    cancels.
    """
    placed_by_hand = {} if file is None else moving.read_kafka_json(file)
    if file is not None and (topics or brokers or replication_factor):
        raise click.UsageError("--file says everything: give no topics, --brokers or --replication-factor with it")
    if cancel:
        if brokers or replication_factor or undo or rate:
            raise click.UsageError("--cancel goes with topics or --file only")
        chosen = list(placed_by_hand) or chosen_partitions(client, topics) or None
        plan: moving.Plan = moving.under_way(client, chosen)
    else:
        infos = _movable(client, sorted(placed_by_hand) or chosen_partitions(client, topics))
        if file is not None:
            _must_be_up(client, infos, placed_by_hand)
            then = placed_by_hand
        else:
            ids = None if brokers is None else parse_brokers(brokers, "--brokers")
            then = _placed(client, infos, ids, replication_factor)
        plan = moving.plan_of(infos, then)
    if undo is not None:
        moving.write_kafka_json(undo, plan)
    moving.run(client, plan, rate=rate, execute=execute, as_json=as_json, what="moving")


@partition.command()
@click.argument("partition", metavar="TOPIC:P")
@click.option("--to", metavar="ID,ID", help="Its replicas from now on; the first one is the preferred leader.")
@throttle_option
@cancel_option
@execute_option
@json_option
@cluster_options
def move(
    client: Client, partition: str, to: str | None, rate: int | None, cancel: bool, execute: bool, as_json: bool
) -> None:
    """Move one partition to the brokers given.

    The command shows the plan; --execute carries it out and waits.
    """
    if cancel == (to is not None):
        raise click.UsageError("choose one of --to and --cancel")
    if cancel and rate:
        raise click.UsageError("--throttle limits a move; it does not go with --cancel")
    chosen = chosen_partitions(client, [partition])
    if len(chosen) != 1 or ":" not in partition:
        raise click.BadParameter(f"{partition!r} is not one partition such as flights:3", param_hint="TOPIC:P")
    if to is None:
        plan: moving.Plan = moving.under_way(client, chosen)
    else:
        infos, then = _movable(client, chosen), {chosen[0]: tuple(parse_brokers(to, "--to"))}
        _must_be_up(client, infos, then)
        plan = moving.plan_of(infos, then)
    moving.run(client, plan, rate=rate, execute=execute, as_json=as_json, what="moving")


def _movable(client: Client, chosen: list[TopicPartition]) -> dict[TopicPartition, PartitionInfo]:
    """The partitions as they are. Raises `Failure` where one is on the move already, or none is chosen."""
    from headrace.client import moves

    if not chosen:
        raise click.UsageError("name topics, or give --file")
    infos = {(p.topic, p.index): p for t in client.topics({name for name, _ in chosen}) for p in t.partitions}
    for topic, index in chosen:
        if (topic, index) not in infos:
            raise Failure(f"topic {topic} has no partition {index}", NOT_FOUND)
    if moved := moves.list_moves(client, chosen):
        topic, index = min(moved)
        raise Failure(f"topic {topic} partition {index} is already being moved; wait for it, or use --cancel")
    return {at: infos[at] for at in chosen}


def _must_be_up(
    client: Client, infos: Mapping[TopicPartition, PartitionInfo], then: Mapping[TopicPartition, Sequence[int]]
) -> None:
    """A broker that is down gets nothing new: such a move would not end. It may keep what it has."""
    named_brokers(client, sorted({r for at, replicas in then.items() for r in replicas if r not in infos[at].replicas}))


def _placed(
    client: Client, infos: dict[TopicPartition, PartitionInfo], ids: list[int] | None, factor: int | None
) -> dict[TopicPartition, tuple[int, ...]]:
    from headrace.client import describe
    from headrace.client.placement import Placed, PlacementError, place

    if ids is None and factor is None:
        raise click.UsageError("no target: give --brokers, --replication-factor or --file")
    found = describe.describe_cluster(client)
    racks = {broker.id: broker.rack for broker in found.brokers} if ids is None else named_brokers(client, ids)
    load = Counter(r for t in client.topics() for p in t.partitions if (p.topic, p.index) not in infos
                   for r in p.replicas)  # fmt: skip
    try:
        return place(
            {at: Placed(info.replicas, info.isr) for at, info in infos.items()},
            racks,
            replication_factor=factor,
            evenly=ids is not None,
            load=load,
            closed=found.fenced,
        )
    except PlacementError as error:
        raise Failure(str(error)) from error


@partition.command()
@click.argument("kind", type=click.Choice(["preferred", "unclean"]))
@partitions_argument
@execute_option
@json_option
@cluster_options
def elect(client: Client, kind: str, topics: tuple[str, ...], execute: bool, as_json: bool) -> None:
    """Elect leaders of the topics named, or of all.

    "preferred" gives partitions back to their first replica. "unclean" gives partitions that have no leader to a
    replica that is up but not in sync: records that it lacks are lost. The command shows which partitions need it;
    --execute elects.
    """
    from headrace.client import moves

    election = moves.Election[kind.upper()]
    if topics:
        chosen = set(chosen_partitions(client, topics))
        infos = [p for t in client.topics({n for n, _ in chosen}) for p in t.partitions if (p.topic, p.index) in chosen]
    else:
        infos = [p for t in client.topics() for p in t.partitions]
    needing = [p for p in infos if _needs(election, p)]
    refused: dict[TopicPartition, Exception] = {}
    after = {(p.topic, p.index): p.leader for p in needing}
    if execute and needing:
        outcomes = moves.elect_leaders(client, election, after)
        refused = {at: error for at, error in outcomes.items() if error is not None}
        after = moving.leaders_after(
            client, {(p.topic, p.index): p for p in needing if (p.topic, p.index) not in refused}
        )
    if as_json:
        print_json(
            {
                "executed": execute,
                "partitions": [
                    {"topic": p.topic, "partition": p.index, "from": _led(p.leader), "replicas": list(p.replicas),
                     "to": _led(after[p.topic, p.index]) if execute and (p.topic, p.index) in after else None}
                    for p in needing
                ],
            }
        )  # fmt: skip
    elif not needing:
        click.echo(f"no partition needs {'an unclean' if kind == 'unclean' else 'a preferred'} election")
    elif execute:
        click.echo(f"elected leaders of {counted(len(needing) - len(refused), 'partition')}")
    else:
        rows = [(p.topic, p.index, _led(p.leader), p.replicas, p.isr) for p in needing]
        print_table(["topic", "partition", "leader", "replicas", "in sync"], rows)
        click.echo("nothing has changed yet; --execute elects leaders", err=True)
    moving.raise_refused(refused, len(needing))


def _needs(election: int, info: PartitionInfo) -> bool:
    """Whether an election would do something: nothing leads, or another replica than the first does."""
    if election == 0:
        return info.leader != info.replicas[0]
    return info.leader < 0


def _led(leader: int) -> int | None:
    return leader if leader >= 0 else None


@partition.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option("--rate", metavar="BYTES", callback=parse_rate, help="Bytes a second at each broker, such as 500000 or "
              "10MiB.")  # fmt: skip
@click.option("--clear", is_flag=True, help="Remove the limits of the topics named, or of all, and of the brokers.")
@execute_option
@json_option
@cluster_options
def throttle(
    client: Client, topics: tuple[str, ...], rate: int | None, clear: bool, execute: bool, as_json: bool
) -> None:
    """Limit how fast brokers copy the replicas that move, or those of the topics named.

    It sets leader. and follower.replication.throttled.rate of the brokers, and .replicas of the topics. The limits stay
    until --clear removes them. The command shows the settings; --execute sets them.
    """
    from headrace.client import moves, throttles

    if clear == (rate is not None):
        raise click.UsageError("choose one of --rate and --clear")
    brokers = brokers_up(client)
    if rate is None:
        changes = throttles.clearing(client, brokers, [topic.name for topic in client.topics(topics or None)])
    else:
        named = [topic.name for topic in client.topics(topics)] if topics else []
        under_way = {} if topics else moves.list_moves(client)
        if not named and not under_way:
            raise Failure("no partition is being moved; name the topics to limit", NOT_FOUND)
        changes = throttles.limit(brokers, rate, under_way, named)
    if not as_json:
        rows = [(c.resource.name.lower(), c.name, *item) for c in changes for item in c.settings.items()]
        if rows:
            print_table(["kind", "name", "setting", "value"], rows)
        else:
            click.echo("nothing is limited")
    if execute:
        throttles.apply(client, changes)
    if as_json:
        shown = [{"kind": c.resource.name.lower(), "name": c.name, "settings": dict(c.settings)} for c in changes]
        print_json({"executed": execute, "changes": shown})
    elif changes:
        click.echo("set" if execute else "nothing has changed yet; --execute sets these", err=not execute)
