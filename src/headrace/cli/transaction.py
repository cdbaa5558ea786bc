"""`headrace transaction`: list, describe, abort, find those that hang."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from headrace.cli.failures import NOT_FOUND, Failure
from headrace.cli.help_text import CommandGroup
from headrace.cli.naming import chosen_partitions
from headrace.cli.options import INT64_MAX, cluster_options, confirm, duration_option, json_option, yes_option
from headrace.cli.output import print_json, print_table, time_text

if TYPE_CHECKING:
    from headrace.client.cluster import Client
    from headrace.client.transaction_states import ActiveProducer

_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


@click.group(cls=CommandGroup)
def transaction() -> None:
    """List and describe transactions; find and abort hanging ones."""


@transaction.command("list")
@click.option("--state", "states", multiple=True, type=click.Choice(_STATES), help="Only ids in this state.")
@click.option(
    "--producer-id",
    "producer_ids",
    multiple=True,
    type=click.IntRange(0, INT64_MAX),
    help="Only ids of this producer id; repeatable.",
)
@duration_option("--longer-than", "0ms", "Only transactions that are open for longer.")
@click.option("--pattern", metavar="RE", help="Only ids that this regular expression (RE2) matches as a whole.")
@json_option
@cluster_options
def list_transactions(
    client: Client,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than: int,
    pattern: str | None,
    as_json: bool,
) -> None:
    """List transactional ids, with their producers and states."""
    from headrace.client import transaction_states

    found = transaction_states.list_transactions(
        client,
        states=states,
        producer_ids=producer_ids,
        longer_than_ms=longer_than or -1,
        pattern=pattern,
    )
    if as_json:
        print_json(
            [
                {
                    "transactional_id": each.transactional_id,
                    "producer_id": each.producer_id,
                    "state": each.state,
                    "coordinator": each.coordinator,
                }
                for each in found
            ]
        )
        return
    rows = [(each.transactional_id, each.producer_id, each.state, each.coordinator) for each in found]
    print_table(["transactional id", "producer", "state", "coordinator"], rows)


@transaction.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@json_option
@cluster_options
def describe(client: Client, ids: tuple[str, ...], as_json: bool) -> None:
    """Describe transactional ids: state, age, timeout, and the partitions of the transaction."""
    from headrace.client.errors import BrokerError
    from headrace.client.transaction_states import describe_transaction
    from headrace.wire.errors import ErrorCode

    found = []
    for transactional_id in ids:
        try:
            found.append(describe_transaction(client, transactional_id))
        except BrokerError as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            text = f"there is no transactional id {transactional_id}; `headrace transaction list` lists them"
            raise Failure(text, NOT_FOUND) from error
    if as_json:
        print_json(
            [
                {
                    "transactional_id": each.transactional_id,
                    "coordinator": each.coordinator,
                    "state": each.state,
                    "producer_id": each.producer_id,
                    "producer_epoch": each.producer_epoch,
                    "timeout_ms": each.timeout_ms,
                    "start_ms": each.start_ms,
                    "partitions": [{"topic": topic, "partition": index} for topic, index in each.partitions],
                }
                for each in found
            ]
        )
        return
    for each in found:
        click.echo(
            f"{each.transactional_id}: {each.state}, producer {each.producer_id} epoch {each.producer_epoch}, "
            f"timeout {each.timeout_ms} ms, coordinator {each.coordinator}"
        )
        if each.state == "Ongoing":
            age_s = max(0, time.time_ns() // 1_000_000 - each.start_ms) / 1000
            click.echo(f"open since {time_text(each.start_ms)} ({age_s:.0f} s)")
        if each.partitions:
            print_table(["topic", "partition"], each.partitions)


@transaction.command("find-hanging")
@click.argument("names", nargs=-1, metavar="[TOPIC[:PARTITION,...]]...")
@duration_option("--longer-than", "15m", "Only those whose producers have been silent for longer.")
@json_option
@cluster_options
def find_hanging(client: Client, names: tuple[str, ...], longer_than: int, as_json: bool) -> None:
    """Find open transactions that no coordinator knows, in these topics or in all.

    Consumers of committed records cannot read past them; `headrace transaction abort` ends one.
    """
    from headrace.client import transaction_states

    if not names:
        names = tuple(each.name for each in client.topics())
    found = transaction_states.find_hanging(client, chosen_partitions(client, names), longer_than_ms=longer_than)
    _print_producers(found, as_json)


def _print_producers(found: list[ActiveProducer], as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "topic": each.partition[0],
                    "partition": each.partition[1],
                    "producer_id": each.producer_id,
                    "producer_epoch": each.producer_epoch,
                    "coordinator_epoch": each.coordinator_epoch,
                    "start_offset": each.start_offset,
                    "last_ms": each.last_ms,
                }
                for each in found
            ]
        )
        return
    rows = [
        (*each.partition, each.producer_id, each.producer_epoch, each.start_offset, time_text(each.last_ms))
        for each in found
    ]
    print_table(["topic", "partition", "producer", "epoch", "start offset", "last write"], rows)


@transaction.command()
@click.argument("topic")
@click.argument("partition", type=click.IntRange(0, INT64_MAX))
@click.argument("start_offset", type=click.IntRange(0, INT64_MAX))
@yes_option
@json_option
@cluster_options
def abort(client: Client, topic: str, partition: int, start_offset: int, yes: bool, as_json: bool) -> None:
    """Abort the transaction that is open in a partition from START_OFFSET on, regardless of its coordinator.

    Use it for a transaction that hangs. Consumers of committed records will never see its records.
    """
    from headrace.client import transaction_states

    (at,) = chosen_partitions(client, [f"{topic}:{partition}"])
    producers = transaction_states.describe_producers(client, [at])
    open_ = [each for each in producers if each.start_offset == start_offset]
    if not open_:
        text = f"no transaction is open in {topic}-{partition} from offset {start_offset} on"
        raise Failure(f"{text}; `headrace transaction find-hanging {topic}` shows those that hang", NOT_FOUND)
    confirm(f"Abort the transaction of producer {open_[0].producer_id} in {topic}-{partition}?", yes)
    transaction_states.abort(client, open_[0])
    if as_json:
        print_json({"topic": topic, "partition": partition, "producer_id": open_[0].producer_id, "aborted": True})
    else:
        click.echo(f"aborted the transaction of producer {open_[0].producer_id} in {topic}-{partition}")
