"""What a run says of a query, without a JVM."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from pyspark.accumulators import AccumulatorTCPServer, UpdateRequestHandler

from headrace_pipelines.running import Batch, batch_of, behind_of, reason_of, server_errors_in

FAILED = "[STREAM_FAILED] Query [id = 1-2, runId = 3-4] terminated with exception: "
PYTHON = """[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source does latestOffset: \
Traceback (most recent call last):
  File "reading.py", line 98, in pause
    raise error
    ^^^^^^^^^^^
headrace.client.errors.UnknownTopicError: topic logs: the cluster has no such topic or partition

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "source.py", line 120, in _subscribed
    planning.lost("topic logs does not exist any more", self.options)
headrace.spark.planning.DataLossError: topic logs does not exist any more.
 SQLSTATE: 38000 SQLSTATE: XXKST

JVM stacktrace:
org.apache.spark.sql.streaming.StreamingQueryException: [STREAM_FAILED] Query
  File "another.py", line 1, in main
ValueError: of no use"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FAILED + PYTHON, "topic logs does not exist any more"),
        (FAILED + "Job aborted due to stage failure.\nmore\n\nJVM stacktrace:\nat", "Job aborted due to stage failure"),
        ("", "the query failed"),
    ],
)
def test_reasons_are_one_line(text: str, reason: str) -> None:
    assert reason_of(text) == reason


def test_a_batch_without_state_and_without_rows() -> None:
    report: dict[str, Any] = {
        "batchId": 4, "numInputRows": 0, "processedRowsPerSecond": None, "observedMetrics": {}, "stateOperators": [],
        "durationMs": {"addBatch": 3, "triggerExecution": 5},
    }  # fmt: skip
    assert batch_of(report) == Batch(4, 0, 0.0, 0, 0, 0, 5)


@pytest.mark.parametrize(
    ("end", "latest", "behind"),
    [
        ('{"topics": {"t": {"0": 5, "1": 7}}}', '{"topics": {"t": {"0": 9, "1": 7}}}', 4),
        ('{"topics": {"t": {"0": 5}}}', '{"topics": {"t": {"0": 3, "1": 9}}}', 0),
        ('{"topics": {"t": {"0": 5}}}', "null", None),
        ("5", "9", None),
    ],
)
def test_how_much_is_left_to_read(end: str, latest: str, behind: int | None) -> None:
    assert behind_of({"sources": [{"endOffset": end, "latestOffset": latest}]}) == behind
    assert behind_of({"sources": []}) is None


def test_a_java_process_that_goes_first_is_a_matter_for_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # what is there now comes back after the test
    monkeypatch.setattr(AccumulatorTCPServer, "handle_error", AccumulatorTCPServer.handle_error)
    server_errors_in(tmp_path / "spark.log")
    with AccumulatorTCPServer(("127.0.0.1", 0), UpdateRequestHandler, "secret") as server:
        with socket.create_connection(server.socket.getsockname()) as java:
            java.sendall(b"secret\x00\x00")
        server.handle_request()
    assert "Traceback" in (tmp_path / "spark.log").read_text()
    assert capfd.readouterr().err == ""
