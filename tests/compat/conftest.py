"""Brokers that the compatibility tests share: one of ours and one of Apache Kafka's, a session long."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from peers.headrace import HeadracePeer
from peers.kafka import KafkaPeer
from peers.shared import shared


@pytest.fixture(scope="session")
def ours(request: pytest.FixtureRequest) -> Iterator[HeadracePeer | KafkaPeer]:
    """Our broker; or, with `--against kafka`, Apache Kafka, to see that a test asks for what it does."""
    against_kafka = request.config.getoption("--against") == "kafka"
    peer = KafkaPeer() if against_kafka else HeadracePeer()
    with shared("the broker under test", peer) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaPeer]:
    # a controller that waits for company of a record makes every change of metadata wait
    peer = KafkaPeer(settings={"controller.quorum.append.linger.ms": "0"})
    with shared("the Apache Kafka of the comparisons", peer) as broker:
        yield broker


_numbers = itertools.count(1)


@pytest.fixture
def fresh() -> Callable[[str], str]:
    """Names that no other test of the session uses."""
    return lambda stem: f"{stem}-{next(_numbers)}"
