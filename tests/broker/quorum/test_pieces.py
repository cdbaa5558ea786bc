"""What a node does in pieces, so that others have their turn in between: decisions, and what it reads of the log."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from broker.controllers import started
from broker.quorum.test_driver import config_of, topic, write

from headrace.broker.quorum.controller import ControllerError
from headrace.env.posix_node import PosixNode
from headrace.machine import Decision
from headrace.metadata import replay as replay_module
from headrace.metadata.framing import decode_record
from headrace.metadata.image import ClusterImage
from headrace.metadata.replay import Replay


async def test_others_are_answered_between_the_pieces_of_a_decision(node: PosixNode, tmp_path: Path) -> None:
    quorum, _ = await started(node, config_of(tmp_path / "data"))
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
    await quorum.close()


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


async def test_pieces_of_many_decisions_have_a_turn_of_the_loop_each(node: PosixNode, tmp_path: Path) -> None:
    quorum, _ = await started(node, config_of(tmp_path / "data"))
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
    await quorum.close()


async def test_what_was_decided_elsewhere_is_taken_in_a_few_hundred_records_at_a_time(
    node: PosixNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum, _ = await started(node, config_of(tmp_path / "data"))
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
        if not replay.is_amid_batch:
            following = replay.finish()
            sizes.append(following.offset - image.offset)
            image, replay = following, replay.next(following)
    assert sizes == [200, 200, 200, 200, 1000], "whole batches, and at least one"
    assert turns == 4 + 4, "the records of a large batch are taken in little by little"
    assert image.topics == quorum.image.topics
    await quorum.close()
