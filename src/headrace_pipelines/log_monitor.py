"""Logs of services, watched: lines and errors by service and window, and whether they are worth an alert."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from headrace_pipelines.fields import fields_of, instant, moment_of, usable
from headrace_pipelines.running import Mode


@dataclass(frozen=True, slots=True)
class LogMonitor:
    """A window's rate is its errors for each line; it alerts at `alert_rate` if it has at least `alert_lines` lines.

    A line is an error if its level is one of `error_levels`, in whatever case. Where records are counts themselves,
    `lines_field` and `errors_field` name the fields with the number of lines of a record, and how many of them are
    errors; records without the first are not counted. `window` and `watermark` are durations of Spark.
    """

    mode: ClassVar[Mode] = "update"

    service_field: str = "service"
    time_field: str = "time"
    level_field: str = "level"
    lines_field: str = ""
    errors_field: str = ""
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
        """(service, moment, lines, errors) of the records that have a service and a time."""
        named = {"lines": self.lines_field, "errors": self.errors_field}
        counts = {column: name for column, name in named.items() if name}
        fields = {"service": self.service_field, "moment": self.time_field, "level": self.level_field, **counts}
        rows = fields_of(records, fields)
        is_error = F.coalesce(F.upper("level").isin(*(level.upper() for level in self.error_levels)), F.lit(False))
        otherwise = {"lines": F.lit(1), "errors": is_error.cast("int")}
        numbers = {
            column: F.col(column).try_cast("bigint") if column in counts else otherwise[column] for column in named
        }
        rows = rows.withColumns({"moment": moment_of(F.col("moment"), self.time_unit), **numbers})
        return usable(rows.where(F.col("lines").isNotNull()), "service", "moment")

    def windows_of(self, lines: DataFrame) -> DataFrame:
        """(service, start, lines, errors, rate, alert) by service and window; lines after the watermark are dropped."""
        windows = (
            lines.withWatermark("moment", self.watermark)
            .groupBy("service", F.window("moment", self.window).alias("window"))
            .agg(F.sum("lines").alias("lines"), F.coalesce(F.sum("errors"), F.lit(0)).alias("errors"))
        )
        rate = F.coalesce(F.try_divide("errors", "lines"), F.lit(0.0))
        alert = (rate >= self.alert_rate) & (F.col("lines") >= self.alert_lines)
        start = F.col("window.start").alias("start")
        return windows.select("service", start, "lines", "errors", rate.alias("rate"), alert.alias("alert"))

    def keyed(self, windows: DataFrame) -> DataFrame:
        """(key, value) for the sink."""
        rows = windows.withColumn("start", instant("start"))
        key = F.concat_ws("|", "service", "start")
        return rows.select(key.alias("key"), F.to_json(F.struct("*")).alias("value"))
