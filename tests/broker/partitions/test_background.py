"""What a broker does from time to time, and what it says of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker.raw import Raw, batch, create_topic, produce
from peers.waiting import until

from headrace.broker.broker import Broker
from headrace.log.offset_checkpoints import OffsetCheckpoints
from headrace.testing.running import broker as running_broker
from headrace.wire.records import Record, build_batch


def test_a_log_that_cannot_be_compacted_is_reported_once_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quiet = {"log.cleaner.backoff.ms": "50", "log.cleaner.enable": "false"}
    with running_broker(quiet, data=tmp_path) as served, Raw(served.port) as raw:
        create_topic(served.port, "t", 1, **{"cleanup.policy": "compact"})
        keyed = build_batch([Record(0, 1_700_000_000_000, b"k", b"a" * 200, [])])
        assert raw.ask(produce("t", keyed), 9).responses[0].partition_responses[0].error_code == 0

        def damage(broker: Broker) -> str:
            log = broker.logs.logs["t", 0]
            log.writer.roll(now_ms=broker.node.clock.now_ms())
            with open(log.segments[0].path, "r+b") as file:
                file.seek(100)
                file.write(b"\xff" * 8)
            return log.segments[0].path

        path = served.call(damage)
    with running_broker({**quiet, "log.cleaner.enable": "true"}, data=tmp_path) as served:

        def uncleanable() -> float:
            return served.call(lambda broker: broker.metrics.statistics()).gauges["log.cleaner.uncleanable"]

        until(lambda: uncleanable() == 1)
        until(lambda: not served.call(lambda broker: broker.logs.is_cleaning))
        lines = [record.getMessage() for record in caplog.records if "no longer compacted" in record.getMessage()]
    assert len(lines) == 1 and "partition=t-0" in lines[0] and path in lines[0]


@pytest.mark.slow
def test_retention_on_the_ticks_of_a_broker(tmp_path: Path) -> None:
    short = {"log.retention.check.interval.ms": "1000", "log.segment.delete.delay.ms": "0"}
    with running_broker(short, data=tmp_path) as served, Raw(served.port) as raw:
        create_topic(served.port, "t", 1, **{"retention.ms": "1"})
        assert raw.ask(produce("t", batch(b"a")), 9).responses[0].partition_responses[0].error_code == 0
        until(lambda: served.call(lambda broker: broker.logs.logs["t", 0].log_start_offset) == 1)
        until(lambda: [path.name for path in (tmp_path / "t-0").glob("*.log*")] == [f"{1:020d}.log"])
        assert raw.ask(produce("t", batch(b"b")), 9).responses[0].partition_responses[0].base_offset == 1


@pytest.mark.slow
def test_a_defect_in_background_work_is_reported_and_the_work_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = OffsetCheckpoints.write_high_watermarks, 0

    def fails(checkpoints: OffsetCheckpoints) -> None:
        nonlocal calls
        # Other tests' brokers live in this process too.
        if str(tmp_path) in [home.path for home in checkpoints.held.online()]:
            calls += 1
            if calls == 1:
                raise RuntimeError("a defect")
        real(checkpoints)

    monkeypatch.setattr(OffsetCheckpoints, "write_high_watermarks", fails)
    often = {"replica.high.watermark.checkpoint.interval.ms": "100"}
    with running_broker(often, data=tmp_path) as served, Raw(served.port) as raw:
        create_topic(served.port, "t", 1)
        assert raw.ask(produce("t", batch(b"a")), 9).responses[0].partition_responses[0].error_code == 0
        until((tmp_path / "replication-offset-checkpoint").exists)
        until(lambda: served.call(lambda broker: broker.node.defects.count) > 0)
        assert isinstance(served.take_defect(), RuntimeError)
    assert (tmp_path / "replication-offset-checkpoint").read_bytes() == b"0\n1\nt 0 1\n"
