"""A small local Spark: two cores, quiet, its own noise in a file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from headrace.spark.pipelines.running import standard_error_in

JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a minute's work on two cores: the second compiler and parallel collectors would cost more than they bring."""

JAVA_MIN: Final = 17
"""What Spark 4 runs on; Java 8 calls itself 1.8."""


def java_is_missing() -> bool:
    """Whether Spark would find no Java, or one too old for it. JAVA_HOME comes before the path, as for Spark."""
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not command or not Path(command).exists():
        return True
    said = subprocess.run([command, "-version"], check=False, capture_output=True, text=True)
    found = re.search(r'version "(\d+)', said.stderr)
    return found is None or int(found[1]) < JAVA_MIN


def open_session(log: Path, partitions: int = 2) -> SparkSession:
    """A local session whose JVM and Python workers write their logs to `log`."""
    # Spark's workers run in this virtual environment, whatever python3 is elsewhere
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.master(f"local[{partitions}]")
        .appName("headrace-demo")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", JVM)
        .config("spark.log.level", "ERROR")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(partitions))
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .config("spark.sql.streaming.metricsEnabled", "false")
    )
    with standard_error_in(log):
        return builder.getOrCreate()
