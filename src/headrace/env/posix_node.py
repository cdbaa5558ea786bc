"""The real node: this machine, on the running event loop."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections.abc import Callable, Coroutine
from typing import Any, Final

from headrace.env.completion import CompletionQueue
from headrace.env.node import LogSink
from headrace.env.owner import Owner
from headrace.env.posix import PosixEnvironment, thread_processor_s
from headrace.env.posix_helper import PosixHelper
from headrace.env.posix_network import PosixNetwork, PosixWorkers
from headrace.env.web import Web

WORKER_THREADS: Final = 4
"""Threads for what may block: cold reads, checkpoints, recovery."""
SYNC_THREADS: Final = 4
"""Threads for the syncs that acknowledgements wait for."""
ERRAND_THREADS: Final = 4
"""Threads for what waits for other machines: logins by tickets of a KDC, or by tokens that an issuer gives out."""

VALUE_CHARS_MAX: Final = 1_024
"""What a line shows of one value: of an id or a reason of a client, of an error's text."""
DEFECT_TRACEBACKS_MAX: Final = 100
"""Defects that are logged with their traceback; those after them, which are the same ones, with a line."""


class PosixTimer:
    """See `env.node.Timer`: an entry of its owner's until it is called."""

    __slots__ = ("_args", "_callback", "_handle", "_owner")

    def __init__(
        self, owner: PosixOwner, delay_s: float, callback: Callable[..., object], args: tuple[Any, ...]
    ) -> None:
        self._owner = owner
        self._callback = callback
        self._args = args
        self._handle: asyncio.TimerHandle | None = owner.loop.call_later(delay_s, self._call)
        owner.timers[self] = None

    def _call(self) -> None:
        self._handle = None  # it holds this method: else the two would be garbage that only a collection frees
        del self._owner.timers[self]
        self._callback(*self._args)

    def cancel(self) -> None:
        """See Timer.cancel."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._owner.timers.pop(self, None)


class PosixOwner:
    """See `env.node.Owner`."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop, defects: PosixDefects) -> None:
        self.name = name
        self.loop = loop
        self.timers: dict[PosixTimer, None] = {}
        self._defects = defects
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._closed = False
        self.soon: Callable[..., asyncio.Handle] = loop.call_soon
        """As it is: a connection's answers pass here, and what it calls looks whether it is closed."""

    def later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> PosixTimer:
        """See Owner.later."""
        timer = PosixTimer(self, delay_s, callback, args)
        if self._closed:
            timer.cancel()
        return timer

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """See Owner.spawn."""
        task = self.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        if self._closed:
            task.cancel()
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._defects.report(error, f"a task of {self.name}")

    def close(self) -> None:
        """See Owner.close."""
        self._closed = True
        for timer in list(self.timers):
            timer.cancel()
        for task in list(self._tasks):
            task.cancel()

    async def closed(self) -> None:
        """See Owner.closed."""
        self.close()
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        if tasks:
            await asyncio.wait(tasks)


class PosixDefects:
    """See `env.node.Defects`: logs and counts."""

    def __init__(self) -> None:
        self.count = 0
        self.first: BaseException | None = None
        self._log = logging.getLogger("headrace.defects")

    def report(self, error: BaseException, where: str, **context: object) -> None:
        """See Defects.report."""
        self.count += 1
        if self.first is None:
            self.first = error
        traceback = (type(error), error, error.__traceback__) if self.count <= DEFECT_TRACEBACKS_MAX else None
        self._log.error("defect in %s: %s", where, fields_text(f"{error!r}", context), exc_info=traceback)


class PosixLogSink:
    """See `env.node.LogSink`: Python's logging, the fields behind the sentence as key=value."""

    __slots__ = ("_log",)

    def __init__(self, log: logging.Logger) -> None:
        self._log = log

    def _tell(self, level: int, event: str, fields: dict[str, object]) -> None:
        if self._log.isEnabledFor(level):
            fields = {key: _cut(value) for key, value in fields.items()}
            self._log.log(level, "%s", fields_text(event, fields), extra={"event": event, "fields": fields})

    def debug(self, event: str, /, **fields: object) -> None:
        """See LogSink.debug."""
        self._tell(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        """See LogSink.info."""
        self._tell(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """See LogSink.warning."""
        self._tell(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        """See LogSink.error."""
        self._tell(logging.ERROR, event, fields)


def fields_text(event: str, fields: dict[str, object]) -> str:
    """An event and its fields on one line: `topic created topic=rides partitions=3`."""
    return " ".join([event, *(f"{key}={_value_text(value)}" for key, value in fields.items())])


def _cut(value: object) -> object:
    """What a line shows of a value, which a client may have chosen."""
    if isinstance(value, (bool, int, float)):
        return value
    text = str(value)
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}... ({len(text)} characters)"


def _value_text(value: object) -> str:
    text = str(_cut(value))
    plain = text.isprintable() and not any(mark in text for mark in ' "=')
    return text if text and plain else json.dumps(text)


class PosixNode(PosixEnvironment):
    """See `env.node.Node`. To be made on the loop that the broker runs on."""

    def __init__(
        self,
        *,
        worker_threads: int = WORKER_THREADS,
        sync_threads: int = SYNC_THREADS,
        handles_loop_errors: bool = True,
    ) -> None:
        """With `handles_loop_errors`, exceptions that leave callbacks of the loop are defects of this node; a client
        inside an application leaves the loop's handler as it is."""
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self.network = PosixNetwork()
        self.helper = PosixHelper()
        self.defects = PosixDefects()
        self._owners: dict[PosixOwner, None] = {}
        self.completions = CompletionQueue(self.owner("completions"), self.future)
        self.workers = PosixWorkers("headrace", worker_threads, self.completions)
        self.syncs = PosixWorkers("headrace-sync", sync_threads, self.completions)
        self.errands = PosixWorkers("headrace-errand", ERRAND_THREADS, self.completions)
        if handles_loop_errors:
            self._loop.set_exception_handler(self._loop_failed)

    def _loop_failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Reports an exception of a callback: callbacks must not raise."""
        error = context.get("exception") or RuntimeError(context["message"])
        self.defects.report(error, "a callback", handle=context.get("handle") or context["message"])

    def logger(self, name: str) -> LogSink:
        """See Node.logger."""
        return PosixLogSink(logging.getLogger(f"headrace.{name}"))

    @property
    def web(self) -> Web:
        """See Node.web."""
        from headrace.env.posix_web import PosixWeb  # with all of HTTP: few nodes need it

        return PosixWeb()

    def owner(self, name: str) -> Owner:
        """See Node.owner."""
        owner = PosixOwner(name, self._loop, self.defects)
        self._owners[owner] = None
        return owner

    def future(self) -> asyncio.Future[Any]:
        """See Node.future."""
        return self._loop.create_future()

    def processor_s(self) -> float:
        """See Node.processor_s."""
        return thread_processor_s()

    async def close(self) -> None:
        """See Node.close."""
        for owner in list(self._owners):
            await owner.closed()
        self._owners.clear()
        self.network.close()
        self.helper.close()
        self.workers.close()
        self.syncs.close()
        self.errands.close()

    def kill(self) -> None:
        """See Node.kill."""
        for owner in list(self._owners):
            owner.close()
        self._owners.clear()
        self.network.close()
        self.helper.close()
        self.workers.kill()
        self.syncs.kill()
        self.errands.kill()


def on_stop_signal(callback: Callable[[], object]) -> None:
    """Calls back on the running loop when this process is asked to end: SIGTERM, SIGINT, SIGHUP.

    A SIGHUP that is ignored already stays so: nohup(1) starts programs that are to outlive their terminal like that.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, callback)


def on_hang_up(descriptor: int, callback: Callable[[], object]) -> None:
    """Calls back on the running loop, once, when the other end of a pipe is closed: its process is gone, however it
    ended."""
    loop = asyncio.get_running_loop()

    def ended() -> None:
        loop.remove_reader(descriptor)
        callback()

    loop.add_reader(descriptor, ended)


async def done_before(stop: asyncio.Event, work: Coroutine[Any, Any, object]) -> bool:
    """Whether `work` was done before `stop` was set; else it is cancelled, and has ended. Raises what it raises."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    is_done = working.done()
    if not is_done:
        working.cancel()
        await asyncio.wait({working})
    if not working.cancelled():
        working.result()
    return is_done
