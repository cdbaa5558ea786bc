"""Whoever asks for a leader that was just lost hears of the next one, and waits no longer than a second for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from broker.controllers import until

from headrace.broker.partitions import lost_leaders
from headrace.broker.partitions.lost_leaders import LostLeaders
from headrace.env.posix_node import PosixNode
from headrace.metadata.image import Broker, ClusterImage

TURN_S = 0.02


class Seen:
    """Brokers 1 to 3, as one of them sees them."""

    def __init__(self, node: PosixNode) -> None:
        brokers = {id_: Broker(id_, 40 + id_, bytes(16), (), (), None, False, False, ()) for id_ in (1, 2, 3)}
        self.image = ClusterImage(brokers=brokers)
        self.lost = LostLeaders(node, node.owner("lost"), lambda: self.image)

    def becomes(self, broker: int, **changes: object) -> None:
        changed = replace(self.image.brokers[broker], **changes)  # type: ignore[arg-type]
        self.image = ClusterImage(brokers={**self.image.brokers, broker: changed})
        self.lost.brokers_changed()


@pytest_asyncio.fixture
async def seen() -> AsyncIterator[Seen]:
    node = PosixNode()
    yield Seen(node)
    await node.close()


async def test_a_leader_is_lost_until_the_metadata_say_more(seen: Seen) -> None:
    assert not seen.lost
    seen.lost.lost(1)
    assert seen.lost and seen.lost.among([1, 2, 2]) == {1}
    told = seen.lost.known(frozenset({1}))
    seen.becomes(2, fenced=True)
    await asyncio.sleep(TURN_S)
    assert not told.done()
    seen.becomes(1, fenced=True)
    await until(told.done)
    assert not seen.lost


@pytest.mark.parametrize("changes", [{"epoch": 90}, {"fenced": True}])
async def test_what_the_metadata_know_already_is_not_waited_for(seen: Seen, changes: dict[str, object]) -> None:
    seen.lost.lost(1)
    seen.becomes(1, **changes)
    assert not seen.lost
    if "fenced" in changes:
        seen.lost.lost(1)
        assert not seen.lost


async def test_a_leader_that_answers_again_is_not_lost(seen: Seen) -> None:
    seen.lost.lost(1)
    seen.lost.lost(2)
    told = seen.lost.known(frozenset({1, 2}))
    seen.lost.reached(1)
    await asyncio.sleep(TURN_S)
    assert not told.done()
    seen.lost.reached(2)
    await until(told.done)


async def test_it_is_waited_for_a_moment_alone(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_leaders, "HOLD_S", 0.1)
    seen.lost.lost(1)
    await until(seen.lost.known(frozenset({1})).done)
    assert not seen.lost


async def test_a_loss_of_before_does_not_end_the_wait_for_another(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_leaders, "HOLD_S", 0.1)
    seen.lost.lost(1)
    seen.becomes(1, epoch=90)
    monkeypatch.setattr(lost_leaders, "HOLD_S", 60.0)
    seen.lost.lost(1)
    await asyncio.sleep(0.2)
    assert seen.lost


async def test_a_lost_broker_is_named_for_a_while(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_leaders, "NAMED_S", 0.1)
    seen.lost.lost(1)
    seen.becomes(1, fenced=True)
    assert not seen.lost
    assert list(seen.lost.recent) == [1]
    await until(lambda: not seen.lost.recent)


async def test_whoever_is_gone_is_not_told(seen: Seen) -> None:
    seen.lost.lost(1)
    told = seen.lost.known(frozenset({1}))
    told.cancel()
    seen.lost.reached(1)
    assert told.cancelled()


async def test_a_broker_that_stops_lets_nobody_wait(seen: Seen) -> None:
    seen.lost.lost(1)
    told = seen.lost.known(frozenset({1}))
    seen.lost.stop()
    await until(told.done)
    seen.lost.lost(2)
    assert not seen.lost
