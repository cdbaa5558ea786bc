"""What may go on at once: appends on one thread, flushes, reads and compactions on others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from log.cleaning import clean
from log.conftest import read_at

from headrace.env.posix import PosixClock
from headrace.log import cleaner
from headrace.log.log import Log
from headrace.log.segment import Segment
from headrace.wire.batch import iter_headers
from headrace.wire.records import decode_batch

NOW_MS = 1_700_000_000_000


def test_flushes_and_reads_while_appends_go_on(open_at: Callable[..., Log], make_batch: Callable[..., bytes]) -> None:
    log = open_at({"segment_bytes": 20_000, "index_interval_bytes": 200})
    done = threading.Event()
    failures: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                while not done.is_set():
                    work()
            except BaseException as error:
                failures.append(error)

        return run

    def flush() -> None:
        end = log.end_offset
        assert log.flush() >= end

    def read() -> None:
        end = log.end_offset
        offset = end // 2
        if offset < end:
            result = read_at(log, offset, max_bytes=5000, max_offset=end)
            assert result.slice is not None
            header = next(iter_headers(result.slice.read()[:200]))[1] if result.size < 200 else None
            assert header is None or header.last_offset >= offset

    threads = [threading.Thread(target=guarded(work)) for work in (flush, read, read)]
    for thread in threads:
        thread.start()
    batch = make_batch(b"x" * 50)
    for _ in range(4000):
        assert not log.writer.append(batch, leader_epoch=0, now_ms=NOW_MS).error
    done.set()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert log.flush() == 4000
    before = {segment.base_offset: segment.index.entries().tolist() for segment in log.segments}
    log.close()
    again = open_at({"segment_bytes": 20_000, "index_interval_bytes": 200})
    assert again.end_offset == 4000
    assert {segment.base_offset: segment.index.entries().tolist() for segment in again.segments} == before


def test_compaction_while_appends_go_on(open_at: Callable[..., Log], append: Any) -> None:
    settings = {"segment_bytes": 20_000, "index_interval_bytes": 200, "cleanup_policy": frozenset({"compact"})}
    log = open_at(settings)
    done = threading.Event()
    failures: list[BaseException] = []
    rounds: list[int] = []

    def compact() -> None:
        last = None
        try:
            while not done.is_set():
                log.flush()
                found = cleaner.candidate(log, last, log.end_offset, NOW_MS)
                if found is None:
                    continue
                replaced: list[Segment] = []
                throttle = cleaner.CleanerThrottle(PosixClock(), 1e12, lambda: False)
                result = clean(found, NOW_MS, throttle, replaced.extend)
                last = result.end_offset
                rounds.append(last)
                for segment in replaced:
                    segment.remove_files()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=compact)
    thread.start()
    index = -1
    while index < 3000 or not (rounds or failures):  # appends may be done before the other thread has had a turn
        index += 1
        assert not append(log, b"%d" % index, key=b"k%d" % (index % 50)).error
        if index % 7 == 0:
            read_at(log, index // 3, max_bytes=2000)
    done.set()
    thread.join()
    assert not failures, failures
    latest = {}
    for segment in log.segments:
        data = segment.file().read(0, segment.size)
        for at, _ in iter_headers(data):
            for record in decode_batch(data, at):
                latest[record.key] = record.value
    assert latest == {b"k%d" % (each % 50): b"%d" % each for each in range(index - 49, index + 1)}
