"""What `headrace.spark.register` asks a session of Spark: how many cores it has, and which Python its workers run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REMEDY: Final = 'os.environ["PYSPARK_PYTHON"] = sys.executable'
"""The line that lets workers run the Python of the driver."""
_ANSWER_S: Final = 30.0


def session_cores(spark: SparkSession) -> int | None:
    """The cores that a session's tasks run on; None where it does not say: over Spark Connect, or on a cluster whose
    executors are still to come and which has fewer so far than this machine."""
    from headrace.spark.tasks import machine_cores

    if _remote(spark):
        return None
    cores = int(spark.sparkContext.defaultParallelism)
    return cores if _local(spark) or cores > machine_cores() else None


def other_python(spark: SparkSession) -> str | None:
    """One sentence where a local session's workers would run another Python than this; None where they run this one,
    and for a cluster, whose machines have their own."""
    if _remote(spark) or not _local(spark):
        return None
    chosen = str(spark.sparkContext.pythonExec)
    prefix = _prefix(chosen)
    if prefix == sys.prefix:
        return None
    what = f"{chosen}, which does not run" if prefix is None else f"{chosen} (of {prefix})"
    return (
        f"Spark's workers would run {what} and not the Python of this program (of {sys.prefix}), which has headrace; "
        f"add this line before you create the session: {REMEDY}"
    )


def _remote(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def _local(spark: SparkSession) -> bool:
    return str(spark.sparkContext.master).startswith("local")


def _prefix(python: str) -> str | None:
    """Where a Python is installed, a virtual environment too, which links to the Python that it was made with."""
    found = shutil.which(python)
    if found is None:
        return None
    if os.path.abspath(found) == os.path.abspath(sys.executable):
        return sys.prefix
    try:
        command = [found, "-c", "import sys; print(sys.prefix)"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None
