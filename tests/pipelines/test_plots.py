"""Pictures of runs: what is on them, looked up on the figure, and that a PNG comes out."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

import headrace.testing
from headrace.client.admin import create_topic
from headrace.client.producer import Producer
from headrace_pipelines.plots import COLOURS, Done, draw, figure_of, latest_results

from .expected import T0_S, iso

BATCHES = [Done(T0_S + n, 100 * n, 500 - 100 * n, 1000.0) for n in range(5)]


def windows(zones: int = 2, count: int = 4) -> list[dict[str, Any]]:
    return [
        {"zone": f"z{zone}", "start": iso(T0_S + 300 * n), "demand": 10 * (zone + 1) + n, "supply": n, "surge": 2.5}
        for zone in range(zones) for n in reversed(range(count))
    ]  # fmt: skip


def legend(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def heights(line: Any) -> list[float]:
    return list(line.get_ydata())


def bars(axes: Any) -> list[float]:
    return [bar.get_height() for bar in axes.patches]


def marked(points: Any) -> list[float]:
    return [y for _, y in points.get_offsets()]


def test_surge_over_time() -> None:
    figure = figure_of("surge", BATCHES, windows())
    upper, lower = figure.axes
    assert upper.get_ylabel().startswith("demand") and lower.get_ylabel().startswith("surge")
    demand, supply = upper.get_lines()[:2]
    assert heights(demand) == [20, 21, 22, 23] and heights(supply) == [0, 1, 2, 3], "in order of time"
    assert legend(upper) == ["z1", "z0"], "most demand first"
    assert heights(lower.get_lines()[0]) == [2.5] * 4
    assert "2 zones, 8 windows" in figure.get_suptitle() and "1,000 records in 5 batches" in figure.get_suptitle()


def test_only_so_many_zones_are_drawn_and_their_names_are_no_formulas() -> None:
    many = windows(zones=20)
    many[0]["zone"] = "$_{"
    many[0]["demand"] = 10_000
    many[1]["zone"] = "_hidden" + "x" * 50
    many[1]["demand"] = 9_000
    figure = figure_of("surge", BATCHES, many)
    assert len(legend(figure.axes[0])) == len(COLOURS)
    assert legend(figure.axes[0])[0] == r"\$_{" and legend(figure.axes[0])[1].startswith(" _hiddenx")
    figure.canvas.draw()


def test_sessions_by_length_and_events() -> None:
    sessions = [
        {"user": f"u{n % 2}", "start": iso(T0_S), "end": iso(T0_S + 60 * n), "events": n + 1, "top_pages": []}
        for n in range(9)
    ]
    figure = figure_of("sessions", BATCHES, sessions)
    minutes, events = figure.axes
    assert minutes.get_xlabel().startswith("minutes") and events.get_xlabel() == "events"
    assert sum(bars(minutes)) == 9
    assert legend(minutes) == ["median 4"] and legend(events) == ["median 5"]
    assert "9 sessions of 2 users" in figure.get_suptitle()


def test_log_monitor_marks_alerts() -> None:
    rows = [
        {"service": service, "start": iso(T0_S + 60 * n), "lines": 100, "errors": errors, "rate": errors / 100,
         "alert": errors > 5}
        for service, errors in (("shop", 9), ("cart", 1)) for n in range(3)
    ]  # fmt: skip
    figure = figure_of("log-monitor", BATCHES, rows)
    rates, lines = figure.axes
    assert legend(rates) == ["shop", "cart", "alert"]
    assert heights(rates.get_lines()[0]) == [9.0] * 3
    (alerts,) = rates.collections
    assert marked(alerts) == [9.0] * 3
    assert lines.get_ylabel() == "lines a window"
    assert "3 alerts" in figure.get_suptitle()


@pytest.mark.parametrize(("name", "results"), [("mirror", []), ("surge", []), ("surge", [{"zone": "of others"}])])
def test_progress_where_there_are_no_results(name: str, results: list[dict[str, Any]]) -> None:
    figure = figure_of(name, BATCHES, results)
    rows, behind = figure.axes
    assert heights(rows.get_lines()[0]) == [0, 100, 200, 300, 400]
    assert behind.get_ylabel() == "records left to read"
    assert heights(behind.get_lines()[0]) == [500, 400, 300, 200, 100]
    unknown = [Done(done.at_s, done.rows, None, done.rows_per_s) for done in BATCHES]
    assert figure_of(name, unknown, results).axes[1].get_ylabel() == "records a second"
    assert figure_of(name, [], results).axes[1].get_ylabel() == "records a second"


@pytest.mark.slow
def test_a_png_that_is_not_blank(tmp_path: Path) -> None:
    import matplotlib.image

    path = tmp_path / "surge.png"
    draw(path, "surge", BATCHES, windows())
    written = path.read_bytes()
    assert written.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", written[16:24]) == (1210, 715)
    pixels = matplotlib.image.imread(path)
    colours = {tuple(int(255 * part) for part in pixel[:3]) for row in pixels for pixel in row}
    assert {(0, 114, 178), (213, 94, 0)} <= colours, "a line for each of two zones"


def test_results_are_the_last_values_in_the_topic() -> None:
    with headrace.testing.broker() as broker, broker.client() as client:
        create_topic(client, "out", partitions=2)
        with Producer(client) as producer:
            for key, value in ((b"a", b'{"n": 1}'), (b"b", b'{"n": 2}'), (b"a", b'{"n": 3}'), (b"c", b"no json"),
                               (b"d", b"[1]"), (b"b", None)):  # fmt: skip
                producer.send("out", value, key=key, partition=0)
        assert latest_results(broker.bootstrap, "out") == [{"n": 3}]
