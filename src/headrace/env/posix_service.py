"""Notifies a service manager, as systemd's sd_notify(3) has it, that a node serves, runs, and stops.

Datagrams go to the socket that NOTIFY_SOCKET names, a path or (`@...`) an abstract name; without the variable nothing
is sent. A beat from the event loop shows that it turns: WATCHDOG=1 once the node is ready, at half of the interval of
WATCHDOG_USEC, and before that, and after STOPPING=1, more time for what may be long: recovery and a clean stop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from typing import Final

log = logging.getLogger("headrace.service")

VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")
BEAT_S: Final = 10.0
"""Between two beats, where no watchdog asks for more of them."""
EXTENSION_US: Final = 60_000_000
"""How long the manager waits for the next beat of a node that starts or stops."""
STATUS_CHARS_MAX: Final = 256


def without_manager(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a child of a service, for which its parent speaks."""
    return {name: value for name, value in environment.items() if name not in VARIABLES}


class ServiceManager:
    """The manager of this process, if it has one. To be made on a running loop; `close` ends it."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        variables = os.environ if environment is None else environment
        self._address = _address(variables.get("NOTIFY_SOCKET", ""))
        self._watchdog_s = _watchdog_s(variables) if self._address else None
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._unsent: list[str] = []
        self._is_ready = self._is_stopping = self._is_failing = False
        self._socket: socket.socket | None = None
        if self._address:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
            self._socket.setblocking(False)
            self._notify("STATUS=starts, and reads its logs")
            self._beat()

    def ready(self, status: str) -> None:
        """The service serves; `status` is what `systemctl status` shows."""
        self._is_ready = True
        self._notify("READY=1", f"STATUS={' '.join(status.split())[:STATUS_CHARS_MAX]}")
        self._beat()

    def stopping(self) -> None:
        """The service ends cleanly, which may take a while."""
        self._is_stopping = True
        self._notify("STOPPING=1", "STATUS=stops")
        self._beat()

    def close(self) -> None:
        """Sends nothing more; more than once is harmless."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _beat(self) -> None:
        """Sends the due notifications, and those that could not be sent before."""
        if self._socket is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        takes_long = self._is_stopping or not self._is_ready
        lines = [f"EXTEND_TIMEOUT_USEC={EXTENSION_US}"] if takes_long else []
        if self._watchdog_s is not None:
            lines.append("WATCHDOG=1")
        self._notify(*lines)
        interval = BEAT_S if self._watchdog_s is None else min(BEAT_S, self._watchdog_s / 2)
        self._timer = self._loop.call_later(interval, self._beat)

    def _notify(self, *lines: str) -> None:
        """Sends these lines, and those before them that the manager's socket had no room for."""
        if self._socket is None:
            return
        self._unsent = [line for line in self._unsent if line not in lines]
        self._unsent += lines
        if not self._unsent:
            return
        try:
            self._socket.sendto("\n".join(self._unsent).encode(), self._address)
        except BlockingIOError:
            return  # the next beat says it all
        except OSError as error:
            self._unsent.clear()
            if not self._is_failing:
                log.warning("the service manager cannot be notified: %s", error)
            self._is_failing = True
            return
        self._unsent.clear()
        self._is_failing = False


def _address(text: str) -> str:
    """The address for `sendto`; empty where there is no manager, or one that is reached otherwise (vsock)."""
    if text.startswith("@"):
        return "\0" + text[1:]
    return text if text.startswith("/") else ""


def _watchdog_s(variables: Mapping[str, str]) -> float | None:
    """The interval of the watchdog in seconds; None if there is none, or if it is another process's."""
    process, interval = variables.get("WATCHDOG_PID", ""), variables.get("WATCHDOG_USEC", "")
    if process and process != str(os.getpid()):
        return None
    if not (interval.isascii() and interval.isdigit() and int(interval)):
        return None
    return int(interval) / 1e6
