"""What a node does in pieces, so that others have their turn in between: decisions, and what it reads of the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from broker.controllers import started
from broker.quorum.test_driver import SlowSync, config_of, names_of, topic, write

from headrace.broker.quorum.driver import QuorumDriver
from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.quorum.uncommitted import PIECES_AHEAD_MAX, SETTLED_RECORDS
from headrace.env.posix_node import PosixNode
from headrace.machine import Decision
from headrace.metadata import replay as replay_module
from headrace.metadata.framing import decode_record
from headrace.metadata.image import ClusterImage
from headrace.metadata.replay import Replay


@pytest.fixture
async def quorum(node: PosixNode, tmp_path: Path) -> AsyncIterator[QuorumDriver]:
    quorum, _ = await started(node, config_of(tmp_path / "data"))
    yield quorum
    await quorum.close()


@pytest.fixture
async def slow(quorum: QuorumDriver, monkeypatch: pytest.MonkeyPatch) -> SlowSync:
    return SlowSync(quorum, monkeypatch)


async def test_others_are_answered_between_the_pieces_of_a_decision(quorum: QuorumDriver) -> None:
    seen: list[int] = []
    published: list[int] = []
    quorum.on_image(lambda _old, new, _delta: published.append(len(new.topics)))

    def piece(number: int, image: ClusterImage) -> Decision[str]:
        seen.append(len(image.topics))
        rest = None if number == 3 else partial(piece, number + 1)
        return Decision(f"after {number}", topic(f"p{number}", number), rest)

    whole = quorum.submit(partial(piece, 1))
    other = quorum.submit(lambda image: Decision(len(image.topics), topic("other", 9)))
    assert await other == 1
    assert not whole.done()
    assert await whole == "after 3"
    assert seen == [0, 2, 3], "each piece is decided on what was decided before it"
    assert published == [1, 2, 3, 4], "each piece is published for itself"


async def test_a_decision_ends_between_its_pieces_where_the_node_stops(node: PosixNode, tmp_path: Path) -> None:
    quorum, _ = await started(node, config_of(tmp_path / "data"))
    pieces: list[int] = []

    def piece(image: ClusterImage) -> Decision[None]:
        pieces.append(len(image.topics))
        return Decision(None, (), piece)

    asked = quorum.submit(piece)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not asked.done()
    assert len(pieces) > 1, "a piece without records waits for nothing but its turn"
    await quorum.close()
    with pytest.raises(ControllerError, match="not the active controller"):
        await asked


async def test_pieces_of_many_decisions_have_a_turn_of_the_loop_each(quorum: QuorumDriver) -> None:
    pieces: list[int] = []

    def piece(number: int, left: int, _image: ClusterImage) -> Decision[int]:
        pieces.append(number)
        return Decision(number, (), partial(piece, number, left - 1) if left else None)

    asked = [quorum.submit(partial(piece, number, 3)) for number in range(10)]
    in_a_turn: list[int] = []
    while not all(each.done() for each in asked):
        before = len(pieces)
        await asyncio.sleep(0)
        in_a_turn.append(len(pieces) - before)
    assert [await each for each in asked] == list(range(10))
    assert max(in_a_turn) == 1
    assert pieces == [*range(10)] * 4, "each comes forward in its turn"


async def test_pieces_go_on_before_they_are_committed_and_some_wait(quorum: QuorumDriver, slow: SlowSync) -> None:
    last = PIECES_AHEAD_MAX + 3
    seen: list[int] = []

    def piece(number: int, image: ClusterImage) -> Decision[str]:
        seen.append(len(image.topics))
        return Decision(
            f"after {number}", topic(f"p{number}", number), partial(piece, number + 1) if number < last else None
        )

    whole = quorum.submit(partial(piece, 1))
    await slow.begins()
    for _ in range(3 * last):
        await asyncio.sleep(0)
    assert seen == [*range(PIECES_AHEAD_MAX)], "each is made on what the one before leaves"
    other = quorum.submit(lambda _: Decision("other", topic("other", 99)))
    assert names_of(quorum.image) == [] and not whole.done()
    slow.let(9)
    assert await other == "other", "it does not wait for the rest of the pieces"
    assert await whole == f"after {last}"
    assert len(quorum.image.topics) == last + 1


async def test_pieces_ahead_end_where_the_lead_is_lost(quorum: QuorumDriver, slow: SlowSync) -> None:
    pieces: list[int] = []

    def piece(image: ClusterImage) -> Decision[None]:
        pieces.append(len(image.topics))
        return Decision(None, topic(f"p{len(pieces)}", len(pieces)), piece)

    asked = quorum.submit(piece)
    await slow.begins()
    quorum.resign()
    decided = len(pieces)
    with pytest.raises(ControllerError, match="not the active controller"):
        await asked
    for _ in range(3 * PIECES_AHEAD_MAX):
        await asyncio.sleep(0)
    assert len(pieces) == decided
    slow.let(99)


def large(number: int, _: ClusterImage) -> Decision[int]:
    """One that is published in a turn of its own."""
    return Decision(number, topic(f"t{number}", number, SETTLED_RECORDS))


async def test_what_is_committed_at_once_is_published_in_several_turns(quorum: QuorumDriver, slow: SlowSync) -> None:
    first = quorum.submit(lambda _: Decision(None, topic("first", 99)))
    await slow.begins()
    names = [f"t{number}" for number in range(5)]
    asked = [quorum.submit(partial(large, at)) for at in range(5)]
    slow.let(1)
    await first
    slow.let(9)
    in_a_turn: list[int] = []
    while not asked[-1].done():
        before = len(quorum.image.topics)
        await asyncio.sleep(0)
        in_a_turn.append(len(quorum.image.topics) - before)
        assert [each.done() for each in asked] == [name in names_of(quorum.image) for name in names]
    assert max(in_a_turn) == 1
    assert sum(in_a_turn) == 5


async def test_a_lead_that_is_lost_before_all_is_published_leaves_the_rest_to_the_log(
    quorum: QuorumDriver, slow: SlowSync
) -> None:
    first = quorum.submit(lambda _: Decision(None, topic("first", 99)))
    await slow.begins()
    asked = [quorum.submit(partial(large, at)) for at in range(3)]
    resigned: list[list[str]] = []
    whole: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def resign() -> None:
        resigned.append(names_of(quorum.image))
        quorum.resign()

    def published(_old: ClusterImage, new: ClusterImage, _delta: object) -> None:
        if "t0" in names_of(new) and not resigned:
            asyncio.get_running_loop().call_soon(resign)
        if "t2" in names_of(new):
            whole.set_result(quorum.raft.leads)

    quorum.on_image(published)
    slow.let(99)
    await first
    assert await asked[0] == 0
    for each in asked[1:]:
        with pytest.raises(ControllerError, match="not the active controller"):
            await each
    assert resigned == [["first", "t0"]]
    assert not await whole, "it waits for no election"
    assert names_of(quorum.image) == ["first", "t0", "t1", "t2"]


async def test_what_was_decided_elsewhere_is_taken_in_a_few_hundred_records_at_a_time(
    quorum: QuorumDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    records: list[bytes] = []

    def decoded(value: bytes) -> Any:
        records.append(value)
        return decode_record(value)

    monkeypatch.setattr(replay_module, "decode_record", decoded)
    begin = quorum.image
    for number in range(1, 9):
        await write(quorum, topic(f"t{number}", number, 99))
    await write(quorum, topic("large", 9, 999))
    image, replay, end = begin, Replay(begin), quorum.image.offset + 1
    sizes, turns = [], 0
    while image.offset + 1 < end:
        before = len(records)
        quorum.log.apply(replay, image.offset + 1, end, 1 << 20, 256)
        turns += 1
        assert len(records) - before <= 256
        if not replay.is_inside_batch:
            following = replay.finish()
            sizes.append(following.offset - image.offset)
            image, replay = following, replay.next(following)
    assert sizes == [200, 200, 200, 200, 1000], "whole batches, and at least one"
    assert turns == 4 + 4, "the records of a large batch are taken in little by little"
    assert image.topics == quorum.image.topics
