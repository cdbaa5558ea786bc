"""Log managers for tests: on a folder or a simulated disk, by a clock that tests set by hand."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from log.clocks import HandClock

from headrace.config import BrokerConfig, topic_config
from headrace.config.topic import TopicConfig
from headrace.env import Environment
from headrace.env.posix import PosixEnvironment
from headrace.log.manager import LogManager
from headrace.sim.disk import SimDisk
from headrace.wire.errors import ErrorCode
from headrace.wire.records import Record, build_batch

TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def by_hand(disk: SimDisk | None = None) -> Environment:
    """This machine, or one with a simulated disk, and a clock that stands still."""
    env = PosixEnvironment(disk)
    env.clock = HandClock(NOW_MS)
    return env


def make(*folders: Path | str, env: Environment | None = None, **settings: str) -> LogManager:
    names = {name.replace("_", "."): value for name, value in settings.items()}
    config = BrokerConfig.load({"log.dirs": ",".join(map(str, folders)), **names}, lambda _: None)
    manager = LogManager(env or by_hand(), config)
    manager.lock()
    manager.load()
    return manager


def settings_of(manager: LogManager, **overrides: str) -> TopicConfig:
    return topic_config(manager.config, {name.replace("_", "."): value for name, value in overrides.items()})


def fill(manager: LogManager, log: Any, count: int = 10) -> None:
    batch = build_batch([Record(0, NOW_MS, b"k", b"v" * 100, [])])
    for _ in range(count):
        assert log.writer.append(batch, leader_epoch=0, now_ms=NOW_MS).error is ErrorCode.NONE


def clock_of(manager: LogManager) -> HandClock:
    clock = manager.env.clock
    assert isinstance(clock, HandClock)
    return clock


def at(manager: LogManager, now_ms: int) -> LogManager:
    """The manager, after time has passed until `now_ms`."""
    clock_of(manager).pass_to(now_ms)
    return manager


def run(manager: LogManager, now_ms: int) -> None:
    """What is due at a time, with what follows it."""
    for work in at(manager, now_ms).tick():
        then = work()
        while then is not None:
            more = then()
            then = more() if more is not None else None


def simulated(room_bytes: int = 1 << 60) -> tuple[Environment, SimDisk]:
    disk = SimDisk(random.Random(1), room_bytes=room_bytes)
    return by_hand(disk), disk
