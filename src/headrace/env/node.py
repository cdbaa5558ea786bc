"""The one door to the world: everything that a broker measures, times, starts, sends, stores or draws goes through a
`Node`.

A broker that was given a `PosixNode` runs on this machine, on an asyncio loop, with real sockets, files and threads;
one that was given the simulator's node runs in virtual time, with a network and disks that fail on purpose. It cannot
tell.
What a node's owner started (a timer, a task) ends with it: a node that is killed leaves nothing running.
"""

from __future__ import annotations

from asyncio import Future
from typing import Any, Protocol

from headrace.env.clock import Clock
from headrace.env.completion import CompletionQueue
from headrace.env.disk import Disk
from headrace.env.entropy import Entropy
from headrace.env.network import Network
from headrace.env.owner import Lock, Owner
from headrace.env.web import Web
from headrace.env.workers import Helper, Workers


def settle(waited: Future[Any], value: Any = None) -> None:
    """Says a value to a task that waits for it, unless it has been ended meanwhile."""
    if not waited.done():
        waited.set_result(value)


class Defects(Protocol):
    """Takes reports of defects: an assertion failed, or an unexpected exception came.

    Tests and the simulator fail with it. In production it is logged with its request, and counted; the reporter then
    ends what can no longer be trusted (a connection, a partition).
    """

    count: int
    first: BaseException | None
    """The first one: what a test fails with."""

    def report(self, error: BaseException, where: str, **context: object) -> None:
        """`where` says in a few words what was being done; `context` what for: a request, a partition, a client."""
        ...


class LogSink(Protocol):
    """Where a node's events go: a sentence without values, and the values as fields. One line an event."""

    def debug(self, event: str, /, **fields: object) -> None:
        """For those who look for a defect."""
        ...

    def info(self, event: str, /, **fields: object) -> None:
        """What an operator wants to read back: life, recovery, topics, leaders."""
        ...

    def warning(self, event: str, /, **fields: object) -> None:
        """Something was refused, lost or is late, and the broker goes on."""
        ...

    def error(self, event: str, /, **fields: object) -> None:
        """Something that was asked for cannot be done until somebody acts."""
        ...


class Environment(Protocol):
    """The part of a node that a log needs: nothing of it knows a loop."""

    @property
    def clock(self) -> Clock:
        """The node's only clock."""
        ...

    @property
    def disk(self) -> Disk:
        """The node's file system."""
        ...

    @property
    def entropy(self) -> Entropy:
        """Where the node's chance comes from."""
        ...

    def lock(self) -> Lock:
        """A new lock between the node's threads."""
        ...

    def scratch(self, size: int) -> memoryview:
        """Memory for a moment, on any thread: untouched pages cost nothing, and nobody waits while it is made
        or given back (with its last reference)."""
        ...


class Node(Environment, Protocol):
    """One machine, as the broker on it sees it. Used from the loop's thread, but for `lock`, `clock` and `disk`."""

    @property
    def network(self) -> Network:
        """Where connections come from and go to."""
        ...

    @property
    def completions(self) -> CompletionQueue:
        """Delivers the node's completions at the end of the turn."""
        ...

    @property
    def workers(self) -> Workers:
        """Threads for what may block: cold reads, checkpoints, recovery."""
        ...

    @property
    def syncs(self) -> Workers:
        """Threads for the syncs that acknowledgements wait for: cold reads do not hold those up."""
        ...

    @property
    def errands(self) -> Workers:
        """Threads for work that may wait for other machines: no disk access or sync queues behind it."""
        ...

    @property
    def helper(self) -> Helper:
        """A process for what a client can make as heavy as it likes."""
        ...

    @property
    def web(self) -> Web:
        """What others publish."""
        ...

    @property
    def defects(self) -> Defects:
        """Where the program's own mistakes are reported."""
        ...

    def logger(self, name: str) -> LogSink:
        """Where the events of one part of the broker go: `partitions`, `quorum`."""
        ...

    def owner(self, name: str) -> Owner:
        """A new owner of timers and tasks."""
        ...

    def future(self) -> Future[Any]:
        """A new future of the node's loop."""
        ...

    def processor_s(self) -> float:
        """Seconds of a processor that the loop's thread has used so far."""
        ...

    async def close(self) -> None:
        """The end of a clean stop: closes every owner and waits for the workers."""
        ...

    def kill(self) -> None:
        """The end without notice: nothing that this node started runs after the call, as far as the world allows it
        (a thread in a system call ends with the call); its connections are gone."""
        ...
