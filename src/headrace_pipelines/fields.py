"""Fields of JSON values as columns: their text, the moments and truths that it says, and the rows that lack them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

UNREADABLE: Final = "unreadable"
"""The name of the metric that `usable` leaves in a query's progress, and of the column in it."""
MICROS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Microseconds in the units in which JSON may say a time as a number."""


def fields_of(records: DataFrame, fields: Mapping[str, str]) -> DataFrame:
    """A column for each key of `fields`: the text of the JSON field that its value names, null where there is none.

    Texts, because JSON's fields change their types from one writer to the next; a value that is no object gives nulls.
    """
    names = sorted(set(fields.values()))
    shape = StructType([StructField(name, StringType()) for name in names])
    events = records.select(F.from_json(F.col("value").cast("string"), shape).alias("event"))
    return events.select(*(F.col("event").getField(name).alias(column) for column, name in fields.items()))


def moment_of(text: Column, unit: str) -> Column:
    """The timestamp of a text: a number in this unit since 1970, or ISO 8601; null for anything else.

    A time without a zone is one of the session's zone.
    """
    micros = (text.try_cast("decimal(20, 6)") * F.lit(MICROS[unit])).try_cast("bigint")
    return F.coalesce(F.timestamp_micros(micros), text.try_cast("timestamp"))


def truth_of(text: Column) -> Column:
    """Whether a text says yes: true, or a number other than 0."""
    return F.coalesce((F.lower(text) == "true") | (text.try_cast("double") != 0), F.lit(False))


def usable(rows: DataFrame, *needed: str) -> DataFrame:
    """The rows that have a value in all of these columns. The query's progress counts the others: `UNREADABLE`."""
    complete = F.lit(True)
    for name in needed:
        complete = complete & F.col(name).isNotNull()
    return rows.observe(UNREADABLE, F.count_if(~complete).alias(UNREADABLE)).where(complete)


def instant(moment: str, *, millis: bool = False) -> Column:
    """A column of timestamps as text, `2013-07-04T21:00:00Z`; the session's zone must be UTC."""
    return F.date_format(moment, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'" if millis else "yyyy-MM-dd'T'HH:mm:ss'Z'")
