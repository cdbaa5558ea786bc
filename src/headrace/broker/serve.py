"""The process around a broker: an event loop, signals, and the lines that people and programs read.

`run` is what `headrace serve` calls. A running broker prints one line for each listener with the port that was chosen.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace.broker.broker import Broker
from headrace.broker.storage.storage_format import StorageError
from headrace.config import BrokerConfig, ConfigError
from headrace.config.exposure import exposure_warnings
from headrace.env.posix import raise_open_files_limit
from headrace.env.posix_network import run_loop
from headrace.env.posix_node import WORKER_THREADS, PosixNode, done_before, on_hang_up, on_stop_signal
from headrace.env.posix_service import ServiceManager
from headrace.log.manager import CheckpointError, LogDirFailed, LogDirLocked
from headrace.wire.address import address_text

if TYPE_CHECKING:
    from headrace.broker.controller_node import ControllerNode

log = logging.getLogger("headrace.broker")


NEVER: Final = 1 << 30
GC_THRESHOLDS: Final = (10_000, 0, NEVER)
"""When Python collects its three generations: see `gc.set_threshold`. Requests make no cycles, so it is rare. What
a collection of young objects finds alive (topics that were just created) it has looked at one by one, some 0.3 us each:
so few are young at once that the loop is held for some 6 ms at most. The whole heap, which is 200 ms beside a request
of 400,000 elements, is not looked at because of what clients ask for."""
ALL_COLLECTED_EVERY_S: Final = 24 * 3600.0
"""So often the whole heap is looked at, beyond what was there at the start: cycles that were old when they became
garbage are freed then. Nothing that comes and goes with requests leaves such."""
SWITCH_INTERVAL_S: Final = 0.001
"""So soon a worker thread that runs Python lets the event loop go on: see `sys.setswitchinterval`. Each turn of the
loop waits for it several times, and what takes turns for 28 ms by Python's default of 5 ms takes 2.5 ms so."""


class StartError(Exception):
    """The broker cannot start; the text is one line that says why."""


def say_line(line: str) -> None:
    """Prints a line at once, so that a waiting reader gets it."""
    print(line, flush=True)


def make_broker(config: BrokerConfig) -> Broker:
    """A broker on the real disk and network, on the running event loop; not started."""
    threads = max(WORKER_THREADS, config.num_recovery_threads_per_data_dir * len(config.log_dirs))
    return Broker(config, PosixNode(worker_threads=threads))


def make_controller(config: BrokerConfig) -> ControllerNode:
    """A controller without a broker, on the real disk and network; not started."""
    from headrace.broker.controller_node import ControllerNode

    return ControllerNode(config, PosixNode(worker_threads=WORKER_THREADS))


def set_up_interpreter() -> None:
    """What this process, which is the broker's alone, wants of Python."""
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def run(properties: Mapping[str, str], say: Callable[[str], None] = say_line, *, lifeline: int | None = None) -> int:
    """Serves until SIGTERM or SIGINT, then shuts down cleanly; returns the exit status.

    `properties` is the content of a server.properties file. Raises ConfigError for settings that are not served, and
    StartError if the broker cannot start; the text of both is one line. `say` gets the lines about listeners.
    `lifeline` is a descriptor whose end is one more signal to stop: the process at its other end is gone.
    """
    warnings: list[str] = []
    try:
        config = BrokerConfig.load(properties, warnings.append)
    except ConfigError:
        _warn(warnings)
        raise
    warnings += exposure_warnings(config)
    raise_open_files_limit()
    set_up_interpreter()
    try:
        return run_loop(_serve(config, warnings, say, lifeline))
    except (StorageError, LogDirLocked, LogDirFailed, CheckpointError) as error:
        raise StartError(str(error)) from error
    except OSError as error:
        raise StartError(f"the broker cannot start: {error}") from error


def _warn(lines: Sequence[str]) -> None:
    for line in lines:
        log.warning("%s", line)


async def _serve(
    config: BrokerConfig, warnings: Sequence[str], say: Callable[[str], None], lifeline: int | None
) -> int:
    manager = ServiceManager()
    try:
        return await _serve_under(manager, config, warnings, say, lifeline)
    finally:
        manager.close()


async def _serve_under(
    manager: ServiceManager,
    config: BrokerConfig,
    warnings: Sequence[str],
    say: Callable[[str], None],
    lifeline: int | None,
) -> int:
    stop = asyncio.Event()
    failures: list[str] = []
    on_stop_signal(stop.set)
    if lifeline is not None:
        on_hang_up(lifeline, stop.set)

    def failed(why: str) -> None:
        failures.append(why)
        stop.set()

    broker = make_controller(config) if config.is_controller_alone else make_broker(config)
    broker.on_failure = failed
    _warn(warnings)  # not before: a broker that publishes its log publishes these too
    if not config.waits_for_others:
        await broker.start()
    elif not await done_before(stop, broker.start()):  # it may wait for the others for a minute
        return 0
    gc.freeze()
    opened = [f"{each.name} listens on {address_text(each.host, each.port)}" for each in broker.listeners]
    for line in opened:
        say(f"headrace: {line}")
    manager.ready(", ".join(opened))
    while await done_before(stop, asyncio.sleep(ALL_COLLECTED_EVERY_S)):
        gc.collect()
    manager.stopping()
    await broker.stop()
    return 1 if failures else 0
