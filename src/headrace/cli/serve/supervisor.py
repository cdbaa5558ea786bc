"""Several nodes on one machine: a process each, started, watched, started again, and ended together.

A node holds the reading end of a pipe whose other end is the supervisor's alone. However the supervisor ends, the
system closes that end, and each node that reads the end of the pipe stops as after SIGTERM: none outlives it for long.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import click

from headrace.cli.serve.environment import without_settings
from headrace.cli.serve.restarts import DEATHS_MAX, WINDOW_S, Restarts
from headrace.env.posix_service import ServiceManager, without_manager

READ_BYTES: Final = 64 * 1024
LINE_MAX_BYTES: Final = 1024 * 1024
"""A longer line is passed on in pieces."""
STOPPED: Final = (0, -signal.SIGTERM)
"""How a process ends that was asked to stop: cleanly, or by the signal if that comes early in its start. It is no
failure, so it is neither counted nor followed by a pause."""


class Child:
    """A node: the process that it is now, and what became of those before."""

    def __init__(self, node_id: int, file: Path) -> None:
        self.node_id = node_id
        self.file = file
        self.process: Process | None = None
        self.restarts = Restarts()
        self.has_served = False
        self.last_line = ""

    def send(self, number: int) -> None:
        """Sends a signal to its process, if there is one."""
        if self.process is not None and self.process.returncode is None:
            self.process.send_signal(number)


class Supervisor:
    """Runs one process a node. `files` are the server.properties of the nodes 1, 2, ...; `served` is called once, when
    all of them serve clients for the first time; `options` are more options of `headrace serve` for each node. With
    `as_json` each line that it writes is a JSON object, as the nodes' own lines are."""

    def __init__(
        self,
        files: Sequence[Path],
        options: Sequence[str],
        served: Callable[[list[int]], None],
        *,
        as_json: bool = False,
    ) -> None:
        self._children = [Child(node_id, file) for node_id, file in enumerate(files, 1)]
        self._options = options
        self._served = served
        self._as_json = as_json
        self._has_announced = False
        self._stop = asyncio.Event()
        self._signals = 0
        self._failure: str | None = None
        self._lifeline, self._our_end = os.pipe()
        self._manager: ServiceManager | None = None

    async def run(self) -> str | None:
        """Returns when every node has ended: None after a clean stop, else why, in one line."""
        loop = asyncio.get_running_loop()
        self._manager = ServiceManager()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._signalled, number)
        try:
            await asyncio.gather(*(self._keep(child) for child in self._children))
        finally:
            self._manager.close()
            os.close(self._lifeline)
            os.close(self._our_end)
        return self._failure

    # --- the end

    def _signalled(self, number: int) -> None:
        """Passes the first signal on; another one ends the wait."""
        self._signals += 1
        self._stops()
        if self._signals > 1:
            self._failure = self._failure or "nodes were killed that had not stopped yet"
        for child in self._children:
            child.send(signal.SIGKILL if self._signals > 1 else number)

    def _fail(self, why: str) -> None:
        """There is no going on: the other nodes are stopped cleanly."""
        self._failure = self._failure or why
        self._stops()
        for child in self._children:
            child.send(signal.SIGTERM)

    def _stops(self) -> None:
        if not self._stop.is_set() and self._manager is not None:
            self._manager.stopping()
        self._stop.set()

    # --- a node

    async def _keep(self, child: Child) -> None:
        """Keeps a node running until the whole is to stop, and returns when it has ended."""
        while not self._stop.is_set():
            await self._run(child)
            if self._stop.is_set():
                return
            assert child.process is not None and child.process.returncode is not None
            status = child.process.returncode
            if status in STOPPED:
                self._say(f"node {child.node_id} was stopped, and starts again")
                continue
            if status > 0 and not child.has_served:
                self._fail(f"node {child.node_id} cannot start: {child.last_line.removeprefix('headrace: ')}")
                return
            pause_s = child.restarts.died(time.monotonic())
            if pause_s is None:
                deaths = f"died {DEATHS_MAX} times within {WINDOW_S:g} s"
                self._fail(f"node {child.node_id} {deaths}, the last time by {_end_text(status)}: {child.last_line}")
                return
            self._say(f"node {child.node_id} died by {_end_text(status)}, and starts again in {pause_s:g} s")
            try:
                await asyncio.wait_for(self._stop.wait(), pause_s)
            except TimeoutError:
                pass

    async def _run(self, child: Child) -> None:
        """One life of a node."""
        child.last_line = ""
        command = [sys.executable, "-m", "headrace.cli", "serve", str(child.file), *self._options]
        child.process = process = await asyncio.create_subprocess_exec(
            *command,
            "--lifeline",
            str(self._lifeline),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            pass_fds=(self._lifeline,),
            env=without_manager(without_settings(os.environ)),  # it speaks for them, and the files hold all settings
            process_group=0,  # what a terminal sends to its group comes to the nodes through the supervisor alone
        )
        if self._stop.is_set():  # it came while the process was being made
            child.send(signal.SIGKILL if self._signals > 1 else signal.SIGTERM)
        assert process.stdout is not None and process.stderr is not None
        await asyncio.gather(
            _each_line(process.stdout, lambda _: self._serves(child)),
            _each_line(process.stderr, lambda line: self._pass_on(child, line)),
            process.wait(),
        )

    # --- output

    def _pass_on(self, child: Child, line: str) -> None:
        """Writes a line of a node with the node's number: in front of text, inside an object in JSON."""
        if line.strip():
            child.last_line = line
        if line.startswith('{"'):
            click.echo(f'{{"from_node": {child.node_id}, {line[1:]}', err=True)
        elif self._as_json:
            click.echo(json.dumps({"from_node": child.node_id, "event": line}), err=True)
        else:
            click.echo(f"{child.node_id} | {line}", err=True)

    def _say(self, line: str) -> None:
        """Writes a line of the supervisor's own."""
        click.echo(json.dumps({"event": line}) if self._as_json else f"headrace: {line}", err=True)

    def _serves(self, child: Child) -> None:
        """A node has printed where it listens."""
        if not child.has_served:
            child.has_served = True
            if not self._has_announced and all(each.has_served for each in self._children):
                self._has_announced = True
                if self._manager is not None:
                    self._manager.ready(f"{len(self._children)} nodes serve")
                self._served([each.process.pid for each in self._children if each.process is not None])


async def _each_line(stream: asyncio.StreamReader, take: Callable[[str], None]) -> None:
    rest = b""
    while data := await stream.read(READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            take(line.decode(errors="replace"))
        if len(rest) > LINE_MAX_BYTES:
            take(rest.decode(errors="replace"))
            rest = b""
    if rest:
        take(rest.decode(errors="replace"))


def _end_text(status: int) -> str:
    """How a process ended: `signal SIGKILL`, `exit status 3`."""
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def supervise(
    files: Sequence[Path], options: Sequence[str], served: Callable[[list[int]], None], *, as_json: bool
) -> str | None:
    """Runs the nodes; see `Supervisor`. Returns None after a clean stop, else why it ended, in one line."""

    async def run() -> str | None:
        return await Supervisor(files, options, served, as_json=as_json).run()

    return asyncio.run(run())
