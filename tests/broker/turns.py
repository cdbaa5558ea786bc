"""How much is done in one turn of a broker's event loop: calls of functions, counted, or time of the processor."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from headrace.testing.running import TestBroker


class Turns:
    """The largest turn since the last `reset`."""

    def __init__(self) -> None:
        self.most_calls = 0
        self.longest_s = 0.0
        self.calls = 0

    def reset(self) -> None:
        self.most_calls, self.longest_s = 0, 0.0

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
        turns.calls = 0
        began = time.thread_time()
        run_once()
        turns.longest_s = max(turns.longest_s, time.thread_time() - began)
        turns.most_calls = max(turns.most_calls, turns.calls)

    def begin(_: object) -> None:
        loop._run_once = measured
        sys.setprofile(turns.count if counts_calls else None)

    def end(_: object) -> None:
        sys.setprofile(None)
        del loop._run_once

    broker.call(begin)
    try:
        yield turns
    finally:
        broker.call(end)
