"""The broker process: event loop, signals, and its output for people and programs.

`headrace serve` calls `run`. A running broker prints one line for each listener, with its actual port.
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
"""Thresholds of Python's three garbage collector generations (see `gc.set_threshold`). Requests make no cycles, so
collections are rare. A young collection visits each object that it finds alive (such as topics that were just created),
some 0.3 us each: the threshold keeps so few young that the loop is held for 6 ms at most. A collection of the whole
heap, 200 ms beside a request of 400,000 elements, never happens because of clients' requests."""
ALL_COLLECTED_EVERY_S: Final = 24 * 3600.0
"""Interval between collections of the whole heap, except objects from the start: they free cycles that were old when
they became garbage. Requests leave no such cycles."""
SWITCH_INTERVAL_S: Final = 0.001
"""Time after which a worker thread that runs Python yields to the event loop (see `sys.setswitchinterval`). Each turn
of the loop waits for it several times: a turn that takes 28 ms with Python's default of 5 ms takes 2.5 ms."""


class StartError(Exception):
    """Raised if the broker cannot start; the text is one line with the reason."""


def say_line(line: str) -> None:
    """Prints a line and flushes it, so that a waiting reader gets it."""
    print(line, flush=True)


def make_broker(config: BrokerConfig) -> Broker:
    """Returns an unstarted broker on the real disk and network, on the running event loop."""
    threads = max(WORKER_THREADS, config.num_recovery_threads_per_data_dir * len(config.log_dirs))
    return Broker(config, PosixNode(worker_threads=threads))


def make_controller(config: BrokerConfig) -> ControllerNode:
    """Returns an unstarted controller-only node on the real disk and network."""
    from headrace.broker.controller_node import ControllerNode

    return ControllerNode(config, PosixNode(worker_threads=WORKER_THREADS))


def set_up_interpreter() -> None:
    """Configures Python's garbage collector and thread switching for this process, which serves only the broker."""
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_INTERVAL_S)


def run(properties: Mapping[str, str], say: Callable[[str], None] = say_line, *, lifeline: int | None = None) -> int:
    """Serves until SIGTERM or SIGINT, then shuts down cleanly; returns the exit status.

    `properties` is the content of a server.properties file. Raises ConfigError for settings that are not served, and
    StartError if the broker cannot start; both have a text of one line. `say` is called with the lines about listeners.
    `lifeline` is a descriptor whose end of file is one more stop signal: the process at its other end is gone.
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
    elif not await done_before(stop, broker.start()):  # waiting for other nodes may take a minute
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
