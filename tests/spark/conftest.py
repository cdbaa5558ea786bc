"""A broker and a Spark for a module's tests; without Spark, a client and a topic of two partitions for each test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

import headrace.testing
from headrace.client.admin import create_topic
from headrace.client.cluster import Client


@pytest.fixture(autouse=True)
def _no_clients_left() -> Iterator[None]:
    """A process keeps the clients that it writes by: none stays open behind a test."""
    yield
    state = sys.modules.get("headrace.spark.process_state")
    if state is not None:
        state.this_process().query_producers.close()
        state.this_process().writers.close()


@pytest.fixture(scope="module")
def broker() -> Iterator[Any]:
    with headrace.testing.broker() as running:
        yield running


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from spark.copying import session

    running = session()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Client]:
    with headrace.testing.broker() as broker, Client(broker.bootstrap) as client:
        client.bootstrap_text = broker.bootstrap  # type: ignore[attr-defined]
        yield client


@pytest.fixture
def topic(cluster: Client, request: pytest.FixtureRequest) -> str:
    name = "t-" + str(abs(hash(request.node.nodeid)))
    create_topic(cluster, name, partitions=2)
    return name
