"""How the demo says what goes on: a line a part, and a spinner on a terminal while Spark starts."""

from __future__ import annotations

import io

from rich.console import Console

from demo.__main__ import Parts


def said(*, terminal: bool, spins: bool) -> str:
    out = io.StringIO()
    parts = Parts(Console(file=out, force_terminal=terminal, width=80))
    with parts.part("starting Spark", spins=spins):
        pass
    assert [name for name, _ in parts.seconds] == ["starting Spark"]
    return out.getvalue()


def test_a_terminal_has_a_spinner_while_a_part_runs_that_asks_for_one() -> None:
    assert "some seconds more" in said(terminal=True, spins=True)
    assert "some seconds more" not in said(terminal=True, spins=False)


def test_a_log_has_a_line_and_nothing_that_moves() -> None:
    assert said(terminal=False, spins=True) == "starting Spark ...\n"


def test_a_part_that_fails_takes_no_time_and_leaves_no_spinner() -> None:
    out = io.StringIO()
    parts = Parts(Console(file=out, force_terminal=True, width=80))
    try:
        with parts.part("starting Spark", spins=True):
            raise SystemExit(130)
    except SystemExit:
        pass
    assert parts.seconds == []
    assert out.getvalue().endswith("\x1b[?25h\r\x1b[1A\x1b[2K"), "the cursor is back, and the line is gone"
