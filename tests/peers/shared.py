"""Brokers in processes of their own that many tests share, watched between the tests.

One that has died is named with its exit status and its last log lines, beside the test that found it. It is started
once more, on its port and its directory, so that one death does not fail every test that follows; the second is final.

What kills a broker that idles is named as well. Apache Kafka ends itself soon after its disk is full, as it
appends to its metadata log all the time; and the kernel ends the largest processes when memory runs out.
"""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from .headrace import HeadracePeer
from .kafka import KafkaPeer

LAST_LINES: Final = 30
STARTS_MAX: Final = 2

Peer = HeadracePeer | KafkaPeer
P = TypeVar("P", bound=Peer)


def oom_kills() -> int:
    """Returns how many processes the kernel has ended since it runs because memory had run out."""
    counters = Path("/proc/vmstat")
    found = re.search(r"^oom_kill (\d+)", counters.read_text() if counters.exists() else "", re.MULTILINE)
    return int(found[1]) if found else 0


class SharedPeer:
    """A peer under a name, and how often it has been started."""

    def __init__(self, name: str, peer: Peer) -> None:
        self.name = name
        self.peer = peer
        self.starts = 1
        self._oom_kills = oom_kills()

    def death(self) -> str:
        """Returns how the peer ended, with its last log lines; empty if it runs."""
        process = self.peer.process
        status = None if process is None else process.poll()
        if status is None:
            return ""
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        log = self.peer.log
        lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:] if log.exists() else ["(it has no log)"]
        room = shutil.disk_usage(self.peer.directory).free >> 20
        lacking = f"{room} MiB free on its disk, {oom_kills() - self._oom_kills} processes killed for memory meanwhile"
        return f"{self.name} on port {self.peer.port} died by {how}; {lacking}; its last lines:\n" + "\n".join(lines)


_shared: list[SharedPeer] = []


@contextmanager
def shared(name: str, peer: P) -> Iterator[P]:
    """Runs a peer for as long as the block lasts; meanwhile `deaths` and `start_again` look after it."""
    with peer:
        mine = SharedPeer(name, peer)
        _shared.append(mine)
        try:
            yield peer
        finally:
            _shared.remove(mine)


def is_kafka(bootstrap: str) -> bool:
    """Whether an address is that of a shared Apache Kafka."""
    return any(isinstance(each.peer, KafkaPeer) and each.peer.bootstrap == bootstrap for each in _shared)


class Death(NamedTuple):
    """A shared peer that has died."""

    peer: Peer
    text: str


def deaths() -> list[Death]:
    """Returns the shared peers that are dead now."""
    return [Death(each.peer, text) for each in _shared if (text := each.death())]


def start_again() -> list[Death]:
    """Starts each shared peer that has died, and returns the same as `deaths` before it.

    Raises RuntimeError if one has died before.
    """
    found = deaths()
    for each in _shared:
        text = each.death()
        if not text:
            continue
        if each.starts == STARTS_MAX:
            raise RuntimeError(f"started {STARTS_MAX} times already: {text}")
        each.starts += 1
        each.peer.start()
    return found
