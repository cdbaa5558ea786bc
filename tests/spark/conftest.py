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
    committing, writing = (sys.modules.get(f"headrace.spark.{name}") for name in ("exactly_once", "parts"))
    if committing is not None:
        for each in committing._kept.values():
            each.producer.client.close()
        committing._kept.clear()
    if writing is not None:
        for client in writing._clients.values():
            client.close()
        writing._clients.clear()


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
