"""A small local Spark: two cores, quiet, its own noise in a file."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from headrace_pipelines.running import standard_error_in

JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a minute's work on two cores: the second compiler and parallel collectors would cost more than they bring."""

END_PATIENCE_S: Final = 3.0
"""How long Java is given to end by itself."""

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
    with standard_error_in(log), no_java_left():
        return builder.getOrCreate()


@contextmanager
def no_java_left() -> Iterator[None]:
    """Ends the Java that PySpark starts inside where the block ends early, as with a signal.

    That Java would never end: PySpark has removed the directory in which it is to write down where it listens, so its
    main thread fails, the thread that listens stays, and nobody looks whether Python is still there.
    """
    before = _children()
    try:
        yield
    except BaseException:
        for process in sorted(_children() - before):
            _end(process)
        raise


def _children() -> set[int]:
    """The processes that this one has started and that run."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it ended meanwhile
        if int(parent) == os.getpid() and state != "Z":
            found.add(int(path.parent.name))
    return found


def _end(process: int) -> None:
    """Asks a process to end, and ends it where it does not."""
    try:
        watched = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            signal.pidfd_send_signal(watched, number)
            if select.select([watched], [], [], END_PATIENCE_S)[0]:
                return
    except ProcessLookupError:
        return
    finally:
        os.close(watched)
