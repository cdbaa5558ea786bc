"""Tables for people, JSON for programs, progress for what takes its time.

On a terminal tables are drawn by rich, which is imported only then; elsewhere columns are aligned with spaces and
nothing is cut off, so that `awk` and `grep` can work on them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import click

FOLDED_MIN = 12
"""Columns of text may be folded down to this many characters, or their heading."""
COLUMN_GAP = 3
"""Between two columns on a terminal; around the table it is one at each side."""
PROGRESS_AFTER_S = 1.0
PROGRESS_EVERY_S = 0.1


def print_json(value: Any) -> None:
    """One document, indented on a terminal."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2 if sys.stdout.isatty() else None))


class Done:
    """Reports what a command has changed: a line for each change as it happens, or one JSON list at the end.

    The list is also printed if a later change fails. If the command was given one name `alone`, the JSON is the object
    of its change, and nothing if it failed.
    """

    def __init__(self, as_json: bool, *, alone: bool = False) -> None:
        self.as_json = as_json
        self.alone = alone
        self._done: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.as_json and not self.alone:
            print_json(self._done)
        elif self.as_json and self._done:
            print_json(self._done[0])

    def add(self, value: dict[str, Any], line: str) -> None:
        """Records a change, as JSON and as a line of text."""
        self._done.append(value)
        if not self.as_json:
            click.echo(line)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None) -> None:
    """Rows under headings; numbers to the right. An empty table prints its headings alone."""
    texts = [[_text(cell) for cell in row] for row in rows]
    data = [list(row) for row in texts]
    right = [bool(data) and all(_is_number(row[i]) for row in data) for i in range(len(columns))]
    if sys.stdout.isatty():
        _print_rich(columns, data, right, title)
        return
    if title:
        click.echo(title)
    widths = [max(len(name), *(len(row[i]) for row in data), 0) for i, name in enumerate(columns)]
    heading = [name.upper().replace(" ", "-") for name in columns]
    for row in [heading, *data]:
        cells = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)]
        click.echo("  ".join(cells).rstrip())


def _print_rich(columns: Sequence[str], data: list[list[str]], right: list[bool], title: str | None) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    needed = 2 - COLUMN_GAP
    for at, (name, is_right) in enumerate(zip(columns, right, strict=True)):
        whole = max(len(name), *(len(row[at]) for row in data), 0)
        least = whole if is_right else min(whole, max(len(name), FOLDED_MIN))
        needed += least + COLUMN_GAP
        table.add_column(name, justify="right" if is_right else "left", overflow="fold", min_width=least)
    if needed > console.width:
        _print_records(columns, data, title)
        return
    for row in data:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _print_records(columns: Sequence[str], data: list[list[str]], title: str | None) -> None:
    """A line a cell: what is left where a row does not fit a line without breaking its numbers."""
    if title:
        click.echo(title)
    width = max(map(len, columns))
    for row in data:
        click.echo("")
        for name, cell in zip(columns, row, strict=True):
            click.echo(f"{name.ljust(width)}  {cell}")


def _text(cell: Any) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, (list, tuple, set, frozenset)):
        return ",".join(str(item) for item in cell) or "-"
    return str(cell)


def _is_number(text: str) -> bool:
    number = text.removesuffix("B").removesuffix("i").rstrip("KMGT ")
    return text == "-" or number.lstrip("-").replace(",", "").replace(".", "", 1).isdigit()


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 record`, `1,200 records`; `plural` where it is not the noun with an s."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def size_text(size: int) -> str:
    """A byte count for people."""
    if size < 0:
        return "-"
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")


def time_text(ms: int) -> str:
    """Milliseconds since 1970 as local ISO time."""
    from datetime import datetime

    return "-" if ms < 0 else datetime.fromtimestamp(ms / 1000).astimezone().isoformat(timespec="milliseconds")


class Progress:
    """A line on stderr that appears once something takes longer than a second, and goes when it is done.

    Nothing is drawn when stderr is no terminal, or when stdout is one and carries the output itself.
    """

    def __init__(self, what: str, total: int | None = None, *, unit: str = "", output_on_stdout: bool = False) -> None:
        self.what = what
        self.total = total
        self.unit = unit
        self.done = 0
        self._started = time.monotonic()
        self._drawn_at = 0.0
        self._enabled = sys.stderr.isatty() and not (output_on_stdout and sys.stdout.isatty())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._drawn_at:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    @property
    def shown(self) -> bool:
        """Whether somebody sees it."""
        return self._enabled

    def advance(self, amount: int = 1) -> None:
        self.advance_to(self.done + amount)

    def advance_to(self, done: int) -> None:
        """So much is done in all."""
        self.done = done
        if not self._enabled:
            return
        now = time.monotonic()
        if now - self._started >= PROGRESS_AFTER_S and now - self._drawn_at >= PROGRESS_EVERY_S:
            self._drawn_at = now
            self._draw(now - self._started)

    def _draw(self, elapsed_s: float) -> None:
        rate = self.done / elapsed_s
        counts = f"{self.done:,}" if self.total is None else f"{self.done:,}/{self.total:,}"
        bar = ""
        if self.total:
            filled = int(24 * min(self.done / self.total, 1.0))
            bar = f" [{'#' * filled}{'.' * (24 - filled)}]"
        sys.stderr.write(f"\r\x1b[K{self.what}{bar} {counts} {self.unit} ({rate:,.0f}/s)")
        sys.stderr.flush()
