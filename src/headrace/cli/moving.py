"""Moves of partitions as a command shows and makes them: the plan first, then a bar until the brokers have done it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.failures import NOT_FOUND, Failure
from headrace.cli.naming import brokers_up
from headrace.cli.output import Progress, counted, print_json, print_table, size_text

if TYPE_CHECKING:
    from headrace.client.cluster import Client
    from headrace.client.describe import LogDir
    from headrace.client.metadata import PartitionInfo, TopicPartition
    from headrace.client.moves import Move, Outcomes
    from headrace.client.throttles import Change

RATE_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
LOOK_S = 0.25
"""Between two looks at the remaining moves."""
VISIBLE_PATIENCE_S = 10.0
"""How long the brokers' metadata may take to show a move that has ended."""
MEASURE_S = 1.0
"""Between two looks at the sizes of the copies: a broker goes through all of its logs for one."""


def parse_rate(_: click.Context, __: click.Parameter, text: str | None) -> int | None:
    """`10MiB` as bytes (a second). Raises BadParameter."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9]{1,15})(KiB|MiB|GiB|)", text)
    if found is None or int(found[1]) == 0:
        raise click.BadParameter(f"{text!r} is not a rate such as 500000, 500KiB or 10MiB")
    return int(found[1]) * RATE_UNITS[found[2]]


execute_option = click.option("--execute", is_flag=True, help="Carry out the plan. Without this, only show it.")
cancel_option = click.option(
    "--cancel", is_flag=True, help="Cancel moves in progress; requires --execute to take effect."
)
throttle_option = click.option("--throttle", "rate", metavar="BYTES", callback=parse_rate, help="Limit copying at each "
                               "broker to this many bytes a second, such as 500000 or 10MiB, until the moves "
                               "end.")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Planned:
    """One partition: where its replicas are, and where they are to be; `off` where its move is called off for that."""

    now: tuple[int, ...]
    then: tuple[int, ...]
    off: bool = False

    @property
    def adding(self) -> tuple[int, ...]:
        """The brokers that copy the partition; none where a move is called off."""
        return tuple(replica for replica in self.then if replica not in self.now)


Plan = Mapping["TopicPartition", Planned]
Infos = Mapping["TopicPartition", "PartitionInfo"]


def plan_of(infos: Mapping[TopicPartition, PartitionInfo], then: Mapping[TopicPartition, tuple[int, ...]]) -> Plan:
    """What has to change for partitions to be where they are wanted."""
    return {at: Planned(info.replicas, then[at]) for at, info in infos.items() if info.replicas != then[at]}


def run(client: Client, plan: Plan, *, rate: int | None = None, execute: bool, as_json: bool, what: str) -> None:
    """Shows a plan, and with `execute` carries it out: `what` says so at the bar. Raises `Failure`.

    The brokers copy at most `rate` bytes a second, each, until it is done.
    """
    if not as_json:
        _show(plan, rate)
    if execute and plan:
        carry_out(client, plan, what, rate)
    if as_json:
        partitions = [_json(at, each) for at, each in sorted(plan.items())]
        print_json({"executed": execute, "throttle": rate, "partitions": partitions})
    elif plan and execute:
        off = all(each.off for each in plan.values())
        click.echo(f"{'cancelled' if off else 'moved'} {counted(len(plan), 'partition')}")
    elif plan:
        click.echo("nothing has changed yet; --execute does it", err=True)


def _show(plan: Plan, rate: int | None) -> None:
    if not plan:
        click.echo("nothing to move: every replica is where it should be")
        return
    rows = [
        (*at, each.now, each.then, each.adding, [replica for replica in each.now if replica not in each.then])
        for at, each in sorted(plan.items())
    ]
    print_table(["topic", "partition", "replicas", "new replicas", "added", "removed"], rows)
    if rate is not None:
        click.echo(f"each broker copies at most {size_text(rate)} a second")


def _json(at: TopicPartition, each: Planned) -> dict[str, Any]:
    return {"topic": at[0], "partition": at[1], "from": list(each.now), "to": list(each.then)}


def carry_out(client: Client, plan: Plan, what: str, rate: int | None = None) -> None:
    """Begins the moves of a plan, and waits for their end under a bar. Raises `Failure` for what was refused."""
    from headrace.client import moves

    targets = {at: None if each.off else each.then for at, each in plan.items()}
    with _limited(client, plan, rate):
        refused = _refused(moves.move_partitions(client, targets))
        waiting = {at: each for at, each in plan.items() if at not in refused}
        try:
            _wait(client, waiting, what)
        except KeyboardInterrupt:
            click.echo("headrace: the moves continue; `headrace partition reassign --cancel` cancels them", err=True)
            raise
    raise_refused(refused, len(plan))
    _check(client, waiting)


@contextmanager
def _limited(client: Client, plan: Plan, rate: int | None) -> Iterator[None]:
    """The limits are set before the moves begin, and taken away once they have ended, or were refused or called off.

    While moves go on without this command, their limits stay.
    """
    from headrace.client import throttles
    from headrace.client.errors import BrokerError

    changes = _limits(plan, rate) if rate is not None else []
    throttles.apply(client, changes)
    try:
        yield
    except BrokerError:
        throttles.apply(client, map(throttles.undone, changes))
        raise
    except BaseException:
        if changes:
            topics = " ".join(change.name for change in changes if change.name in {topic for topic, _ in plan})
            hint = f"`headrace partition throttle {topics} --clear --execute` removes them"
            click.echo(f"headrace: the limits remain; {hint}", err=True)
        raise
    throttles.apply(client, map(throttles.undone, changes))
    _clear_called_off(client, {topic for (topic, _), each in plan.items() if each.off})


def _clear_called_off(client: Client, topics: set[str]) -> None:
    """Takes away the limits of moves that are called off; while others are under way, the rates of the brokers stay."""
    from headrace.client import moves, throttles
    from headrace.client.errors import ClientError

    lists = throttles.clearing(client, (), topics)
    throttles.apply(client, lists)
    if not lists or moves.list_moves(client):
        return
    for broker in brokers_up(client):
        try:
            throttles.apply(client, throttles.clearing(client, [broker], ()))
        except ClientError as error:
            # a rate alone limits no replica: what is called off because a broker is silent is off all the same
            click.echo(f"headrace: broker {broker} keeps its replication.throttled.rate: {error}", err=True)


def _limits(plan: Plan, rate: int) -> list[Change]:
    """As kafka-reassign-partitions has them: the brokers between which replicas are copied, and these replicas."""
    from headrace.client import throttles
    from headrace.client.moves import Move

    copied = {at: Move((*each.now, *each.adding), each.adding, ()) for at, each in plan.items() if each.adding}
    return throttles.limit({broker for move in copied.values() for broker in move.replicas}, rate, copied, ())


def _wait(client: Client, waiting: Plan, what: str) -> None:
    from headrace.client import moves

    copying = {at: each for at, each in waiting.items() if each.adding}
    copied = Copied(copying)
    unit = "bytes" if copying else "partitions"
    with Progress(what, None if copying else len(waiting), unit=unit) as progress:
        measured_s = 0.0
        while under_way := moves.list_moves(client, waiting):
            if not copying:
                progress.advance_to(len(waiting) - len(under_way))
            elif progress.shown and time.monotonic() - measured_s >= MEASURE_S:
                measured_s = time.monotonic()
                progress.what = f"{what}, {len(waiting) - len(under_way)} of {counted(len(waiting), 'partition')} done,"
                _measure(client, copied, under_way, progress)
            time.sleep(LOOK_S)


def _measure(client: Client, copied: Copied, under_way: Iterable[TopicPartition], progress: Progress) -> None:
    """A broker that does not say how large its logs are (one that is just dying) leaves the bar where it is."""
    from headrace.client import describe
    from headrace.client.errors import ClientError

    try:
        topics = {topic for topic, _ in copied.plan}
        found = describe.describe_log_dirs(client, topics, brokers=copied.brokers & brokers_up(client).keys())
    except ClientError:
        return
    done, progress.total = copied.measure(found, set(under_way))
    progress.advance_to(done)


class Copied:
    """How many bytes of how many the brokers that get replicas have: the sizes of their logs beside the one copied.

    A log that is written to meanwhile grows on both sides. What has arrived and was then deleted by retention counts
    as arrived once the move has ended.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.brokers = {broker for each in plan.values() for broker in (*each.now, *each.adding)}
        self._wanted: dict[TopicPartition, int] = {}
        """The bytes of each partition, as often as it is copied."""

    def measure(self, found: Iterable[LogDir], under_way: set[TopicPartition]) -> tuple[int, int]:
        """Bytes there, and bytes in all, out of the log directories of `brokers`."""
        sizes = {
            (each.broker, (replica.topic, replica.partition)): replica.size
            for each in found
            for replica in each.replicas
            if not replica.future
        }
        done = 0
        for at, each in self.plan.items():
            source = max((sizes.get((broker, at), 0) for broker in each.now), default=0)
            if at in under_way:
                self._wanted[at] = source * len(each.adding)
                done += sum(min(source, sizes.get((broker, at), 0)) for broker in each.adding)
            else:
                done += self._wanted.setdefault(at, source * len(each.adding))
        return done, sum(self._wanted.values())


def _check(client: Client, moved: Plan) -> None:
    """Somebody else may have called a move off, or made another of it."""

    def elsewhere(infos: Infos) -> list[TopicPartition]:
        return [at for at, each in sorted(moved.items()) if infos[at].replicas != each.then]

    other = elsewhere(_seen_once(client, moved, lambda infos: not elsewhere(infos)))
    if other:
        topic, index = other[0]
        raise Failure(f"topic {topic} partition {index} was not moved as planned: its move was cancelled or replaced")


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


def raise_refused(refused: Mapping[TopicPartition, Exception], requested: int) -> None:
    """The first refusal, and how many there are of how many asked; nothing where there is none."""
    if refused:
        first = refused[min(refused)]
        others = f" ({len(refused)} of {requested} refused)" if requested > 1 else ""
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
        raise Failure("no such partition is being moved" if chosen else "no partition is being moved", NOT_FOUND)
    return found


# -- Kafka's file


def read_kafka_json(path: Path) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas in a file such as kafka-reassign-partitions reads. Raises `Failure` with the error."""
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
            raise Failure(f"{path}: topic {topic} partition {index} is listed twice")
        found[topic, index] = tuple(replicas)
    return found


def write_kafka_json(path: Path, plan: Plan) -> None:
    """Where the replicas are now, in the same form: to go back to. Raises OSError."""
    import json

    parts = [{"topic": t, "partition": p, "replicas": list(each.now)} for (t, p), each in sorted(plan.items())]
    path.write_text(json.dumps({"version": 1, "partitions": parts}) + "\n")
