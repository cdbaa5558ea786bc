"""Leaders and brokers that are away for a while, or for good: what the source does on either side of a query."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from peers.proxy import ProxiedBroker
from pyspark.sql.streaming.datasource import ReadAllAvailable

import headrace
from headrace.client import brokers
from headrace.client.admin import create_topic
from headrace.client.cluster import Client
from headrace.client.errors import BrokerError, ClientError
from headrace.client.producer import Producer
from headrace.spark.delivery.at_least_once import write_rows
from headrace.spark.options import sink_options, source_options
from headrace.spark.process_state import this_process
from headrace.spark.reading import drop_client
from headrace.spark.source import BatchReader, StreamReader

from .stand_in import through_json, values

ALL = ReadAllAvailable()
TIMES = 3
"""How often a client is told that there is no leader, before there is one."""
FOR_EVER = 1 << 30
NO_LEADER = r"topic {} partition 1: .* \(LEADER_NOT_AVAILABLE\)"


@pytest.fixture(scope="module")
def proxied() -> Iterator[ProxiedBroker]:
    with ProxiedBroker() as broker:
        yield broker


@pytest.fixture
def name(proxied: ProxiedBroker, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions with the values 0 to 9, by turns."""
    made = "t-" + str(abs(hash(request.node.nodeid)))
    proxied.deny_leaders(times=0)
    write(proxied.bootstrap, made, 0, 10)
    return made


def write(bootstrap: str, topic: str, first: int, end: int) -> None:
    """Each value a batch of its own."""
    with Client(bootstrap, client_id="writer") as client:
        create_topic(client, topic, partitions=2, exist_ok=True)
        with Producer(client) as producer:
            for number in range(first, end):
                producer.send(topic, b"%d" % number, partition=number % 2)
                producer.flush()


def options_of(bootstrap: str, topic: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest", **more}


def test_a_batch_waits_for_a_leader_when_it_is_planned_and_when_it_is_read(proxied: ProxiedBroker, name: str) -> None:
    options = source_options(options_of(proxied.bootstrap, name), streaming=False)
    reader = BatchReader(options)
    proxied.deny_leaders((name, 1), times=TIMES)
    tasks = reader.partitions()
    assert proxied.denied == {"headrace-spark": TIMES}
    proxied.deny_leaders((name, 1), times=TIMES)  # to the worker's client too
    assert values(reader, tasks) == list(range(10))
    assert proxied.denied == {"headrace-spark": TIMES}
    proxied.deny_leaders((name, 1), times=TIMES)  # to that client again, whose connections are gone
    assert values(reader, tasks) == list(range(10))
    drop_client(options.cluster)


def test_a_stream_waits_for_a_leader(proxied: ProxiedBroker, name: str) -> None:
    options = source_options(options_of(proxied.bootstrap, name), streaming=True)
    proxied.deny_leaders((name, 1), times=TIMES)
    reader = StreamReader(options)
    found: list[int] = []
    offset = through_json(reader.initialOffset())
    for number in range(3):
        end = through_json(reader.latestOffset(offset, ALL))
        proxied.deny_leaders((name, 1), times=TIMES)
        found += values(reader, reader.partitions(offset, end))
        offset = end
        write(proxied.bootstrap, name, 10 + 2 * number, 12 + 2 * number)
        proxied.deny_leaders((name, 1), times=TIMES)
    assert found == list(range(14)), "each once"
    reader.stop()
    drop_client(options.cluster)


@pytest.mark.parametrize("when", ["planned", "read"])
def test_a_leader_that_stays_away_is_named(proxied: ProxiedBroker, name: str, when: str) -> None:
    short = options_of(proxied.bootstrap, name, **{"kafka.default.api.timeout.ms": "400"})
    reader = BatchReader(source_options(short, streaming=False))
    tasks = reader.partitions()
    proxied.deny_leaders((name, 1), times=FOR_EVER)
    before = time.monotonic()
    with pytest.raises(BrokerError, match=f"^{NO_LEADER.format(name)}$"):
        reader.partitions() if when == "planned" else values(reader, tasks)
    assert time.monotonic() - before < 20, "long before the patience of a client without the option"


AWAY_S = 0.6
"""For how long a broker is away here, where an option says the patience; a default is of a minute and more."""


def test_the_patience_of_a_query_is_longer_than_a_minute() -> None:
    for streaming in (True, False):
        chosen = source_options(options_of("h:1", "t"), streaming=streaming).cluster
        assert chosen.api_timeout_ms >= 2 * 60_000 and chosen.request_timeout_ms <= chosen.api_timeout_ms / 2


@pytest.fixture
def connects_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that nobody answers is given up after a moment: each stay away would be one of these long."""
    monkeypatch.setattr(brokers, "CONNECT_TIMEOUT_S", 0.3)


@contextmanager
def away(broker: ProxiedBroker, how: str) -> Iterator[None]:
    """The broker leaves now, or falls silent, and comes back by itself while the block asks it for something."""
    broker.leave() if how == "refuses" else broker.fall_silent()
    back = threading.Timer(AWAY_S, broker.come_back if how == "refuses" else broker.speak)
    back.start()
    before = time.monotonic()
    yield
    assert time.monotonic() - before > AWAY_S / 2, "it was asked while it was away"
    back.join()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The query cannot commit its offsets")
@pytest.mark.usefixtures("connects_quickly")
@pytest.mark.parametrize("how", ["refuses", "is silent"])
def test_a_broker_that_is_away_for_a_while_ends_no_stream(how: str) -> None:
    with ProxiedBroker() as broker:
        write(broker.bootstrap, "t", 0, 10)
        more = {"kafka.request.timeout.ms": "300"} if how == "is silent" else {}
        options = source_options(options_of(broker.bootstrap, "t", **more), streaming=True)
        reader = StreamReader(options)
        start = through_json(reader.initialOffset())
        with away(broker, how):
            end = through_json(reader.latestOffset(start, ALL))
        with away(broker, how):
            tasks = reader.partitions(start, end)
        # a worker that has just begun knows nothing but the address
        drop_client(options.cluster)
        with away(broker, how):
            assert values(reader, tasks) == list(range(10))
        with away(broker, how):
            assert values(reader, tasks) == list(range(10)), "nor does one that is at work"
        reader.stop()
        drop_client(options.cluster)


@pytest.mark.usefixtures("connects_quickly")
@pytest.mark.parametrize("how", ["refuses", "is silent"])
def test_a_broker_that_is_away_for_a_while_fails_no_write(how: str) -> None:
    with ProxiedBroker() as broker:
        write(broker.bootstrap, "t", 0, 2)
        given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "t", "kafka.request.timeout.ms": "300"}
        options = sink_options(given)
        rows = pa.record_batch({"value": pa.array([b"2", b"3"])})
        for _ in range(2):  # a worker that has just begun, and one that has a producer
            with away(broker, how):
                assert write_rows(iter([rows]), options).records == 2
        found = headrace.scan("t", bootstrap=broker.bootstrap, columns=["value"])["value"].to_pylist()
        assert sorted(found) == [b"0", b"1", b"2", b"2", b"3", b"3"]
        this_process().producers.drop(options)


def test_an_address_that_is_wrong_is_said_at_once() -> None:
    with ProxiedBroker() as broker:
        broker.leave()
        options = source_options(options_of(broker.bootstrap, "t"), streaming=True)
        before = time.monotonic()
        with pytest.raises(ClientError, match=f"^no broker answers: {broker.bootstrap}: Connection refused$"):
            StreamReader(options).initialOffset()
        assert time.monotonic() - before < 20


@pytest.mark.filterwarnings("ignore:The query cannot commit its offsets")
@pytest.mark.parametrize("when", ["planned", "read"])
def test_a_broker_that_stays_away_is_named(when: str) -> None:
    with ProxiedBroker() as broker:
        write(broker.bootstrap, "t", 0, 10)
        short = options_of(broker.bootstrap, "t", **{"kafka.default.api.timeout.ms": "400"})
        reader = StreamReader(source_options(short, streaming=True))
        offset = through_json(reader.initialOffset())
        end = through_json(reader.latestOffset(offset, ALL))
        tasks = reader.partitions(offset, end)
    before = time.monotonic()
    with pytest.raises(ClientError, match=f"^[^\n]*{broker.bootstrap}: Connection refused$"):
        reader.latestOffset(end, ALL) if when == "planned" else values(reader, tasks)
    assert time.monotonic() - before < 20, "long before the patience of a client without the option"
    reader.stop()
