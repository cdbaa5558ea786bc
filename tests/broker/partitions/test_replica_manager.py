"""Replicas while what is under them changes: topics that go, logs that open behind, syncs that come late."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from broker.raw import Raw, batch, create_topic, fetch, produce

from headrace.broker.broker import Broker
from headrace.broker.partitions import flusher
from headrace.env.posix import PosixDisk
from headrace.log.log import Log
from headrace.log.writer import LogWriter
from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState


def test_a_log_opened_behind_stays_when_its_metadata_change_meanwhile(
    served: TestBroker, raw: Raw, topic: Callable[..., str]
) -> None:
    name = topic()
    raw.ask(produce(name, batch(b"kept")), 9)

    def reopen(broker: Broker) -> tuple[int, bool]:
        manager, key = broker.replicas, (name, 0)
        opener = manager._opener
        known = broker.image.topics.by_name(name)
        assert known is not None
        opener.unopened[key] = known
        (plan,) = opener._plans([key])
        manager.by_name.pop(key)
        opener.unopened[key] = replace(known)  # a new leader epoch, another directory
        opener._finish(plan, opener._try_open(plan))
        return manager.by_name[key].log.end_offset, Path(manager.by_name[key].log.directory).is_dir()

    assert served.call(reopen) == (1, True)


def test_a_topic_deleted_while_it_is_synced_fails_no_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    flush = Log.flush

    def slow(log: Log, up_to: int | None = None) -> int:
        if log.topic_partition[0] == "gone":
            time.sleep(0.5)
        return flush(log, up_to)

    with running_broker({"acks.flush": "before-reply"}) as served, Raw(served.port) as raw:
        create_topic(served.port, "gone")
        create_topic(served.port, "kept")
        monkeypatch.setattr(Log, "flush", slow)
        raw.send(produce("gone", batch(b"a")), 9)
        with Raw(served.port) as other:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=5000)
            assert other.ask(request, 6).responses[0].error_code == 0
            time.sleep(0.7)
            assert served.call(lambda broker: [home.failure for home in broker.logs.directories.values()]) == [None]
            assert other.ask(produce("kept", batch(b"a")), 9).responses[0].partition_responses[0].error_code == 0


def test_a_disk_too_full_to_sync_refuses_and_stays_online(monkeypatch: pytest.MonkeyPatch) -> None:
    flush = Log.flush
    full = True

    def fails(log: Log, up_to: int | None = None) -> int:
        if full and log.topic_partition[0] == "t":
            raise OSError(errno.ENOSPC, "no space")
        return flush(log, up_to)

    with running_broker({"acks.flush": "before-reply"}) as served, Raw(served.port) as raw:
        create_topic(served.port, "t")
        monkeypatch.setattr(Log, "flush", fails)
        assert raw.ask(produce("t", batch(b"a")), 9).responses[0].partition_responses[0].error_code == 56
        full = False
        answer = raw.ask(produce("t", batch(b"b")), 9).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, 1)


@pytest.mark.parametrize("busy", ["workers", "syncs"])
def test_cold_readers_and_syncs_do_not_hold_each_other_up(tmp_path: Path, busy: str) -> None:
    go_on = threading.Event()
    with running_broker({"acks.flush": "before-reply"}, data=tmp_path) as served, Raw(served.port) as raw:
        create_topic(served.port, "t")
        assert raw.ask(produce("t", batch(b"a")), 9).responses[0].partition_responses[0].error_code == 0

        def occupy(broker: Broker) -> None:
            for _ in range(64):
                getattr(broker.node, busy).submit(go_on.wait)

        served.call(occupy)
        try:
            if busy == "workers":
                assert raw.ask(produce("t", batch(b"b")), 9).responses[0].partition_responses[0].error_code == 0
                create_topic(served.port, "u")
            else:
                served.call(lambda broker: broker.logs.get("t", 0).active.release())  # type: ignore[union-attr]
                served.call(lambda broker: broker.logs.get("t", 0).state.forget_recent())  # type: ignore[union-attr]
                answer = raw.ask(fetch("t", 0), 11).responses[0].partitions[0]
                assert bytes(answer.records) and answer.error_code == 0
                assert served.call(lambda broker: broker.metrics.counter("fetch.cold_lookups").value) == 1
        finally:
            go_on.set()


def test_producers_wait_for_a_disk_that_is_slower_and_nobody_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    flush, append_many, may_sync = Log.flush, LogWriter.append_many, threading.Event()
    limit, size, count = 1_000_000, 200_000, 40
    waiting = 0

    def appended(writer: LogWriter, chunks: Any, **more: Any) -> Any:
        nonlocal waiting
        if writer.state.topic_partition[0] == "t":
            waiting += sum(map(len, chunks))
        return append_many(writer, chunks, **more)

    def slow(log: Log, up_to: int | None = None) -> int:
        nonlocal waiting
        if log.topic_partition[0] == "t":
            assert may_sync.wait(30)
            waiting = 0
        return flush(log, up_to)

    monkeypatch.setattr(flusher, "LOOK_BYTES", 1)
    monkeypatch.setattr(PosixDisk, "write_pressure", lambda _: waiting / limit)
    monkeypatch.setattr(LogWriter, "append_many", appended)
    monkeypatch.setattr(Log, "flush", slow)
    with running_broker() as served, Raw(served.port, timeout_s=30) as raw:
        create_topic(served.port, "t")
        frame = raw.frame(produce("t", batch(b"x" * size)), 9)
        writer = threading.Thread(target=raw.socket.sendall, args=(frame * count,))
        writer.start()

        def is_behind() -> bool:
            return served.call(lambda broker: broker.replicas.flusher.behind)

        def becomes_behind(wanted: bool) -> bool:
            patience = time.monotonic() + 60
            while is_behind() != wanted and time.monotonic() < patience:
                time.sleep(0.01)
            return is_behind() == wanted

        assert becomes_behind(True)
        with Raw(served.port) as reader:
            end = reader.ask(fetch("t"), 12).responses[0].partitions[0].high_watermark
            assert (end - 2) * size <= limit < (end + 1) * size
            assert reader.ask(fetch("t"), 12).responses[0].partitions[0].high_watermark == end
        may_sync.set()
        offsets = [raw.receive(0, 9)[1].responses[0].partition_responses[0].base_offset for _ in range(count)]
        writer.join()
        assert offsets == list(range(count))
        assert becomes_behind(False)


def test_producers_do_not_wait_for_what_others_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher, "LOOK_BYTES", 1)
    monkeypatch.setattr(PosixDisk, "write_pressure", lambda _: 2.0)
    with running_broker() as served, Raw(served.port) as raw:
        create_topic(served.port, "t")
        for offset in range(20):
            answer = raw.ask(produce("t", batch(b"x")), 9).responses[0].partition_responses[0]
            assert (answer.error_code, answer.base_offset) == (0, offset)


def test_the_system_says_how_much_waits_to_be_written_out() -> None:
    assert 0 <= PosixDisk().write_pressure() < 10
