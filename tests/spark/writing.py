"""A driver to be killed: writes rows of two tasks to a topic in one batch write, exactly once.

python -m spark.writing BOOTSTRAP TOPIC LABEL ROWS
"""

from __future__ import annotations

import sys

from pyspark.sql import functions as F  # noqa: N812


def main(bootstrap: str, topic: str, label: str, rows: str) -> None:
    """A line when it begins, and one when it is done."""
    from spark.copying import session

    spark = session()
    frame = spark.range(0, int(rows), 1, 2).select(F.concat_ws("-", F.lit(label), "id").alias("value"))
    options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "delivery": "exactly-once"}
    options["kafka.batch.size"] = "4096"
    print("begins", flush=True)
    frame.write.format("headrace").options(**options).mode("append").save()
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
