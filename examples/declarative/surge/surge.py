"""Supply and demand by zone and window, declared: the topic `rides` into the topic `surges`.

The windows are those of `headrace pipeline run surge`; a sink of a declarative pipeline appends, so that each window is
written once, when the watermark has passed its end.
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from headrace_pipelines.surge import Surge

BROKERS = {"kafka.bootstrap.servers": os.environ.get("HEADRACE_BOOTSTRAP", "127.0.0.1:9092")}

spark = SparkSession.active()
surge = Surge(window="5 minutes", watermark="10 minutes")


dp.create_sink("surges", "headrace", {**BROKERS, "topic": "surges"})


@dp.append_flow(target="surges")
def zones() -> DataFrame:
    """(key, value): `zone|start of the window`, and the window as JSON."""
    options = {**BROKERS, "subscribe": "rides", "startingOffsets": "earliest"}
    # read here and not in a view of its own: what counts unreadable records is resolved as soon as it is declared
    return surge.results(spark.readStream.format("headrace").options(**options).load())
