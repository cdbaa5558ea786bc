"""The seam to the outside world: Protocols for clock, timers, tasks, workers, network, disk and chance, and the `Node`
that carries them.

Everything that is decided, timed, stored or drawn goes through one `Node`, so that a whole broker can run on a
simulated one. The real implementations are `posix*.py`, the only modules on the broker's side that touch os, socket,
time, random, threading, or the event loop itself.
"""

from __future__ import annotations

from headrace.env.clock import Clock
from headrace.env.disk import Disk, DiskLock, File
from headrace.env.entropy import Entropy
from headrace.env.node import Defects, Environment, LogSink, Node
from headrace.env.owner import Lock, Owner, Timer

__all__ = [
    "Clock",
    "Defects",
    "Disk",
    "DiskLock",
    "Entropy",
    "Environment",
    "File",
    "Lock",
    "LogSink",
    "Node",
    "Owner",
    "Timer",
]
