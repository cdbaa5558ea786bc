"""Replicas while what is under them changes: topics that go, logs that open behind, syncs that come late."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from broker.raw import Raw, batch, create_topic, fetch, produce

from headrace.broker.broker import Broker
from headrace.log.log import Log
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
        known = broker.image.topics.by_name(name)
        assert known is not None
        manager._unopened[key] = known
        plan = manager._plan(key, {})
        assert plan is not None
        manager.by_name.pop(key)
        manager._unopened[key] = replace(known)  # a new leader epoch, another directory
        manager._opened_behind([(plan, manager._try_open(plan))], None)
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
                getattr(broker, busy).submit(go_on.wait, lambda _result, _error: None)

        served.call(occupy)
        try:
            if busy == "workers":
                assert raw.ask(produce("t", batch(b"b")), 9).responses[0].partition_responses[0].error_code == 0
                create_topic(served.port, "u")
            else:
                served.call(lambda broker: broker.logs.get("t", 0).active.release())  # type: ignore[union-attr]
                served.call(lambda broker: broker.logs.get("t", 0).forget_recent())  # type: ignore[union-attr]
                answer = raw.ask(fetch("t", 0), 11).responses[0].partitions[0]
                assert bytes(answer.records) and answer.error_code == 0
                assert served.call(lambda broker: broker.metrics.counter("fetch.cold_lookups").value) == 1
        finally:
            go_on.set()


def test_producers_wait_for_a_disk_that_is_slower_and_nobody_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    flush, may_sync = Log.flush, threading.Event()

    def slow(log: Log, up_to: int | None = None) -> int:
        assert log.topic_partition[0] != "t" or may_sync.wait(30)
        return flush(log, up_to)

    limit, size, count = 1_000_000, 200_000, 40
    monkeypatch.setattr(Log, "flush", slow)
    with running_broker({"log.unsynced.bytes.max": str(limit)}) as served, Raw(served.port, timeout_s=30) as raw:
        create_topic(served.port, "t")
        frame = raw.frame(produce("t", batch(b"x" * size)), 9)
        writer = threading.Thread(target=raw.socket.sendall, args=(frame * count,))
        writer.start()

        def is_behind() -> bool:
            return served.call(lambda broker: broker.replicas.flusher.behind)

        patience = time.monotonic() + 10
        while not is_behind() and time.monotonic() < patience:
            time.sleep(0.01)
        assert is_behind()
        with Raw(served.port) as reader:
            end = reader.ask(fetch("t"), 12).responses[0].partitions[0].high_watermark
            assert (end - 1) * size <= limit < (end + 1) * size
            assert reader.ask(fetch("t"), 12).responses[0].partitions[0].high_watermark == end
        may_sync.set()
        offsets = [raw.receive(0, 9)[1].responses[0].partition_responses[0].base_offset for _ in range(count)]
        writer.join()
        assert offsets == list(range(count))
        assert not is_behind()


def test_what_was_written_to_a_deleted_topic_need_not_be_synced() -> None:
    with running_broker() as served, Raw(served.port) as raw:
        create_topic(served.port, "gone")
        before = served.call(lambda broker: broker.replicas.flusher.unsynced_bytes)
        raw.ask(produce("gone", batch(b"x" * 1000)), 9)
        assert served.call(lambda broker: broker.replicas.flusher.unsynced_bytes) > before + 1000
        raw.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=5000), 6)
        assert served.call(lambda broker: broker.replicas.flusher.unsynced_bytes) == before


def crashed(data: Path, *, safe: int, bad_byte: int) -> Path:
    """A broker's directory as a crash leaves it: t-0 has three batches, `safe` of them synced; the second is bad."""
    with running_broker(data=data) as served, Raw(served.port) as raw:
        create_topic(served.port, "t")
        create_topic(served.port, "sound")
        for value in (b"a", b"b", b"c"):
            assert raw.ask(produce("t", batch(value)), 9).responses[0].partition_responses[0].error_code == 0
    (data / ".kafka_cleanshutdown").unlink()
    (data / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {safe}\n")
    log = data / "t-0" / f"{0:020d}.log"
    content = bytearray(log.read_bytes())
    content[len(content) // 3 + bad_byte] ^= 1
    log.write_bytes(content)
    return log


def test_a_recovery_that_loses_data_says_how_much_and_where(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = crashed(tmp_path, safe=0, bad_byte=64)
    size = log.stat().st_size
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        (line,) = [record.getMessage() for record in caplog.records if "bytes cut" in record.getMessage()]
        assert line.startswith(f"t-0: {size * 2 // 3} bytes cut from {log} at offset 1: ") and "checksum" in line
        answer = raw.ask(produce("t", batch(b"d")), 9).responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, 1)


def test_a_partition_that_goes_offline_names_the_file_and_the_offset(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = crashed(tmp_path, safe=3, bad_byte=16)  # of what was synced, the headers are read
    before = log.read_bytes()
    with running_broker(data=tmp_path) as served, Raw(served.port) as raw:
        assert raw.ask(fetch("t", 0), 11).responses[0].partitions[0].error_code == 56
        (line,) = [record.getMessage() for record in caplog.records if "cannot be opened" in record.getMessage()]
        assert line.startswith(f"t-0 cannot be opened: {log} is damaged at byte {len(before) // 3} (offset 1): ")
        assert raw.ask(produce("sound", batch(b"d")), 9).responses[0].partition_responses[0].error_code == 0
    assert log.read_bytes() == before
