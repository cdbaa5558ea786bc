"""The client's settings among the options: what they become, and what is said of those that are wrong."""

from __future__ import annotations

import pytest

from headrace.spark.client_settings import FETCH, PRODUCE, ClusterSettings
from headrace.spark.options import sink_options, source_options

BROKERS = {"kafka.bootstrap.servers": "h:1"}
READ = BROKERS | {"subscribe": "t"}


def test_what_is_not_said() -> None:
    read, write = source_options(READ, streaming=True), sink_options(BROKERS)
    assert read.cluster == write.cluster == ClusterSettings("h:1")
    assert (read.fetch, write.produce) == (FETCH, PRODUCE)


def test_what_is_said() -> None:
    read = source_options(
        READ
        | {
            "kafka.client.id": "me",
            "kafka.default.api.timeout.ms": "1500",
            "kafka.request.timeout.ms": "700",
            "kafka.security.protocol": "plaintext",
            "kafka.fetch.min.bytes": "7",
            "kafka.fetch.max.wait.ms": "0",
            "kafka.fetch.max.bytes": "1000",
            "kafka.max.partition.fetch.bytes": "100",
            "kafka.client.rack": "r1",
        },
        streaming=False,
    )
    assert read.cluster.client_id == "me" and read.cluster.client().timeout_s == 1.5
    assert read.cluster.client().request_timeout_s == 0.7
    assert read.fetch.min_bytes == 7 and read.fetch.max_wait_ms == 0
    assert (read.fetch.max_bytes, read.fetch.partition_max_bytes, read.fetch.rack) == (1000, 100, "r1")
    write = sink_options(
        BROKERS
        | {
            "kafka.acks": "1",
            "kafka.batch.size": "2000",
            "kafka.request.timeout.ms": "3",
            "kafka.delivery.timeout.ms": "4",
            "kafka.transaction.timeout.ms": "5",
        }
    )
    assert (write.produce.acks, write.produce.batch_bytes) == (1, 2000)
    assert (write.cluster.request_timeout_ms, write.produce.delivery_timeout_ms) == (3, 4)
    assert write.produce.transaction_timeout_ms == 5


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("kafka.fetch.max.bytes", "0", "a whole number from 1 to 2147483647, not '0'"),
        ("kafka.fetch.min.bytes", "-1", "a whole number from 0"),
        ("kafka.fetch.max.wait.ms", "2147483648", "to 2147483647"),
        ("kafka.default.api.timeout.ms", "1s", "not '1s'"),
        ("kafka.security.protocol", "SASL_SSL", "must be PLAINTEXT, not 'SASL_SSL'"),
    ],
)
def test_what_is_wrong_with_a_read(name: str, text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as said:
        source_options(READ | {name: text}, streaming=True)
    assert repr(name) in str(said.value)


@pytest.mark.parametrize(("name", "text"), [("kafka.acks", "2"), ("kafka.batch.size", "0")])
def test_what_is_wrong_with_a_write(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"{name}' must be .*, not '{text}'"):
        sink_options(BROKERS | {name: text})
