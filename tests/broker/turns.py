"""How much is done in one turn of a broker's event loop: calls of functions and rounds of loops, counted, or time of
the processor."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from headrace.testing.running import TestBroker


class Turns:
    """The largest turn since the last `reset`."""

    def __init__(self) -> None:
        self.most_calls = 0
        self.longest_s = 0.0
        self.calls = 0
        self.most_rounds = 0
        """How often a turn ran the line that it ran most often."""
        self.busiest = ""
        """Where that line is."""
        self.lines: Counter[tuple[CodeType, int]] = Counter()

    def reset(self) -> None:
        self.most_calls, self.longest_s, self.most_rounds, self.busiest = 0, 0.0, 0, ""

    def end_turn(self, took_s: float) -> None:
        """Notes what was counted, and begins again."""
        self.longest_s = max(self.longest_s, took_s)
        self.most_calls = max(self.most_calls, self.calls)
        for (code, line), rounds in self.lines.items():
            if rounds > self.most_rounds:
                self.most_rounds, self.busiest = rounds, f"{code.co_filename}:{line}"
        self.calls = 0
        self.lines.clear()

    def follow(self, frame: FrameType, event: str, _argument: object) -> Callable[..., Any] | None:
        """For `sys.settrace`: a comprehension need not call anything."""
        if event == "call":
            return None if frame.f_code.co_filename == __file__ else self.follow
        if event == "line":
            self.lines[frame.f_code, frame.f_lineno] += 1
        return self.follow

    def count(self, _frame: FrameType, event: str, _argument: object) -> None:
        """For `sys.setprofile`."""
        if event in ("call", "c_call"):
            self.calls += 1


@contextmanager
def turns_of(broker: TestBroker, *, counts_calls: bool = False) -> Iterator[Turns]:
    """Measures each turn of the loop while the block runs. Calls are counted where that is asked for: then the loop is
    slow, and the figures are the same on every machine."""
    turns = Turns()
    loop: Any = broker.call(lambda inside: inside.node.future().get_loop())
    run_once = loop._run_once

    def measured() -> None:
        began = time.thread_time()
        run_once()
        turns.end_turn(time.thread_time() - began)

    def begin(_: object) -> None:
        loop._run_once = measured
        sys.setprofile(turns.count if counts_calls else None)
        sys.settrace(turns.follow if counts_calls else None)

    def end(_: object) -> None:
        sys.setprofile(None)
        sys.settrace(None)
        del loop._run_once

    broker.call(begin)
    try:
        yield turns
    finally:
        broker.call(end)
