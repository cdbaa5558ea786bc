"""Transactions of a cluster as tests look at them: their states, and what readers of committed records see."""

from __future__ import annotations

import time

from headrace.client import reading
from headrace.client.cluster import Client
from headrace.client.describe import describe_features
from headrace.client.fetcher import Fetcher
from headrace.client.reading import visible_batches
from headrace.client.routing import TRANSACTION
from headrace.client.transaction_states import list_transactions
from headrace.wire.messages.k57_update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from headrace.wire.messages.k65_describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from headrace.wire.records import Record, decode_batch

SMALL = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
"""Settings of an Apache Kafka that is to be quick about transactions."""
PATIENCE_S = 30.0
SAFE_DOWNGRADE = 2
DONE = ("CompleteCommit", "CompleteAbort", "Empty")


def set_transaction_version(client: Client, level: int) -> None:
    """Give the cluster this level of `transaction.version`, be it higher or lower than its own."""
    name = "transaction.version"
    now = describe_features(client).get(name, 0)
    if now == level:
        return
    update = FeatureUpdateKey(name, level, upgrade_type=1 if level > now else SAFE_DOWNGRADE)
    request = UpdateFeaturesRequest(feature_updates=[update])
    client.run(client.router.checked(request, UpdateFeaturesResponse, lambda r: (r.error_code, r.error_message), name))
    until = time.monotonic() + PATIENCE_S
    while describe_features(client).get(name, 0) != level:
        assert time.monotonic() < until, f"{name} does not become {level}"
        time.sleep(0.02)


def state_of(client: Client, transactional_id: str, *, settled: bool = True) -> str:
    """The state of its transaction: where it is to be `settled`, when its markers are written."""
    until = time.monotonic() + PATIENCE_S
    while True:
        steps = client.router.at_coordinator(
            transactional_id,
            DescribeTransactionsRequest([transactional_id]),
            DescribeTransactionsResponse,
            lambda response: response.transaction_states[0].error_code,
            kind=TRANSACTION,
        )
        (found,) = client.run(steps).transaction_states
        is_over = not settled or not found.transaction_state.startswith("Prepare")
        if is_over or time.monotonic() > until:
            return found.transaction_state
        time.sleep(0.01)


def visible(client: Client, topic: str) -> list[bytes]:
    """The values that a reader of committed records sees now, when every marker that is due has been written.

    A transaction that is open keeps what comes behind it out of sight.
    """
    return [record.value or b"" for records in visible_records(client, topic).values() for record in records]


def visible_records(client: Client, topic: str) -> dict[int, list[Record]]:
    """The same as whole records, by partition and in order."""
    ends = {(topic, index): end for index, end in settled_ends(client, topic).items()}
    found: dict[int, list[Record]] = {index: [] for _, index in ends}
    for fetched in Fetcher(client, dict.fromkeys(ends, 0), ends=ends, isolation="read_committed", max_wait_ms=50):
        for _, body in visible_batches(fetched, committed=True):
            found[fetched.partition] += decode_batch(body)
    return found


def settled_ends(client: Client, topic: str) -> dict[int, int]:
    """Where committed records end, once every transaction that was decided has its markers: until then a part of it may
    be out of sight."""
    until = time.monotonic() + PATIENCE_S
    while waiting := [each for each in list_transactions(client) if each.state.startswith("Prepare")]:
        assert time.monotonic() < until, f"markers are missing: {waiting}"
        time.sleep(0.01)
    return reading.latest_offsets(client, topic, isolation="read_committed")
