"""Supply and demand by zone and window, and surge: the demand for each one supplied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from headrace_pipelines.fields import fields_of, instant, moment_of, truth_of, usable
from headrace_pipelines.running import Mode


@dataclass(frozen=True, slots=True)
class Surge:
    """Every event with a zone and a time is one of demand; its supply field says whether it is one of supply too.

    It is where the field is true or a number other than 0, or with `supply_at_most` a number of at most that: a flight
    was supplied if it left no more than 15 minutes late. `window` and `watermark` are durations of Spark.
    """

    mode: ClassVar[Mode] = "update"

    zone_field: str = "zone"
    time_field: str = "time"
    supply_field: str = "supply"
    supply_at_most: float | None = None
    time_unit: str = "ms"
    window: str = "5 minutes"
    watermark: str = "10 minutes"

    def results(self, records: DataFrame) -> DataFrame:
        """(key, value): `zone|start of the window`, and the window as JSON, with each batch that changes it."""
        return self.keyed(self.windows_of(self.events_of(records)))

    def events_of(self, records: DataFrame) -> DataFrame:
        """(zone, moment, supplied) of the records that have the first two."""
        fields = {"zone": self.zone_field, "moment": self.time_field, "supplied": self.supply_field}
        rows = fields_of(records, fields)
        supplied = truth_of(F.col("supplied"))
        if self.supply_at_most is not None:
            enough = F.col("supplied").try_cast("double") <= self.supply_at_most
            supplied = F.coalesce(enough, F.lit(False))
        moment = moment_of(F.col("moment"), self.time_unit)
        return usable(rows.withColumns({"moment": moment, "supplied": supplied}), "zone", "moment")

    def windows_of(self, events: DataFrame) -> DataFrame:
        """(zone, start, demand, supply, surge) by zone and window; events later than the watermark are dropped."""
        windows = (
            events.withWatermark("moment", self.watermark)
            .groupBy("zone", F.window("moment", self.window).alias("window"))
            .agg(F.count("*").alias("demand"), F.count_if("supplied").alias("supply"))
        )
        surge = F.col("demand") / F.greatest(F.col("supply"), F.lit(1))
        return windows.select("zone", F.col("window.start").alias("start"), "demand", "supply", surge.alias("surge"))

    def keyed(self, windows: DataFrame) -> DataFrame:
        """(key, value) for the sink."""
        rows = windows.withColumn("start", instant("start"))
        key = F.concat_ws("|", "zone", "start")
        return rows.select(key.alias("key"), F.to_json(F.struct("*")).alias("value"))
