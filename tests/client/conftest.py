"""The client's tests run against both brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.client.cluster import Client

__all__ = ["client"]


@pytest.fixture
def client(bootstrap: str) -> Iterator[Client]:
    with Client(bootstrap, timeout_s=20.0) as client:
        yield client
