"""What people and programs see: tables on terminals and off them, progress, sizes and times."""

from __future__ import annotations

import io
import re
import sys
import time
from datetime import datetime

import pytest

from headrace.cli import output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_columns_off_a_terminal_are_aligned_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(["name", "in sync", "count"], [("a" * 150, [1, 2], 5), ("b", [], None)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["NAME", "IN-SYNC", "COUNT"]
    assert lines[1].split() == ["a" * 150, "1,2", "5"]
    assert lines[2].split() == ["b", "-", "-"]
    output.print_table(["one"], [])
    assert capsys.readouterr().out == "ONE\n"


def test_tables_on_a_terminal_hold_what_rich_would_take_for_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    output.print_table(["name", "count"], [("[red]x[/red]", 5)], title="things")
    assert "[red]x[/red]" in terminal.getvalue()
    assert "things" in terminal.getvalue()


COLUMNS = ["topic", "partition", "committed", "latest", "lag", "member", "host"]
ROW = ("flights-of-the-year", 3, 1234567890, 1234567999, 109, "headrace-cli-0a1b2c3d-0a1b-2c3d-4e5f", "/127.0.0.1")


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_a_terminal_of_any_width_breaks_no_number(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", str(width))
    output.print_table(COLUMNS, [ROW, ROW])
    shown = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue())
    for number in ("1234567890", "1234567999", "109"):
        lines = [line for line in shown.splitlines() if number in line.split()]
        assert len(lines) == 2, shown
        assert max(map(len, lines)) <= width
    assert all(name in shown for name in COLUMNS), "no heading is broken either"


def test_a_number_and_its_noun() -> None:
    assert [output.counted(count, "record") for count in (0, 1, 2, 1200)] == [
        "0 records",
        "1 record",
        "2 records",
        "1,200 records",
    ]


def test_progress_shows_only_after_a_second_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with output.Progress("writing", 200, unit="bytes") as progress:
        progress.advance(10)
        assert terminal.getvalue() == ""
        now += 2
        progress.advance(90)
        assert "writing [############............] 100/200 bytes (50/s)" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_progress_is_silent_off_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with output.Progress("writing") as progress:
        now += 10
        progress.advance()
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("size", "text"),
    [(-1, "-"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB"), (9 << 50, "9216.0 TiB")],
)
def test_sizes(size: int, text: str) -> None:
    assert output.size_text(size) == text


def test_times() -> None:
    assert output.time_text(-1) == "-"
    assert datetime.fromisoformat(output.time_text(1_700_000_000_123)).timestamp() == 1_700_000_000.123
