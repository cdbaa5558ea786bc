"""The seam to the outside world: Protocols for clock, disk, network and entropy.

Everything that is decided, timed, stored or drawn goes through one `Environment`, so that a whole broker can run on a
simulated one. The real implementations are in `env/posix.py`, the only broker-side module that touches os, socket,
time or random.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.env.clock import Clock
from headrace.env.disk import Disk, DiskLock, File
from headrace.env.entropy import Entropy

__all__ = ["Clock", "Disk", "DiskLock", "Entropy", "Environment", "File"]


@dataclass(slots=True)
class Environment:
    """What a broker is given to reach the world; `network` belongs to the shell that serves sockets."""

    clock: Clock
    disk: Disk
    entropy: Entropy
    network: object = None
