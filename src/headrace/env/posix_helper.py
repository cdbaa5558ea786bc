"""The process beside the broker's: what a client can make as heavy as it likes is done there, at a low priority.

A thread of the broker's own would not do: it competes with the event loop for a processor like any other, and at a
lower priority it would hold the interpreter's lock, or be waited for with it, while others have the processor.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from headrace.env.workers import HelperDied

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")
Answer = tuple[Exception | None, Any]
"""(what the function raised, what it returned)."""

NICENESS: Final = 10
"""A tenth of the share of a process at 0: nobody waits for it, and it is not starved."""
IDLE_S: Final = 60.0
"""A helper without work for so long ends; the next call starts one."""


class PosixHelper:
    """See `env.workers.Helper`."""

    def __init__(self, *, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._link: Connection | None = None
        self._closed = False

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """See Helper.call."""
        with self._lock:
            error, result = self._ask((function, arguments))
        if error is not None:
            raise error
        return cast(T, result)

    def _ask(self, call: tuple[Callable[..., Any], tuple[Any, ...]]) -> Answer:
        """A helper that has ended since the last call, because it was idle, has not begun with this one."""
        if self._link is not None and self._link.poll():  # nothing is under way: that is its end
            self._end()
        if self._link is None:
            self._link = self._start()
        try:
            self._link.send(call)
            return cast(Answer, self._link.recv())
        except (OSError, EOFError) as error:
            raise HelperDied(f"the helper process ended with status {self._end()}") from error

    def _start(self) -> Connection:
        from multiprocessing.connection import Pipe

        if self._closed:
            raise HelperDied("the node is closed")
        ours, theirs = Pipe()
        number = theirs.fileno()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "headrace.env.posix_helper", str(number), str(self._idle_s)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[number],
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return ours

    def _end(self) -> int | None:
        link, self._link = self._link, None
        process, self._process = self._process, None
        if link is not None:
            link.close()
        if process is None:
            return None
        process.kill()
        return process.wait()

    def close(self) -> None:
        """See Helper.close."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()  # its waiters get the error
        with self._lock:
            self._end()


def serve(number: int, idle_s: float) -> None:
    """The helper: answers calls on this socket until its other end is closed, or nothing comes for a while."""
    from multiprocessing.connection import Connection

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # a terminal's are for the broker, which ends this one
    os.nice(NICENESS)
    link = Connection(number)
    try:
        while link.poll(idle_s):
            function, arguments = link.recv()
            answer: Answer
            try:
                answer = None, function(*arguments)
            except Exception as error:  # the caller's to judge
                answer = error, None
            link.send(answer)
    except (EOFError, ConnectionError):
        pass  # the broker has ended, or was killed


if __name__ == "__main__":
    serve(int(sys.argv[1]), float(sys.argv[2]))
