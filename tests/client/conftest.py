"""The client's tests run against both brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from peers.settling import client_of

from headrace.client.cluster import Client

__all__ = ["client"]


@pytest.fixture
def client(bootstrap: str) -> Iterator[Client]:
    with client_of(bootstrap) as client:
        yield client
