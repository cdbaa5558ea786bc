"""The same tests against both brokers: ours in this process, and Apache Kafka beside it (marked `jvm`).

A conftest imports `bootstrap` from here; `topic` gives every test a name of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from .kafka import KafkaPeer
from .shared import shared

BROKERS = ["headrace", pytest.param("kafka", marks=pytest.mark.jvm)]

_numbers = itertools.count(1)


@pytest.fixture(scope="session", params=BROKERS)
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker's address, for the whole run."""
    if request.param == "kafka":
        peer = KafkaPeer(settings={"offsets.topic.num.partitions": "1"})
        with shared("the Apache Kafka of tests against either broker", peer) as kafka:
            yield kafka.bootstrap
    else:
        import headrace.testing

        with headrace.testing.broker() as ours:
            yield ours.bootstrap


@pytest.fixture
def topic() -> str:
    """A topic's name that no other test uses; nothing of it exists yet. Fit for a group as well."""
    return f"either-{next(_numbers)}"
