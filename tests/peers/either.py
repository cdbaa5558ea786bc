"""The same tests against both brokers: ours in this process, and Apache Kafka beside it (marked `jvm`).

The fixtures are tests/conftest.py's, so that all files share the brokers; `topic` gives every test a name of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from .kafka import KafkaPeer
from .shared import shared

BROKERS = ["headrace", pytest.param("kafka", marks=pytest.mark.jvm)]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def either_headrace() -> Iterator[str]:
    """Our broker's address; it is started once a run, by the first test that asks for it."""
    import headrace.testing

    with headrace.testing.broker() as ours:
        yield ours.bootstrap


@pytest.fixture(scope="session")
def either_kafka() -> Iterator[str]:
    """Apache Kafka's address; it is started once a run."""
    # a controller that waits for company of a record makes every change of metadata wait
    peer = KafkaPeer(settings={"offsets.topic.num.partitions": "1", "controller.quorum.append.linger.ms": "0"})
    with shared("the Apache Kafka of tests against either broker", peer) as kafka:
        yield kafka.bootstrap


@pytest.fixture(scope="session", params=BROKERS)
def bootstrap(request: pytest.FixtureRequest) -> str:
    """A broker's address. The broker stays when a test asks for the other one."""
    return str(request.getfixturevalue(f"either_{request.param}"))


@pytest.fixture
def topic() -> str:
    """A topic's name that no other test uses; nothing of it exists yet. Fit for a group as well."""
    return f"either-{next(_numbers)}"
