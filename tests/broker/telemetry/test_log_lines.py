"""The queue of log lines: what a line says, and what goes when there are too many."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator

import pytest

from headrace.broker.telemetry import log_lines
from headrace.broker.telemetry.log_lines import TEXT_CHARS_MAX, LogLines
from headrace.broker.telemetry.metrics import Counter

log = logging.getLogger("headrace.test")
NOW_MS = 1_700_000_000_000


@pytest.fixture
def dropped() -> Counter:
    return Counter("dropped")


@pytest.fixture
def lines(dropped: Counter) -> Iterator[LogLines]:
    handler = LogLines("headrace-7", lambda: NOW_MS, dropped)
    log.addHandler(handler)
    yield handler
    log.removeHandler(handler)


def said(lines: LogLines) -> list[str]:
    return [json.loads(line.value)["message"] for line in lines.take(1 << 20, 1 << 30)]


def test_what_a_line_says(lines: LogLines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "propagate", False)  # a report of the test could not carry what is no text
    try:
        raise ValueError("\udc80 is no text")
    except ValueError:
        log.exception("%s-%d cannot be read", "tópico", 3)
    (line,) = lines.take(10, 1000)
    found = json.loads(line.value)
    trace = found.pop("exception")
    assert trace.startswith("Traceback") and trace.endswith("ValueError: \udc80 is no text")
    assert line.time_ms == NOW_MS
    assert found == {
        "service": "headrace-7", "time": NOW_MS, "level": "ERROR", "logger": "headrace.test",
        "message": "tópico-3 cannot be read",
    }  # fmt: skip


def test_lines_are_taken_in_order_by_count_and_by_size(lines: LogLines) -> None:
    for number in range(5):
        log.warning("%d", number)
    size = len(lines.take(1, 1)[0].value)
    assert [len(lines.take(9, most)) for most in (1, 2 * size, 9 * size, 9 * size)] == [1, 2, 1, 0]


def test_the_oldest_go_when_there_are_too_many(
    lines: LogLines, dropped: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.warning("%03d", 0)
    monkeypatch.setattr(log_lines, "QUEUED_LINES_BYTES_MAX", 10 * len(lines.take(1, 1)[0].value))
    for number in range(25):
        log.warning("%03d", number)
    assert dropped.value == 15
    assert len(lines) == 10
    taken = lines.take(4, 1 << 20)
    for number in range(25, 27):
        log.warning("%03d", number)
    lines.put_back(taken)
    assert said(lines) == [f"{number:03d}" for number in range(17, 27)]
    assert dropped.value == 17
    for number in range(10):
        log.warning("%03d", number)
    assert dropped.value == 17, "what was taken has left its room"


def test_a_long_line_is_cut(lines: LogLines) -> None:
    log.warning("x" * 100_000)
    assert said(lines) == ["x" * TEXT_CHARS_MAX]


def test_a_line_that_cannot_be_formatted_hurts_nobody(lines: LogLines, capsys: pytest.CaptureFixture[str]) -> None:
    log.propagate = False
    try:
        log.warning("%d", "no number")
    finally:
        log.propagate = True
    assert len(lines) == 0
    assert "no number" in capsys.readouterr().err


def test_a_muted_thread_is_left_out_and_no_other(lines: LogLines) -> None:
    with lines.muted():
        log.warning("mine")
        other = threading.Thread(target=log.warning, args=("another's",))
        other.start()
        other.join()
    log.warning("later")
    assert said(lines) == ["another's", "later"]
