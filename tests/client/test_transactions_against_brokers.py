"""A transactional producer against both brokers, with each of the protocols: seen together, once, or never."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
from peers.either import BROKERS
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer
from peers.settling import client_of
from peers.transactions import SMALL, set_transaction_version, state_of, visible

from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.client.errors import BrokerError, FencedError
from headrace.client.groups import Committed, fetch_offsets
from headrace.client.transacting import State
from headrace.client.transactions import TransactionalProducer
from headrace.wire.errors import ErrorCode
from headrace.wire.records import Record, build_batch

_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=BROKERS)
def peer(request: pytest.FixtureRequest) -> Iterator[HeadracePeer | KafkaPeer]:
    peer = HeadracePeer(settings=SMALL) if request.param == "headrace" else KafkaPeer(settings=SMALL)
    with peer:
        yield peer


@pytest.fixture(scope="module", params=[2, 1, 0])
def cluster(peer: HeadracePeer | KafkaPeer, request: pytest.FixtureRequest) -> Iterator[Client]:
    with client_of(peer) as client:
        set_transaction_version(client, request.param)
        yield client


@pytest.fixture
def name(cluster: Client) -> str:
    """Of a topic of two partitions, of a transactional id and of a group."""
    name = f"paid-{next(_numbers)}"
    create_topic(cluster, name, partitions=2)
    return name


def write(producer: TransactionalProducer, topic: str, *values: bytes) -> None:
    producer.begin()
    for number, value in enumerate(values):
        producer.send(topic, value, partition=number % 2)


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(cluster: Client, name: str) -> None:
    producer = TransactionalProducer(cluster, name)
    seen = []
    for number in range(6):
        values = [b"%d-%d" % (number, each) for each in range(5)]
        write(producer, name, *values)
        producer.send_offsets(name, {(name, 0): Committed(number, metadata=f"note {number}")})
        if number % 3 == 1:
            producer.abort()
        else:
            producer.commit()
            seen += values
    assert sorted(visible(cluster, name)) == sorted(seen)
    assert fetch_offsets(cluster, name, require_stable=True) == {(name, 0): Committed(5, metadata="note 5")}
    assert state_of(cluster, name) == "CompleteCommit"
    assert producer.records_committed == len(seen)


def test_batches_that_are_too_large_go_in_parts(cluster: Client) -> None:
    name = f"paid-{next(_numbers)}"
    create_topic(cluster, name, partitions=2, configs={"max.message.bytes": "3000"})
    producer = TransactionalProducer(cluster, name)
    seen = []
    for number in range(3):
        values = [b"%d-%d" % (number, each) + b"x" * 90 for each in range(500)]
        write(producer, name, *values)
        if number == 1:
            producer.abort()
        else:
            producer.commit()
            seen += values
    assert sorted(visible(cluster, name)) == sorted(seen)


def test_ready_made_batches_go_as_they_are(cluster: Client, name: str) -> None:
    producer = TransactionalProducer(cluster, name)
    producer.begin()
    for number in range(20):
        producer.send_batch(name, number % 2, build_batch([Record(0, 1, None, b"%d" % number)]))
    producer.flush()
    assert visible(cluster, name) == []
    producer.commit()
    assert sorted(map(int, visible(cluster, name))) == list(range(20))


def test_a_newer_producer_has_the_id(cluster: Client, name: str) -> None:
    old, new = TransactionalProducer(cluster, name), TransactionalProducer(cluster, name)
    write(old, name, b"old")
    old.flush()
    write(new, name, b"new")
    with pytest.raises(FencedError, match="a newer producer"):
        old.commit()
    new.commit()
    assert visible(cluster, name) == [b"new"]


def test_a_fenced_producer_cannot_write_either(cluster: Client, name: str) -> None:
    old, new = TransactionalProducer(cluster, name), TransactionalProducer(cluster, name)
    write(old, name, b"old")
    old.commit()
    new.initialize()
    write_error: Any = None
    old.begin()
    try:
        old.send(name, b"late", partition=0)
        old.commit()
    except BrokerError as error:
        write_error = error
    assert write_error is not None
    if old.state is State.FAILED:
        with pytest.raises(FencedError):
            old.abort()
    assert visible(cluster, name) == [b"old"]


def test_a_transaction_that_was_open_for_too_long(cluster: Client, name: str) -> None:
    producer = TransactionalProducer(cluster, name, timeout_ms=1_500)
    write(producer, name, b"slow")
    producer.flush()
    patience = time.monotonic() + 60
    while state_of(cluster, name) != "CompleteAbort" and time.monotonic() < patience:
        time.sleep(0.05)
    with pytest.raises(BrokerError) as refused:
        producer.commit()
    assert refused.value.code in (
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    )
    producer.initialize()
    write(producer, name, b"quick")
    producer.commit()
    assert visible(cluster, name) == [b"quick"]


def test_a_block_left_open_is_aborted(cluster: Client, name: str) -> None:
    with TransactionalProducer(cluster, name) as producer:
        write(producer, name, b"left")
    assert visible(cluster, name) == [] and state_of(cluster, name) == "CompleteAbort"
