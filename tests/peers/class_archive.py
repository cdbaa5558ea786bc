"""The classes that Spark and Apache Kafka load, archived for the JVM (class-data sharing, JEP 350): both start in half
the time and less.

An archive is for one Java and one set of jars; a JVM passes over one that does not fit it. Tests do without it as well.

    python -m tests.peers.class_archive          makes those for this interpreter's PySpark and for Kafka's jars
"""

from __future__ import annotations

import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from . import jars

QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""In runs of seconds the second compiler, and threads that collect garbage, would cost more than they bring."""
QUIET: Final = "-Xlog:disable"
"""What Java says of an archive would stand among what a driver prints."""
SUBMIT: Final = "PYSPARK_SUBMIT_ARGS"
JOB_PATIENCE_S: Final = 300
PATIENT: Final = {"spark.python.authenticate.socketTimeout": "120s"}
"""How long Spark waits for a connection of the Python that drives it: by default 15 s. For one of a worker's Python it
waits 10 s, which no setting changes (PythonWorkerFactory of Spark 4.3)."""


def _archive(folder: str, made_of: str) -> Path:
    java = subprocess.run(["java", "-version"], check=True, capture_output=True, text=True).stderr
    return jars.PEERS / folder / f"classes-{hashlib.sha256((java + made_of).encode()).hexdigest()[:16]}.jsa"


@functools.cache
def of_spark() -> Path:
    """Where the archive for this interpreter's PySpark and for the Java on the path lies."""
    pyspark = find_spec("pyspark")
    assert pyspark is not None and pyspark.submodule_search_locations is not None
    core = next(Path(pyspark.submodule_search_locations[0], "jars").glob("spark-core_*.jar"))
    return _archive("spark", f"{core}{core.stat().st_mtime_ns}")


@functools.cache
def of_kafka() -> Path:
    """The same for Kafka's jars, in the order in which Java finds them."""
    found = jars.ensure(jars.KAFKA).iterdir()
    return _archive(jars.KAFKA.name, "".join(f"{each}{each.stat().st_mtime_ns}" for each in found))


def options(archive: Path) -> tuple[str, ...]:
    """Options of Java for what is to start quickly, with the archive where it is there."""
    usable = archive.exists() and " " not in str(archive)
    return (*QUICK, QUIET, *([f"-XX:SharedArchiveFile={archive}"] if usable else ()))


def java_options() -> str:
    """Those of Spark's drivers."""
    return " ".join(options(of_spark()))


def submit_arguments() -> str:
    """The same as the variable `SUBMIT`, with what a busy machine needs."""
    patient = " ".join(f"--conf {key}={value}" for key, value in PATIENT.items())
    return f"--driver-java-options '{java_options()}' {patient} pyspark-shell"


def fresh(archive: Path) -> Path:
    """Where it is made; nothing lies there."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    made = archive.with_name(f"{archive.name}.new")
    made.unlink(missing_ok=True)
    return made


def making(made: Path) -> tuple[str, ...]:
    """Options of the Java that makes an archive at its end."""
    return (*QUICK, QUIET, f"-XX:ArchiveClassesAtExit={made}")


def make_of_spark() -> Path | None:
    """The archive, made by a Spark that does a little of everything where it is missing; None where Java makes none."""
    archive = of_spark()
    if archive.exists():
        return archive
    made = fresh(archive)
    arguments = f"--driver-java-options '{' '.join(making(made))}' pyspark-shell"
    environment = {**os.environ, SUBMIT: arguments, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-m", "tests.peers.class_archive", "job"]
    subprocess.run(command, check=True, cwd=jars.ROOT, env=environment, timeout=JOB_PATIENCE_S, capture_output=True)
    return kept(made, archive)


def make_of_kafka() -> Path | None:
    """The archive, made by a broker that serves a few tools where it is missing; None where Java makes none."""
    from .kafka import NODE_HEAP, KafkaPeer, kafka_tool

    archive = of_kafka()
    if archive.exists():
        return archive
    made = fresh(archive)
    with KafkaPeer(flags=(NODE_HEAP, *making(made))) as broker:
        where = ("--bootstrap-server", broker.bootstrap, "--topic", "t")
        kafka_tool("org.apache.kafka.tools.TopicCommand", *where, "--create")
        kafka_tool("org.apache.kafka.tools.ConsoleProducer", *where, stdin="value\n")
        reading = (*where, "--from-beginning", "--max-messages", "1", "--group", "g")
        kafka_tool("org.apache.kafka.tools.consumer.ConsoleConsumer", *reading)
        broker.stop()
    return kept(made, archive)


def kept(made: Path, archive: Path) -> Path | None:
    """In its place, if Java has made one: none where it comes without an archive of its own classes, on which one
    stands."""
    if not made.exists():
        return None
    made.replace(archive)
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
        for name, made in (("Spark", make_of_spark()), ("Kafka", make_of_kafka())):
            print(f"{name}'s classes in {made.relative_to(jars.ROOT)}" if made else "This Java archives no classes.")
