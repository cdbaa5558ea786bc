"""What the coordinator does of itself: transactions past their timeout are aborted, unused ids are forgotten."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from broker.raw import Raw, create_topic
from broker.requests.apis.test_transactions import (
    NONE,
    PATIENCE_S,
    add,
    begin,
    describe,
    end,
    init,
    producers,
    until_state,
)

from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker
from headrace.wire.errors import ErrorCode

SETTINGS = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "50",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "50",
    "transactional.id.expiration.ms": "1500",
    "transaction.max.timeout.ms": "5000",
    "transaction.state.log.num.partitions": "2",
}


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    with running_broker(SETTINGS) as running:
        create_topic(running.port, "t")
        yield running


def test_a_transaction_past_its_timeout_is_aborted(raw: Raw) -> None:
    producer_id, epoch = begin(raw, "late", timeout_ms=200)
    before = time.monotonic()
    assert add(raw, 3, "late", (producer_id, epoch), t=[0]) == {("t", 0): NONE}
    told = until_state(raw, "late", "CompleteAbort")
    assert time.monotonic() - before >= 0.2
    assert (told.producer_id, told.producer_epoch) == (producer_id, epoch + 1)
    assert producers(raw, "t")[producer_id] == (epoch + 1, 0)
    assert end(raw, 4, "late", (producer_id, epoch), committed=True)[0] == ErrorCode.PRODUCER_FENCED
    assert end(raw, 5, "late", (producer_id, epoch), committed=False) == (0, producer_id, epoch + 1)


def test_an_id_that_nobody_uses_is_forgotten(raw: Raw) -> None:
    begin(raw, "unused", timeout_ms=1_000)
    assert describe(raw, "unused").transaction_state == "Empty"
    deadline = time.monotonic() + PATIENCE_S
    while describe(raw, "unused").error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_longest_timeout_is_what_the_setting_says(raw: Raw) -> None:
    begin(raw, "any", timeout_ms=1_000)
    assert init(raw, "longest", timeout_ms=5_001)[0] == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert init(raw, "longest", timeout_ms=5_000)[0] == 0
