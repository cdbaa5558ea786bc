"""Groups that change between the classic and the consumer protocol while they have members: see `peers.rolling`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from peers.headrace import HeadracePeer
from peers.rolling import ASSIGNORS, SETTINGS, JavaMember, roll

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[HeadracePeer]:
    with HeadracePeer(settings=SETTINGS) as running:
        yield running


def test_up_and_back_with_an_eager_protocol(broker: HeadracePeer) -> None:
    roll(broker.bootstrap, "eager", ["classic", "consumer", "classic"], "range")


@pytest.mark.soak
@pytest.mark.parametrize("strategy", ["range,roundrobin", "cooperative-sticky"])
def test_up_and_back_again_and_again(broker: HeadracePeer, strategy: str) -> None:
    roll(broker.bootstrap, f"again-{strategy.replace(',', '-')}", ["classic", *["consumer", "classic"] * 5], strategy)


@pytest.mark.jvm
@pytest.mark.soak
@pytest.mark.parametrize("strategy", list(ASSIGNORS))
def test_up_and_back_in_java(broker: HeadracePeer, strategy: str) -> None:
    roll(broker.bootstrap, f"java-{strategy}", ["classic", "consumer", "classic", "consumer"], strategy, JavaMember)
