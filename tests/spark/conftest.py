"""A broker for a module's tests, and a topic of two partitions for each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import headrace.testing
from headrace.client.admin import create_topic
from headrace.client.cluster import Client


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
