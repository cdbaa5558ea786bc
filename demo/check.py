"""Is it right? Every hour of every airport that the pipeline wrote, beside pandas over the same file."""

from __future__ import annotations

import json
from typing import Any, Final

import pandas as pd
from confluent_kafka import Consumer, TopicPartition

from demo.flights import WEATHER

COLUMNS: Final = ("demand", "supply", "surge", *WEATHER)
ON_TIME_MINUTES: Final = 15
READ_PATIENCE_S: Final = 30.0


def expected(flights: pd.DataFrame, weather: pd.DataFrame) -> pd.DataFrame:
    """What the pipeline should have written: `COLUMNS` by (origin, hour), hours as `2013-07-04T21:00:00Z`."""
    left = flights["dep_delay"] <= ON_TIME_MINUTES  # a cancelled flight has no delay, and is not on time
    hours = flights.assign(left=left).groupby(["origin", "time_hour"], as_index=False)
    table = hours.agg(demand=("left", "size"), supply=("left", "sum"))
    table["surge"] = table["demand"] / table["supply"].clip(lower=1)
    table = table.merge(weather, how="left", on=["origin", "time_hour"])
    return table.rename(columns={"time_hour": "hour"}).set_index(["origin", "hour"]).sort_index()[list(COLUMNS)]


def read_back(bootstrap: str, topic: str) -> tuple[pd.DataFrame, int]:
    """The last value of every key of the topic, in the shape of `expected`, and how many records there were.

    Raises TimeoutError if the end of the topic cannot be reached.
    """
    last: dict[bytes, bytes] = {}
    records = 0
    settings = {"bootstrap.servers": bootstrap, "group.id": "demo-check", "enable.auto.commit": False}
    consumer = Consumer({**settings, "enable.partition.eof": True})
    try:
        partitions = consumer.list_topics(topic, timeout=READ_PATIENCE_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, index, 0) for index in partitions])
        unread = set(partitions)
        while unread:
            # the end of a partition comes as a message too, so a call waits only for the next of those
            messages = consumer.consume(500, timeout=0.2) or consumer.consume(1, timeout=READ_PATIENCE_S)
            if not messages:
                raise TimeoutError(f"the end of {topic} was not reached in partitions {sorted(unread)}")
            for message in messages:
                if message.error() is not None:
                    unread.discard(message.partition())
                    continue
                last[message.key() or b""] = message.value() or b"{}"
                records += 1
    finally:
        consumer.close()
    return as_table(last), records


def as_table(values: dict[bytes, bytes]) -> pd.DataFrame:
    """Values by key, `origin|hour`, as a table. Raises ValueError where a key and its value disagree."""
    rows: list[dict[str, Any]] = []
    for key, value in values.items():
        row = json.loads(value)
        if key.decode() != f"{row['origin']}|{row['hour']}":
            raise ValueError(f"the value of {key.decode()} is of {row['origin']}|{row['hour']}")
        rows.append(row)
    table = pd.DataFrame(rows, columns=["origin", "hour", *COLUMNS])
    return table.set_index(["origin", "hour"]).sort_index()


def differences(found: pd.DataFrame, wanted: pd.DataFrame) -> list[str]:
    """Where the two differ, a line each; empty when every hour of every airport is equal, weather and all."""
    lines = [f"{origin} {hour}: missing" for origin, hour in wanted.index.difference(found.index)]
    lines += [f"{origin} {hour}: no flight was scheduled" for origin, hour in found.index.difference(wanted.index)]
    both = wanted.index.intersection(found.index)
    for column in COLUMNS:
        ours, theirs = found.loc[both, column].astype(float), wanted.loc[both, column].astype(float)
        wrong = (ours != theirs) & ~(ours.isna() & theirs.isna())
        lines += [
            f"{origin} {hour}: {column} is {ours[(origin, hour)]:g}, should be {theirs[(origin, hour)]:g}"
            for origin, hour in both[wrong]
        ]
    return lines
