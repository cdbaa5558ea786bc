"""What a table knows of the topic that it follows, kept beside its rows and changed together with them.

Offsets grow along a partition, and a batch is applied whole or not at all. So one number a partition says of every
record whether the table has it: the offset after the last one applied. Lower offsets are skipped, be it an upsert
or a delete, whatever batch it comes in; a deleted row needs no tombstone, and the table no column of ours.

This holds while one run writes a table, in the order of the offsets. Each run puts a name of its own beside the
positions when it begins; one that was thought dead finds another's there and ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

import pyarrow as pa

BOOKS: Final = "headrace_table_sync"
"""The table that databases keep this in, a row for each table that follows a topic."""


class TableError(Exception):
    """What a table refuses, or does not fit; the text is one line, without a password."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and its id in hexadecimal digits, empty where the cluster has no ids."""

    name: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class Following:
    """A topic, the run that writes its table, and the next offset by partition."""

    topic: Topic
    run: str
    positions: Mapping[int, int]

    def text(self) -> str:
        """As it is kept."""
        return json.dumps(
            {
                "topic": self.topic.name,
                "topic_id": self.topic.id,
                "run": self.run,
                "positions": {str(partition): at for partition, at in sorted(self.positions.items())},
            }
        )

    def at(self, positions: Mapping[int, int]) -> Following:
        """The same, further on."""
        return replace(self, positions=dict(positions))

    def written_by(self, run: str, table: str) -> Following:
        """The same. Raises `TableError` where another run has taken the table over."""
        if self.run != run:
            raise TableError(f"another run has taken over {table}; one table has one writer")
        return self


def following_of(text: str) -> Following:
    """What `Following.text` has written."""
    stored = json.loads(text)
    positions = {int(partition): int(at) for partition, at in stored["positions"].items()}
    return Following(Topic(stored["topic"], stored["topic_id"]), stored["run"], positions)


def taken_over(known: Following | None, topic: Topic, run: str, table: str) -> Following:
    """What a run begins with that takes up a table. Raises `TableError` for a table of another topic."""
    if known is None:
        return Following(topic, run, {})
    if known.topic.name != topic.name:
        raise TableError(f"{table} follows the topic {known.topic.name}; it cannot follow {topic.name} too")
    if known.topic.id and topic.id and known.topic.id != topic.id:
        raise TableError(
            f"the topic {topic.name} was deleted and made again since {table} followed it; "
            "its offsets begin at 0 again, so write the rows to another table"
        )
    return replace(known, topic=topic, run=run)


Refused = Mapping[int, str]
"""Why a table refuses changes, by their rows in a batch."""
Settle = Callable[[Refused], None]
"""Takes the refused records of a batch, before the table has the rest."""


class Target(Protocol):
    """A table that follows a topic."""

    nested_as_json: bool
    """Whether arrays and structs come as JSON text."""
    takes_nul: bool
    """Whether a text may have a NUL in it."""
    takes_endless: bool
    """Whether a date or time may be without end; else it is the last one of the year 9999, or the first of 1."""
    buckets: int
    """How many buckets keys are spread over; 0 where rows come without."""
    refuses: bool
    """Whether it may refuse a change that fits the layout."""

    def open(self, topic: Topic, run: str) -> None:
        """Make the table, or look whether it fits, and take it over. Raises `TableError`."""

    def apply(self, changes: pa.Table, settle: Settle | None = None) -> None:
        """Apply a batch of changes, as `changes.schema_of` has them, as if one by one in the order of each partition.

        All or nothing, but for what the table refuses: that goes to `settle`, which is called once, also where there
        is nothing, and raises what ends the batch. Without it a change that is refused does. What the table has already
        changes nothing. Raises `TableError`.
        """
