"""What the tests of logs start from: a topic's configuration, a log in a folder of its own, and batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import Any

import pytest

from headrace.config import BrokerConfig, topic_config
from headrace.config.topic import TopicConfig
from headrace.env.posix import PosixDisk
from headrace.log.log import Log
from headrace.log.read_results import Local
from headrace.log.recovery import open_log
from headrace.log.resources import Resources
from headrace.wire.records import Record, build_batch

NOW_MS = 1_700_000_000_000


@pytest.fixture(scope="session")
def defaults() -> TopicConfig:
    return topic_config(BrokerConfig.load({}, lambda _: None), {})


@pytest.fixture
def open_at(tmp_path: Path, defaults: TopicConfig) -> Callable[..., Log]:
    """Opens (again) the log in the test's folder; keywords go to `open_log`, `settings` to the topic."""
    folder = tmp_path / "t-0"
    folder.mkdir()

    def open_it(settings: dict[str, Any] | None = None, **keywords: Any) -> Log:
        config = replace(defaults, **(settings or {}))
        keywords.setdefault("now_ms", NOW_MS)
        return open_log(Resources(PosixDisk(), RLock), str(folder), ("t", 0), config, **keywords)

    return open_it


def batch(*values: bytes | None, key: bytes | None = b"k", timestamp: int = NOW_MS, **keywords: Any) -> bytes:
    """A client's batch of one record a value."""
    return build_batch([Record(0, timestamp, key, value, []) for value in values], **keywords)


def read_at(log: Log, offset: int, *, max_bytes: int, max_offset: int | None = None, **keywords: Any) -> Local:
    """Reads from an offset that lies in the log, up to its end unless `max_offset` is given."""
    found = log.reader.read(
        offset, max_bytes=max_bytes, max_offset=log.end_offset if max_offset is None else max_offset, **keywords
    )
    assert isinstance(found, Local), found
    return found


@pytest.fixture
def make_batch() -> Callable[..., bytes]:
    return batch


@pytest.fixture
def append(make_batch: Callable[..., bytes]) -> Callable[..., Any]:
    """Appends a batch made of the given values as a client would."""

    def append_it(log: Log, *values: bytes | None, epoch: int = 0, now_ms: int = NOW_MS, **keywords: Any) -> Any:
        return log.writer.append(make_batch(*values, **keywords), leader_epoch=epoch, now_ms=now_ms)

    return append_it


@pytest.fixture
def read_values() -> Callable[[Log], list[tuple[int, bytes | None]]]:
    """(offset, value) of everything in a log, read as a consumer does."""
    from headrace.wire.batch import iter_headers
    from headrace.wire.records import decode_batch

    def read_them(log: Log) -> list[tuple[int, bytes | None]]:
        found = []
        offset = log.log_start_offset
        while offset < log.end_offset:
            result = read_at(log, offset, max_bytes=1, min_one=True)
            if result.slice is None:
                break
            data = result.slice.read()
            for at, header in iter_headers(data):
                found += [(r.offset, r.value) for r in decode_batch(data, at) if r.offset >= log.log_start_offset]
                offset = header.next_offset
        return found

    return read_them
