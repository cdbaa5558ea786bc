"""The frame of the programs of blocking clients: a thread that writes, a thread that reads, and the orders between."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

_lock = threading.Lock()


def say(line: str) -> None:
    """A whole line, at once."""
    with _lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def run(arguments: list[str], produce: Callable[..., Any], consume: Callable[..., Any]) -> None:
    """Both, until the orders on standard input have been given."""
    bootstrap, topic, group, partitions = arguments
    wrote, read = threading.Event(), threading.Event()
    writer = threading.Thread(target=produce, args=(bootstrap, topic, int(partitions), wrote.is_set))
    reader = threading.Thread(target=consume, args=(bootstrap, topic, group, read.is_set))
    writer.start()
    reader.start()
    for stop, thread in ((wrote, writer), (read, reader)):
        sys.stdin.readline()
        stop.set()
        thread.join()
    say("closed")
