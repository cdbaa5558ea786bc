"""Error rates of services by window, declared: the topic `logs` into `error-rates`, and those that alert into `alerts`.

The windows are those of `headrace pipeline run log-monitor`; a sink of a declarative pipeline appends, so that each
window is written once, when the watermark has passed its end.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from headrace_pipelines.log_monitor import LogMonitor

BROKERS = {"kafka.bootstrap.servers": os.environ.get("HEADRACE_BOOTSTRAP", "127.0.0.1:9092")}

spark = SparkSession.active()
monitor = LogMonitor(window="1 minute", watermark="1 minute", alert_rate=0.05, alert_lines=20)


@dp.temporary_view
def windows() -> DataFrame:
    """(service, start, lines, errors, rate, alert) by service and window."""
    options = {**BROKERS, "subscribe": "logs", "startingOffsets": "earliest"}
    records = spark.readStream.format("headrace").options(**options).load()
    return monitor.windows_of(monitor.lines_of(records))


dp.create_sink("rates", "headrace", {**BROKERS, "topic": "error-rates"})
dp.create_sink("alerts", "headrace", {**BROKERS, "topic": "alerts"})


@dp.append_flow(target="rates")
def all_windows() -> DataFrame:
    """(key, value): `service|start of the window`, and the window as JSON."""
    return monitor.keyed(spark.readStream.table("windows"))


@dp.append_flow(target="alerts")
def alerting_windows() -> DataFrame:
    """The same, of those that alert."""
    return monitor.keyed(spark.readStream.table("windows").where("alert"))
