"""The client's tests run against both brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from peers.either import bootstrap, topic

from headrace.client.cluster import Client

__all__ = ["bootstrap", "client", "topic"]


@pytest.fixture
def client(bootstrap: str) -> Iterator[Client]:
    with Client(bootstrap, timeout_s=20.0) as client:
        yield client
