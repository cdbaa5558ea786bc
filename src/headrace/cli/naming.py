"""What a person names on a command line: partitions, and brokers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from headrace.cli.failures import NOT_FOUND, Failure

if TYPE_CHECKING:
    from headrace.client.cluster import Client
    from headrace.client.metadata import TopicPartition


def chosen_partitions(client: Client, texts: Iterable[str]) -> list[TopicPartition]:
    """`TOPIC` or `TOPIC:0,2` texts as partitions. Raises `Failure` for one that is not there."""
    chosen: set[TopicPartition] = set()
    for text in texts:
        topic, colon, indexes = text.partition(":")
        known = client.partitions(topic)
        if not colon:
            chosen.update(known)
            continue
        for index in indexes.split(","):
            if not index.isdecimal() or (topic, int(index)) not in known:
                raise Failure(f"topic {topic} has no partition {index}", NOT_FOUND)
            chosen.add((topic, int(index)))
    return sorted(chosen)


def parse_brokers(text: str, option: str) -> list[int]:
    """`1,2,3` as broker ids. Raises BadParameter."""
    ids = text.split(",")
    if not all(each.isdecimal() for each in ids) or len(set(map(int, ids))) < len(ids):
        raise click.BadParameter(f"{text!r} is not a list of different broker ids such as 1,2,3", param_hint=option)
    return [int(each) for each in ids]


def brokers_up(client: Client) -> dict[int, str | None]:
    """The racks of the brokers that are up, by their ids."""
    from headrace.client import describe

    found = describe.describe_cluster(client)
    return {broker.id: broker.rack for broker in found.brokers if broker.id not in found.fenced}


def named_brokers(client: Client, ids: Sequence[int]) -> dict[int, str | None]:
    """The racks of these brokers. Raises `Failure` for one that is not up."""
    up = brokers_up(client)
    for broker in ids:
        if broker not in up:
            raise Failure(f"broker {broker} is not up; `headrace cluster describe` lists the brokers", NOT_FOUND)
    return {broker: up[broker] for broker in ids}
