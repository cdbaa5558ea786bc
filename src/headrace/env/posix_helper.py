"""The process beside the broker's: what a client can make as heavy as it likes is done there, at a low priority.

A thread of the broker's own would not do: it competes with the event loop for a processor like any other, and at a
lower priority it would hold the interpreter's lock, or be waited for with it, while others have the processor.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from headrace.env.workers import HelperDied

T = TypeVar("T")

NICENESS: Final = 10
"""A tenth of the share of a process at 0: nobody waits for it, and it is not starved."""
IDLE_S: Final = 60.0
"""A helper without work for so long ends; the next call starts one."""
_LENGTH: Final = struct.Struct(">Q")


class PosixHelper:
    """See `env.workers.Helper`."""

    def __init__(self, *, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._closed = False

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """See Helper.call."""
        asked = pickle.dumps((function, arguments), pickle.HIGHEST_PROTOCOL)
        with self._lock:
            answer = self._ask(asked)
        error, result = pickle.loads(answer)
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def _ask(self, asked: bytes) -> bytes:
        """A helper that has ended since the last call, because it was idle, has not begun with this one."""
        if self._link is not None and self._is_gone(self._link):
            self._end()
        if self._link is None:
            self._start()
        assert self._link is not None
        try:
            _send(self._link, asked)
            answer = _receive(self._link)
        except OSError:
            answer = None
        if answer is None:
            status = self._end()
            raise HelperDied(f"the helper process ended with status {status}")
        return answer

    @staticmethod
    def _is_gone(link: socket.socket) -> bool:
        try:
            return link.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _start(self) -> None:
        if self._closed:
            raise HelperDied("the node is closed")
        ours, theirs = socket.socketpair()
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
        self._link = ours

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
            process.kill()  # whoever waits for it is told so
        with self._lock:
            self._end()


def _send(link: socket.socket, data: bytes) -> None:
    link.sendall(_LENGTH.pack(len(data)))
    link.sendall(data)


def _receive(link: socket.socket) -> bytes | None:
    """The next message; None where the other side is gone."""
    length = _read(link, _LENGTH.size)
    return None if length is None else _read(link, *_LENGTH.unpack(length))


def _read(link: socket.socket, size: int) -> bytes | None:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        got = link.recv_into(view)
        if not got:
            return None
        view = view[got:]
    return bytes(data)


def serve(number: int, idle_s: float) -> None:
    """The helper: answers calls on this socket until its other end is closed, or nothing comes for a while."""
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # a terminal's are for the broker, which ends this one
    os.nice(NICENESS)
    link = socket.socket(fileno=number)
    link.settimeout(idle_s)
    while (asked := _asked(link)) is not None:
        function, arguments = pickle.loads(asked)
        answer: tuple[BaseException | None, Any]
        try:
            answer = None, function(*arguments)
        except Exception as error:  # the caller's to judge
            answer = error, None
        link.settimeout(None)
        _send(link, pickle.dumps(answer, pickle.HIGHEST_PROTOCOL))
        link.settimeout(idle_s)


def _asked(link: socket.socket) -> bytes | None:
    try:
        return _receive(link)
    except OSError:  # the time is over, or the broker was killed
        return None


if __name__ == "__main__":
    serve(int(sys.argv[1]), float(sys.argv[2]))
