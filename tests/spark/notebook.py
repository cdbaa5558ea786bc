"""A page of documentation as a notebook: its cells, run in order in one namespace, and what each of them prints.

    python notebook.py PAGE BOOTSTRAP

Fences of `python` and `sh` are cells; one of `text` right below a cell is what that cell prints. Writes a list of cells
as JSON to standard output: what was said in `wanted`, what was printed in `found`, and `error` where one failed, the
last then.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import traceback
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

WRITTEN_FOR: Final = "127.0.0.1:9092"
"""The broker of the page; the one given takes its place."""
FENCE: Final = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


@dataclass
class Cell:
    """A cell of the page, and what became of it."""

    language: str
    code: str
    wanted: str = ""
    found: str = ""
    error: str = ""


def cells_of(page: str) -> list[Cell]:
    """The cells of a page, in order."""
    cells: list[Cell] = []
    last_end = -1
    for fence in FENCE.finditer(page):
        if fence[1] in ("python", "sh"):
            cells.append(Cell(fence[1], fence[2]))
            last_end = fence.end()
        elif fence[1] == "text" and last_end >= 0 and not page[last_end : fence.start()].strip():
            cells[-1].wanted = fence[2]
    return cells


def tidied(text: str) -> str:
    """Without what an editor would take away: spaces at the ends of lines, empty lines at the end."""
    lines = "\n".join(line.rstrip() for line in text.splitlines()).rstrip("\n")
    return lines + "\n" if lines else ""


def run(cell: Cell, names: dict[str, Any], bootstrap: str) -> None:
    """Run a cell; its output and its failure are kept in it."""
    code = cell.code.replace(WRITTEN_FOR, bootstrap)
    said = io.StringIO()
    try:
        if cell.language == "sh":
            done = subprocess.run(["bash", "-e", "-c", code], check=False, capture_output=True, text=True)
            said.write(done.stdout)
            if done.returncode != 0:
                cell.error = done.stderr
        else:
            with redirect_stdout(said):
                exec(compile(code, "cell", "exec"), names)
    except Exception:
        cell.error = traceback.format_exc()
    cell.found = tidied(said.getvalue().replace(bootstrap, WRITTEN_FOR))


def main(page: str, bootstrap: str) -> None:
    """Run the page, up to the first cell that fails."""
    cells = cells_of(Path(page).read_text("utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    done: list[Cell] = []
    for cell in cells:
        run(cell, names, bootstrap)
        done.append(cell)
        if cell.error:
            break
    json.dump([asdict(cell) for cell in done], sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
