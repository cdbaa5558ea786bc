"""Logs of services, watched: lines and errors by service and window, and whether they are worth an alert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from headrace.spark.pipelines.fields import fields_of, instant, moment_of, usable
from headrace.spark.pipelines.running import Mode


@dataclass(frozen=True, slots=True)
class LogMonitor:
    """A window's rate is its errors for each line; it alerts at `alert_rate` if it has at least `alert_lines` lines.

    A line is an error if its level is one of `error_levels`, in whatever case. `window` and `watermark` are durations
    of Spark.
    """

    mode: ClassVar[Mode] = "update"

    service_field: str = "service"
    time_field: str = "time"
    level_field: str = "level"
    error_levels: tuple[str, ...] = ("ERROR", "CRITICAL", "FATAL")
    time_unit: str = "ms"
    window: str = "1 minute"
    watermark: str = "10 minutes"
    alert_rate: float = 0.05
    alert_lines: int = 20

    def results(self, records: DataFrame) -> DataFrame:
        """(key, value): `service|start of the window`, and the window as JSON, with each batch that changes it."""
        return self.keyed(self.windows_of(self.lines_of(records)))

    def lines_of(self, records: DataFrame) -> DataFrame:
        """(service, moment, error) of the records that have a service and a time."""
        fields = {"service": self.service_field, "moment": self.time_field, "error": self.level_field}
        rows = fields_of(records, fields)
        is_error = F.upper("error").isin(*(level.upper() for level in self.error_levels))
        moment = moment_of(F.col("moment"), self.time_unit)
        columns = {"moment": moment, "error": F.coalesce(is_error, F.lit(False))}
        return usable(rows.withColumns(columns), "service", "moment")

    def windows_of(self, lines: DataFrame) -> DataFrame:
        """(service, start, lines, errors, rate, alert) by service and window; lines after the watermark are dropped."""
        windows = (
            lines.withWatermark("moment", self.watermark)
            .groupBy("service", F.window("moment", self.window).alias("window"))
            .agg(F.count("*").alias("lines"), F.count_if("error").alias("errors"))
        )
        rate = F.col("errors") / F.col("lines")
        alert = (rate >= self.alert_rate) & (F.col("lines") >= self.alert_lines)
        start = F.col("window.start").alias("start")
        return windows.select("service", start, "lines", "errors", rate.alias("rate"), alert.alias("alert"))

    def keyed(self, windows: DataFrame) -> DataFrame:
        """(key, value) for the sink."""
        rows = windows.withColumn("start", instant("start"))
        key = F.concat_ws("|", "service", "start")
        return rows.select(key.alias("key"), F.to_json(F.struct("*")).alias("value"))
