"""A broker on an event loop in a thread of its own, its data in a temporary directory."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from headrace.broker.serve import make_broker
from headrace.config import BrokerConfig

if TYPE_CHECKING:
    from headrace.broker.broker import Broker
    from headrace.client.cluster import Client

T = TypeVar("T")

SETTINGS = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "busy.poll.us": "0",
    "metrics.listener": "-1",
}
"""What a test's broker has other than the defaults: a free port, groups that form at once, no busy polling, which
would hold the interpreter that it shares with the test, and no page of metrics."""

STOP_PATIENCE_S = 30.0

SettingValue = str | bool | int | float | os.PathLike[str] | Sequence[str]
"""What a setting may be given as: the text of a server.properties, or the value that it means."""


class DefectError(Exception):
    """The broker did what it was not written to do; the cause says what. Its log lines tell of each one."""


class TestBroker:
    """A broker that runs in a thread of this process."""

    __test__ = False

    def __init__(self, data: Path, settings: Mapping[str, SettingValue]) -> None:
        """Nothing runs before `start`. Raises TypeError for a setting that is no such value."""
        self.data = data
        given = {name: setting_text(name, value) for name, value in settings.items()}
        self.settings = {**SETTINGS, "log.dirs": str(data), **given}
        self._process = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._broker: Broker | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="headrace-broker", daemon=True)

    def __repr__(self) -> str:
        where = "not running" if self._broker is None else self.bootstrap
        return f"<{type(self).__name__} {self.settings['node.id']}: {where}>"

    @property
    def host(self) -> str:
        return "127.0.0.1"

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        return self.inside.port

    @property
    def bootstrap(self) -> str:
        """What clients are given as bootstrap servers."""
        return f"{self.host}:{self.port}"

    @property
    def inside(self) -> Broker:
        """The broker itself. It lives on its own loop: touch it through `call`."""
        assert self._broker is not None, "the broker runs only inside its `with` block"
        return self._broker

    def client(self, *, timeout_s: float = 30.0) -> Client:
        """A client of this broker; the caller closes it."""
        from headrace.client.cluster import Client

        return Client(self.bootstrap, client_id="headrace-test", timeout_s=timeout_s)

    def take_defect(self) -> BaseException | None:
        """The first defect that the broker met so far; its end does not raise it any more."""

        def take(broker: Broker) -> BaseException | None:
            first, broker.node.defects.first = broker.node.defects.first, None
            return first

        return self.call(take)

    def call(self, function: Callable[[Broker], T]) -> T:
        """Run a function with the broker on its own loop, and wait for what it returns."""
        assert self._loop is not None

        async def on_loop() -> T:
            return function(self.inside)

        return asyncio.run_coroutine_threadsafe(on_loop(), self._loop).result(STOP_PATIENCE_S)

    def start(self) -> None:
        """Returns when clients are served. Raises what the broker's start raises."""
        self.begin()
        self.await_ready()

    def begin(self) -> None:
        """Starts, and does not wait: `await_ready` does."""
        self._thread.start()

    def await_ready(self) -> None:
        """Returns when clients are served. Raises what the broker's start raises."""
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """A clean shutdown. Raises what went wrong in it, and DefectError where the broker met a defect meanwhile.

        In a fork there is nothing to stop.
        """
        if os.getpid() != self._process:
            return
        self.ask_to_stop()
        self.join()

    def join(self) -> None:
        """Returns when it has ended. Raises what `stop` raises."""
        if self._thread.ident is None:
            return
        self._await_end()
        if self._failure is not None:
            raise self._failure

    def ask_to_stop(self) -> None:
        """Begins a clean shutdown, and does not wait: `stop` does."""
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)

    def _await_end(self) -> None:
        self._thread.join(STOP_PATIENCE_S)
        if self._thread.is_alive():
            raise RuntimeError(f"the broker does not stop within {STOP_PATIENCE_S:.0f} s")
        self._broker = None

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    def _make(self, config: BrokerConfig) -> Broker:
        return make_broker(config)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        broker = self._make(BrokerConfig.load(self.settings))
        await broker.start()
        self._broker = broker
        self._ready.set()
        await self._stop.wait()
        await self._end(broker)

    async def _end(self, broker: Broker) -> None:
        await broker.stop()
        if broker.node.defects.first is not None:
            raise DefectError("the broker met a defect") from broker.node.defects.first


def setting_text(name: str, value: SettingValue) -> str:
    """`value` as a server.properties has it. Raises TypeError that names the setting."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float, os.PathLike)):
        return str(value)
    if isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    raise TypeError(f"{name} is {value!r}, and a setting is text, a number, true or false, or a list of texts")


@contextmanager
def broker(
    settings: Mapping[str, SettingValue] | None = None, *, data: Path | str | None = None
) -> Iterator[TestBroker]:
    """A running broker; stopped, and its files removed, at the end of the block.

    `settings` are those of a server.properties and win over `SETTINGS`; a value may be text or what it means, such as
    3, True or a list. With `data` the broker uses that directory, formats it where it is fresh, and leaves it.

    A fork that leaves the block leaves the broker and its files to the process that entered it.
    """
    directory = Path(tempfile.mkdtemp(prefix="headrace-test-")) if data is None else Path(data)
    process = os.getpid()
    try:
        running = TestBroker(directory, settings or {})
        running.start()
        try:
            yield running
        finally:
            running.stop()
    finally:
        if data is None and os.getpid() == process:
            shutil.rmtree(directory, ignore_errors=True)
