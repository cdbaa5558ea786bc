"""A node in a process of its own that notes the longest turn of its loop, in time of the processor, where others read
it while it runs: `python measured_node.py FILE serve server.properties`."""

from __future__ import annotations

import asyncio
import mmap
import struct
import sys
import time
from pathlib import Path
from typing import Any, Final

_LONGEST: Final = struct.Struct("d")


class LongestTurn:
    """What a node notes in a file, and a test sets back."""

    def __init__(self, file: Path) -> None:
        if not file.exists():
            file.write_bytes(bytes(_LONGEST.size))
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), _LONGEST.size)

    @property
    def seconds(self) -> float:
        return float(_LONGEST.unpack_from(self._map)[0])

    def note(self, took_s: float) -> None:
        if took_s > self.seconds:
            _LONGEST.pack_into(self._map, 0, took_s)

    def reset(self) -> None:
        _LONGEST.pack_into(self._map, 0, 0.0)


def main() -> None:
    """Runs a command of ours on asyncio's own loop: uvloop does not say when a turn begins."""
    sys.modules["uvloop"] = None  # type: ignore[assignment]
    from headrace.cli import main as headrace

    file, *arguments = sys.argv[1:]
    longest = LongestTurn(Path(file))
    loop_class: Any = asyncio.BaseEventLoop
    run_once = loop_class._run_once

    def measured(loop: Any) -> None:
        began = time.thread_time()
        run_once(loop)
        longest.note(time.thread_time() - began)

    loop_class._run_once = measured
    headrace(arguments, prog_name="headrace")


if __name__ == "__main__":
    main()
