"""A Metadata answer of many partitions: it is made in pieces, of one image, and says what a short one says."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.broker.net.context import RequestContext
from headrace.broker.requests.apis import k03_metadata
from headrace.metadata.image import Broker, ClusterImage, Endpoint, Partition, Topic, TopicsImage
from headrace.security.authorizer import OpenAuthorizer
from headrace.wire.frame import encode_response_parts
from headrace.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

VERSION = 12


class LostLeaders:
    """One broker is lost, until `found`."""

    def __init__(self, leader: int | None = None) -> None:
        self.leader = leader
        self.recent: dict[int, int] = {}
        self.found: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.asked: frozenset[int] | None = None

    def __bool__(self) -> bool:
        return self.leader is not None

    def among(self, leaders: Any) -> frozenset[int]:
        return frozenset({self.leader} & set(leaders))  # type: ignore[arg-type]

    def known(self, leaders: frozenset[int]) -> asyncio.Future[None]:
        self.asked = leaders
        return self.found


def image_of(topics: int, partitions: int, leader: int = 1) -> ClusterImage:
    made = [
        Topic(
            f"t{number:03}",
            number.to_bytes(16, "big"),
            tuple([Partition(i, (1, 2), (bytes(16),) * 2, (1, 2), leader, 0, 0) for i in range(partitions)]),
        )
        for number in range(1, topics + 1)
    ]
    brokers = {
        i: Broker(i, 1, bytes(16), (Endpoint("PLAINTEXT", "h", 9092, 0),), (), None, False, False, ()) for i in (1, 2)
    }
    by_id, by_name = {topic.id: topic for topic in made}, {topic.name: topic for topic in made}
    return ClusterImage(brokers=brokers, topics=TopicsImage(by_id, by_name))


async def ready() -> None:
    """There is room."""


def broker_of(image: ClusterImage, lost: LostLeaders | None = None) -> Any:
    return SimpleNamespace(
        image=image,
        cluster_id="c",
        node_id=1,
        config=SimpleNamespace(auto_create_topics_enable=False),
        long_answers=SimpleNamespace(turn=asyncio.Lock(), room=ready),
        request_errors=SimpleNamespace(look_at=lambda *_: None),
        replicas=SimpleNamespace(lost_leaders=lost or LostLeaders()),
    )


def ask(broker: Any, names: list[str] | None = None) -> Any:
    wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    context = RequestContext(OpenAuthorizer(), api_key=3, api_version=VERSION)
    return k03_metadata.handle(broker, MetadataRequest(topics=wanted), context)


def decoded(answer: Any) -> MetadataResponse:
    body = b"".join(bytes(part) for part in encode_response_parts(3, VERSION, 1, answer))  # type: ignore[arg-type]
    return MetadataResponse.decode(memoryview(body), VERSION, 9)


def turns(answer: Coroutine[Any, Any, Any], most: int = 100) -> tuple[int, MetadataResponse]:
    """How many turns of the loop an answer takes, and what it says."""
    for turn in range(most):
        try:
            answer.send(None)
        except StopIteration as done:
            return turn, decoded(done.value)
    raise AssertionError("the answer takes too many turns")


async def test_a_long_answer_is_made_in_pieces_of_whole_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k03_metadata, "PIECE_PARTITIONS", 100)
    image = image_of(20, 30)
    taken, answer = turns(ask(broker_of(image)))
    assert taken == 7, "three topics in a turn: 90 partitions, and the topics themselves"
    monkeypatch.setattr(k03_metadata, "PIECE_PARTITIONS", 600)
    assert answer == ask(broker_of(image)), "the same as at once"
    assert len(answer.topics) == 20


async def test_topics_that_are_named_are_answered_in_pieces_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k03_metadata, "PIECE_PARTITIONS", 100)
    names = [*(f"t{number:03}" for number in range(4, 0, -1)), *(f"gone{number}" for number in range(50)), "t001"]
    broker = broker_of(image_of(20, 30))
    taken, answer = turns(ask(broker, names))
    assert taken == 5, "one looks for names that come twice"
    assert [topic.name for topic in answer.topics] == names[:-1]
    assert isinstance(ask(broker, ["t001", "t002"]), MetadataResponse)


async def test_a_long_answer_is_of_one_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k03_metadata, "PIECE_PARTITIONS", 100)
    broker = broker_of(image_of(20, 30, leader=1))
    answer = ask(broker)
    answer.send(None)
    broker.image = image_of(20, 30, leader=2)
    _, found = turns(answer)
    assert {partition.leader_id for topic in found.topics for partition in topic.partitions} == {1}


async def test_one_long_answer_is_made_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k03_metadata, "PIECE_PARTITIONS", 100)
    broker = broker_of(image_of(20, 30))
    ended: list[int] = []

    async def one(number: int) -> None:
        await ask(broker)
        ended.append(number)

    both = [asyncio.ensure_future(one(number)) for number in range(2)]
    for _ in range(9):
        await asyncio.sleep(0)
    assert ended == [0], "the second one has waited for the first"
    await asyncio.gather(*both)
    assert ended == [0, 1]


async def test_a_short_answer_waits_for_the_successor_of_a_leader_that_was_lost() -> None:
    lost = LostLeaders(1)
    answer = asyncio.ensure_future(ask(broker_of(image_of(2, 3, leader=1), lost)))
    await asyncio.sleep(0)
    assert lost.asked == frozenset({1}) and not answer.done()
    lost.found.set_result(None)
    assert len((await answer).topics) == 2
    assert isinstance(ask(broker_of(image_of(2, 3, leader=2), LostLeaders(1))), MetadataResponse)


async def test_a_long_answer_waits_for_the_successor_of_a_leader_that_was_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(k03_metadata, "PIECE_PARTITIONS", 100)
    lost = LostLeaders(1)
    broker = broker_of(image_of(20, 30, leader=1), lost)
    answer = asyncio.ensure_future(ask(broker))
    for _ in range(50):
        await asyncio.sleep(0)
    assert lost.asked == frozenset({1}) and not answer.done()
    broker.image = image_of(20, 30, leader=2)
    lost.found.set_result(None)
    found = decoded(await answer)
    assert {partition.leader_id for topic in found.topics for partition in topic.partitions} == {2}
