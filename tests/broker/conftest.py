"""One broker for the tests of a module, topics of their own for each, and what a test enters."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from broker.raw import Raw, create_topic

from headrace.testing.running import TestBroker
from headrace.testing.running import broker as running_broker

_numbers = itertools.count()


@pytest.fixture(scope="module")
def served() -> Iterator[TestBroker]:
    with running_broker() as running:
        yield running


@pytest.fixture
def raw(served: TestBroker) -> Iterator[Raw]:
    with Raw(served.port) as connection:
        yield connection


@pytest.fixture
def topic(served: TestBroker) -> Callable[..., str]:
    """Makes a topic that no other test has."""

    def make(partitions: int = 1, **configs: str) -> str:
        name = f"topic-{next(_numbers)}"
        create_topic(served.port, name, partitions, **configs)
        return name

    return make


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Whatever a test enters here is left when it ends."""
    with ExitStack() as stack:
        yield stack
