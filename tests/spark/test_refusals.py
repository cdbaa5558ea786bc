"""What a Python process of Spark sends to the JVM if options or the cluster refuse a query: a sentence, one call."""

from __future__ import annotations

import struct
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest
from pyspark.sql.types import StructType
from pyspark.util import handle_worker_exception

from headrace.spark.data_source import HeadraceDataSource
from headrace.spark.options import source_options
from headrace.spark.refusals import in_one_sentence
from headrace.spark.source import BatchReader, StreamReader

NOBODY = {"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "t"}
SENTENCE = "ValueError: The headrace source has no option 'startingOffset'; did you mean 'startingOffsets'?"


def sent(act: Callable[[], Any]) -> list[str]:
    """The lines that Spark's worker sends for the error that `act` ends with."""
    file = BytesIO()
    try:
        act()
    except Exception as error:
        handle_worker_exception(error, file)
    _, length = struct.unpack("!ii", file.getvalue()[:8])
    return file.getvalue()[8 : 8 + length].decode().strip().splitlines()


@pytest.fixture(autouse=True)
def _as_spark_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)


def calls(lines: list[str]) -> int:
    return sum(line.startswith("  File ") for line in lines)


@pytest.mark.parametrize("method", ["schema", "reader", "streamReader", "writer", "streamWriter"])
def test_a_wrong_option_is_sent_without_the_calls_that_found_it(method: str) -> None:
    source = HeadraceDataSource({**NOBODY, "startingOffset": "earliest"})
    given: dict[str, tuple[Any, ...]] = {
        "schema": (), "reader": (StructType(),), "streamReader": (StructType(),),
        "writer": (StructType(), False), "streamWriter": (StructType(), False),
    }  # fmt: skip

    def act() -> None:
        made = getattr(source, method)(*given[method])
        made.initialOffset()  # of a stream, Spark asks its reader

    lines = sent(act)
    assert lines[-1] == SENTENCE if "riter" not in method else "no option" in lines[-1]
    assert calls(lines) <= 3, "the test's own, and one of the source"
    assert "During handling" not in "".join(lines)


def test_a_cluster_that_does_not_answer_is_one_sentence() -> None:
    batch = BatchReader(source_options(NOBODY, streaming=False))
    stream = StreamReader(source_options(NOBODY, streaming=True))
    for act in (batch.partitions, stream.initialOffset):
        lines = sent(act)
        assert lines[-1].endswith("UnreachableError: no broker answers: 127.0.0.1:9: Connection refused")
        assert calls(lines) == 2, lines


def test_a_defect_keeps_its_traceback() -> None:
    def inner() -> None:
        raise KeyError("x")

    lines = sent(in_one_sentence(inner))
    assert lines[-1] == "KeyError: 'x'" and calls(lines) >= 3
