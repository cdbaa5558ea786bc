"""The classes that Spark loads, archived for the JVM (class-data sharing, JEP 350): drivers start in half the time.

An archive is for one Java and one PySpark; a JVM passes over one that does not fit it. Tests do without one as well.

    python -m tests.peers.class_archive          makes the archive for this interpreter's PySpark
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from . import jars

QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""In runs of seconds the second compiler, and threads that collect garbage, would cost more than they bring."""
QUIET: Final = "-Xlog:disable"
"""What Java says of an archive would stand among what a driver prints."""
SUBMIT: Final = "PYSPARK_SUBMIT_ARGS"
JOB_PATIENCE_S: Final = 300


def path() -> Path:
    """Where the archive for this interpreter's PySpark and for the Java on the path lies."""
    pyspark = find_spec("pyspark")
    assert pyspark is not None and pyspark.submodule_search_locations is not None
    core = next(Path(pyspark.submodule_search_locations[0], "jars").glob("spark-core_*.jar"))
    java = subprocess.run(["java", "-version"], check=True, capture_output=True, text=True).stderr
    made_of = f"{java}{core}{core.stat().st_mtime_ns}"
    return jars.PEERS / "spark" / f"classes-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.jsa"


def java_options() -> str:
    """Options of Java for drivers that are to start quickly, with the archive where it is there."""
    archive = path()
    usable = archive.exists() and " " not in str(archive)
    return f"{QUICK} {QUIET}" + (f" -XX:SharedArchiveFile={archive}" if usable else "")


def submit_arguments() -> str:
    """The same as the variable `SUBMIT`."""
    return f"--driver-java-options '{java_options()}' pyspark-shell"


def make() -> Path | None:
    """The archive, made by a Spark that does a little of everything where it is missing; None where Java makes none."""
    archive = path()
    if archive.exists():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    fresh = archive.with_name(f"{archive.name}.new")
    fresh.unlink(missing_ok=True)
    arguments = f"--driver-java-options '{QUICK} {QUIET} -XX:ArchiveClassesAtExit={fresh}' pyspark-shell"
    environment = {**os.environ, SUBMIT: arguments, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-m", "tests.peers.class_archive", "job"]
    subprocess.run(command, check=True, cwd=jars.ROOT, env=environment, timeout=JOB_PATIENCE_S, capture_output=True)
    if not fresh.exists():  # as where Java comes without an archive of its own classes, on which this one stands
        return None
    fresh.replace(archive)
    return archive


def job() -> None:
    """Batches and streams, through a source and a sink in Python and through state; returns when its JVM has ended."""
    from pyspark.sql import SparkSession

    import headrace.testing

    spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    with headrace.testing.broker() as broker, tempfile.TemporaryDirectory() as directory:
        options = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "t"}
        rows = spark.range(100).selectExpr("string(id % 7) AS key", "string(id) AS value")
        rows.write.format("headrace").options(**options).mode("append").save()
        options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "t", "startingOffsets": "earliest"}
        spark.read.format("headrace").options(**options).load().groupBy("key").count().collect()
        stream = spark.readStream.format("headrace").options(**options).load()
        counts = stream.withWatermark("timestamp", "1 minute").groupBy("key").count()
        writer = counts.writeStream.format("noop").outputMode("update").option("checkpointLocation", directory)
        writer.trigger(availableNow=True).start().awaitTermination()
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    jvm = gateway.proc
    spark.stop()
    jvm.stdin.close()
    jvm.wait()


if __name__ == "__main__":
    if sys.argv[1:] == ["job"]:
        job()
    else:
        made = make()
        print(f"Spark's classes in {made.relative_to(jars.ROOT)}" if made else "This Java archives no classes.")
