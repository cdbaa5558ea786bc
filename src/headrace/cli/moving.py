"""Moves of partitions as a command shows and makes them: the plan first, then a bar until the brokers have done it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failures import NOT_FOUND, Failure
from headrace.cli.output import Progress, counted, print_json, print_table

if TYPE_CHECKING:
    from headrace.client.cluster import Client, PartitionInfo, TopicPartition
    from headrace.client.moves import Move, Outcomes

LOOK_S = 0.25
"""Between two looks at what is still on its way."""
VISIBLE_PATIENCE_S = 10.0
"""How long the brokers' metadata may take to show a move that has ended."""

execute_option = click.option("--execute", is_flag=True, help="Do it. Without this, only show the plan.")
cancel_option = click.option("--cancel", is_flag=True, help="Call off moves under way; --execute does it.")


@dataclass(frozen=True, slots=True)
class Planned:
    """One partition: where its replicas are, and where they are to be; `off` where its move is called off for that."""

    now: tuple[int, ...]
    then: tuple[int, ...]
    off: bool = False


Plan = Mapping["TopicPartition", Planned]
Infos = Mapping["TopicPartition", "PartitionInfo"]


def plan_of(infos: Mapping[TopicPartition, PartitionInfo], then: Mapping[TopicPartition, tuple[int, ...]]) -> Plan:
    """What has to change for partitions to be where they are wanted."""
    return {at: Planned(info.replicas, then[at]) for at, info in infos.items() if info.replicas != then[at]}


def run(client: Client, plan: Plan, *, execute: bool, as_json: bool, what: str) -> None:
    """Shows a plan, and with `execute` carries it out: `what` says so at the bar. Raises `Failure`."""
    if not as_json:
        _show(plan)
    if execute:
        carry_out(client, plan, what)
    if as_json:
        print_json({"executed": execute, "partitions": [_json(at, each) for at, each in sorted(plan.items())]})
    elif plan and execute:
        off = all(each.off for each in plan.values())
        click.echo(f"{'called off' if off else 'moved'} {counted(len(plan), 'partition')}")
    elif plan:
        click.echo("nothing has changed yet; --execute does it", err=True)


def _show(plan: Plan) -> None:
    if not plan:
        click.echo("nothing to move: every replica is where it should be")
        return
    rows = [
        (
            *at,
            each.now,
            each.then,
            [replica for replica in each.then if replica not in each.now],
            [replica for replica in each.now if replica not in each.then],
        )
        for at, each in sorted(plan.items())
    ]
    print_table(["topic", "partition", "replicas", "new replicas", "added", "removed"], rows)


def _json(at: TopicPartition, each: Planned) -> dict[str, Any]:
    return {"topic": at[0], "partition": at[1], "from": list(each.now), "to": list(each.then)}


def carry_out(client: Client, plan: Plan, what: str) -> None:
    """Begins the moves of a plan, and waits for their end under a bar. Raises `Failure` for what was refused."""
    from headrace.client import moves

    if not plan:
        return
    targets = {at: None if each.off else each.then for at, each in plan.items()}
    refused = _refused(moves.move_partitions(client, targets))
    waiting = {at: each for at, each in plan.items() if at not in refused}
    try:
        _wait(client, waiting, what)
    except KeyboardInterrupt:
        click.echo("headrace: the moves go on; `headrace partition reassign --cancel` calls them off", err=True)
        raise
    raise_refused(refused, len(plan))
    _check(client, waiting)


def _wait(client: Client, waiting: Plan, what: str) -> None:
    from headrace.client import moves

    with Progress(what, len(waiting), unit="partitions") as progress:
        left = len(waiting)
        while left:
            under_way = len(moves.list_moves(client, waiting))
            progress.advance(left - under_way)
            left = under_way
            if left:
                time.sleep(LOOK_S)


def _check(client: Client, moved: Plan) -> None:
    """Somebody else may have called a move off, or made another of it."""

    def elsewhere(infos: Infos) -> list[TopicPartition]:
        return [at for at, each in sorted(moved.items()) if infos[at].replicas != each.then]

    other = elsewhere(_seen_once(client, moved, lambda infos: not elsewhere(infos)))
    if other:
        topic, index = other[0]
        raise Failure(f"topic {topic} partition {index} is elsewhere: its move was called off, or made another")


def _seen_once(client: Client, partitions: Iterable[TopicPartition], holds: Callable[[Infos], bool]) -> Infos:
    """What the brokers' metadata show of all partitions of these topics once that holds, or does not in time."""
    topics = {topic for topic, _ in partitions}
    last = time.monotonic() + min(client.timeout_s, VISIBLE_PATIENCE_S)
    while True:
        infos = {(p.topic, p.index): p for t in client.topics(topics) for p in t.partitions}
        if holds(infos) or time.monotonic() >= last:
            return infos
        time.sleep(LOOK_S)


def _refused(outcomes: Outcomes) -> dict[TopicPartition, Exception]:
    return {at: error for at, error in outcomes.items() if error is not None}


def raise_refused(refused: Mapping[TopicPartition, Exception], asked: int) -> None:
    """The first refusal, and how many there are of how many asked; nothing where there is none."""
    if refused:
        first = refused[min(refused)]
        others = f" ({len(refused)} of {asked} refused)" if asked > 1 else ""
        raise Failure(f"{first}{others}")


def leaders_after(client: Client, led: Mapping[TopicPartition, PartitionInfo]) -> dict[TopicPartition, int]:
    """Who leads these partitions once the brokers' metadata show other leaders than before, or do not in time."""

    def changed(infos: Infos) -> bool:
        return all(infos[at].leader_epoch != before.leader_epoch for at, before in led.items())

    found = _seen_once(client, led, changed)
    return {at: found[at].leader for at in led}


def called_off(move: Move) -> Planned:
    """What becomes of a partition if its move is called off: it keeps those replicas that it had before."""
    return Planned(move.replicas, tuple(replica for replica in move.replicas if replica not in move.adding), off=True)


def under_way(client: Client, chosen: Iterable[TopicPartition] | None) -> dict[TopicPartition, Planned]:
    """A plan that calls off the moves of these partitions, or of all. Raises `Failure` where there are none."""
    from headrace.client import moves

    found = {at: called_off(move) for at, move in moves.list_moves(client, chosen).items()}
    if not found:
        raise Failure("no such partition is on the move" if chosen else "no partition is on the move", NOT_FOUND)
    return found


# -- Kafka's file


def read_kafka_json(path: Path) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas in a file such as kafka-reassign-partitions reads. Raises `Failure` that names what is wrong."""
    import json

    try:
        text = path.read_text()
    except UnicodeDecodeError as error:
        raise Failure(f"{path} is not text") from error
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Failure(f"{path} is not JSON: {error}") from error
    parts = value.get("partitions") if isinstance(value, dict) else None
    if not isinstance(parts, list) or not parts:
        raise Failure(f'{path} has no list "partitions" of {{"topic": ..., "partition": ..., "replicas": [...]}}')
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for number, part in enumerate(parts, 1):
        match part:
            case {"topic": str(topic), "partition": int(index), "replicas": [*replicas]} if replicas and all(
                type(each) is int for each in (index, *replicas)
            ):
                pass
            case _:
                raise Failure(f'{path}: entry {number} is not {{"topic": ..., "partition": ..., "replicas": [...]}}')
        directories = part.get("log_dirs", [])
        if not isinstance(directories, list) or any(each != "any" for each in directories):
            raise Failure(f'{path}: entry {number} names log directories; only "any" is possible here')
        if (topic, index) in found:
            raise Failure(f"{path}: topic {topic} partition {index} is there twice")
        found[topic, index] = tuple(replicas)
    return found


def write_kafka_json(path: Path, plan: Plan) -> None:
    """Where the replicas are now, in the same form: to go back to. Raises OSError."""
    import json

    parts = [{"topic": t, "partition": p, "replicas": list(each.now)} for (t, p), each in sorted(plan.items())]
    path.write_text(json.dumps({"version": 1, "partitions": parts}) + "\n")
