"""A node in a process of its own that notes the longest turn of its loop, in time of the processor, and the most that
its budgets held, where others read it while it runs: `python measured_node.py FILE serve server.properties`."""

from __future__ import annotations

import asyncio
import gc
import mmap
import struct
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

WATCHED: Final = (
    "requests.bytes_held",
    "responses.bytes_held",
    "fetch.session_partitions",
    "groups.member_bytes_counted",
    "groups.assignment_bytes_held",
)
"""Gauges whose highest level after a turn is noted."""
_NUMBERS: Final = struct.Struct("3dq")
_LEVELS: Final = struct.Struct(f"{len(WATCHED)}d")
_TEXT_BYTES: Final = 400
_CALLBACK_S: Final = 0.005
"""What takes less is not named."""


class LongestTurn:
    """What a node notes in a file, and a test sets back."""

    def __init__(self, file: Path) -> None:
        size = _NUMBERS.size + _TEXT_BYTES + _LEVELS.size
        if not file.exists():
            file.write_bytes(bytes(size))
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), size)

    @property
    def seconds(self) -> float:
        """The longest turn, in time of the processor."""
        return float(_NUMBERS.unpack_from(self._map)[0])

    @property
    def parts(self) -> str:
        """What made it long: the time for garbage, and of the longest callback, and which that was."""
        _, garbage_s, callback_s, size = _NUMBERS.unpack_from(self._map)
        said = bytes(self._map[_NUMBERS.size : _NUMBERS.size + size]).decode(errors="replace")
        return f"gc {garbage_s:.3f} callback {callback_s:.3f} {said}"

    @property
    def levels(self) -> dict[str, float]:
        """The highest level of each gauge that is watched."""
        return dict(zip(WATCHED, _LEVELS.unpack_from(self._map, _NUMBERS.size + _TEXT_BYTES), strict=True))

    def note(self, took_s: float, garbage_s: float, callback_s: float, callback: str) -> None:
        """Notes a turn if it is the longest so far."""
        if took_s > self.seconds:
            text = callback.encode()[:_TEXT_BYTES]
            self._map[_NUMBERS.size : _NUMBERS.size + len(text)] = text
            _NUMBERS.pack_into(self._map, 0, took_s, garbage_s, callback_s, len(text))

    def note_levels(self, levels: Iterable[float]) -> None:
        """Notes the levels that are higher than before."""
        at = _NUMBERS.size + _TEXT_BYTES
        _LEVELS.pack_into(self._map, at, *map(max, _LEVELS.unpack_from(self._map, at), levels))

    def reset(self) -> None:
        """Forgets all turns and levels so far."""
        _NUMBERS.pack_into(self._map, 0, 0.0, 0.0, 0.0, 0)
        _LEVELS.pack_into(self._map, _NUMBERS.size + _TEXT_BYTES, *[0.0] * len(WATCHED))


class Turns:
    """Measures the turns of asyncio's own loop."""

    def __init__(self, longest: LongestTurn) -> None:
        self._longest = longest
        self._collecting = self._collected_s = self._callback_s = 0.0
        self._callback = ""
        self._gauges: dict[str, Callable[[], float]] = dict.fromkeys(WATCHED, float)

    def watch(self, registry: Any) -> None:
        """Reads the gauges that are registered from now on, as far as they are watched."""
        register = registry.gauge

        def gauge(metrics: Any, name: str, read: Callable[[], float]) -> None:
            register(metrics, name, read)
            if name in self._gauges:
                self._gauges[name] = read

        registry.gauge = gauge

    def install(self) -> None:
        """Measures from now on."""
        loop_class: Any = asyncio.BaseEventLoop
        handle_class: Any = asyncio.Handle
        run_once, run_handle = loop_class._run_once, handle_class._run

        def measured(loop: Any) -> None:
            self._collected_s, self._callback_s, self._callback = 0.0, 0.0, ""
            began = time.thread_time()
            run_once(loop)
            self._longest.note(time.thread_time() - began, self._collected_s, self._callback_s, self._callback)
            self._longest.note_levels([read() for read in self._gauges.values()])

        def named(handle: Any) -> None:
            began = time.thread_time()
            run_handle(handle)
            took_s = time.thread_time() - began
            if took_s > max(self._callback_s, _CALLBACK_S):
                self._callback_s, self._callback = took_s, _name_of(handle)

        loop_class._run_once, handle_class._run = measured, named
        gc.callbacks.append(self._collects)

    def _collects(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self._collected_s += time.thread_time() - self._collecting


def _name_of(handle: Any) -> str:
    """Where its work was done. Not as Python says it, which takes as long as what is said holds."""
    callback = handle._callback
    owner = getattr(callback, "__self__", None)
    if not isinstance(owner, asyncio.Task):
        return str(getattr(callback, "__qualname__", type(callback).__qualname__))
    named: list[str] = []
    at: Any = owner.get_coro()
    while at is not None and hasattr(at, "__qualname__"):
        named.append(at.__qualname__)
        at = getattr(at, "cr_await", None)
    return " > ".join(named)


def main() -> None:
    """Runs a command of ours on asyncio's own loop: uvloop does not say when a turn begins."""
    sys.modules["uvloop"] = None  # type: ignore[assignment]
    from headrace.broker.telemetry.metrics import Registry
    from headrace.cli import main as headrace

    file, *arguments = sys.argv[1:]
    turns = Turns(LongestTurn(Path(file)))
    turns.install()
    turns.watch(Registry)
    headrace(arguments, prog_name="headrace")


if __name__ == "__main__":
    main()
