"""The same tests against both brokers: ours in this process, and Apache Kafka beside it (marked `jvm`).

The fixtures are tests/conftest.py's, so that all files share the brokers; `topic` gives every test a name of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from .applied import wait_until_metadata_is_applied
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
    peer = KafkaPeer(settings={"offsets.topic.num.partitions": "1"})
    with shared("the Apache Kafka of tests against either broker", peer) as kafka:
        yield kafka.bootstrap


@pytest.fixture(scope="session", params=BROKERS)
def either_name(request: pytest.FixtureRequest) -> str:
    """Which broker a test runs against."""
    return str(request.param)


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest, either_name: str) -> str:
    """A broker's address. The broker stays when a test asks for the other one."""
    return str(request.getfixturevalue(f"either_{either_name}"))


@pytest.fixture(scope="session")
def metadata_applied(either_name: str, bootstrap: str) -> Callable[[], None]:
    """Waits until the broker describes what was changed. Ours does so with its answer."""
    if either_name == "kafka":
        return lambda: wait_until_metadata_is_applied(bootstrap)
    return lambda: None


@pytest.fixture
def topic() -> str:
    """A topic's name that no other test uses; nothing of it exists yet. Fit for a group as well."""
    return f"either-{next(_numbers)}"
