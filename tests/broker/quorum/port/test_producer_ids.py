"""A broker's block of producer ids: no id is given twice, whoever waits for the next block and whoever cannot."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker.controllers import until

from headrace.broker.quorum.port.controller import ControllerError
from headrace.broker.quorum.port.producer_ids import ProducerIds
from headrace.controller.producer_ids import ProducerIdBlock
from headrace.env.posix_node import PosixNode
from headrace.wire.errors import ErrorCode

BLOCK = 3


class Blocks:
    """A controller that gives blocks of three, when it is told to."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.error: ControllerError | None = None

    @property
    def asked(self) -> int:
        return len(self.calls)

    async def ask(self, request: Any, asker: Any = None) -> Any:
        self.calls.append(request)
        first = BLOCK * self.asked
        await self.goes_on.wait()
        if self.error is not None:
            raise self.error
        return ProducerIdBlock(first, first + BLOCK)


@pytest.fixture
async def node() -> Any:
    node = PosixNode()
    yield node
    await node.close()


async def test_whoever_cannot_wait_comes_again(node: PosixNode) -> None:
    blocks = Blocks()
    ids = ProducerIds(blocks, 1, node.owner("ids"))
    assert ids.is_empty and ids.take() is None and blocks.calls == []
    assert [ids.take_or_fetch() for _ in range(3)] == [None] * 3
    await until(lambda: not ids.is_empty)
    assert blocks.asked == 1
    assert [ids.take_or_fetch() for _ in range(4)] == [3, 4, 5, None]
    await until(lambda: not ids.is_empty)
    assert ids.take() == 6


async def test_a_block_that_is_not_to_be_had_is_asked_for_again(node: PosixNode) -> None:
    blocks = Blocks()
    blocks.error = ControllerError(ErrorCode.NOT_CONTROLLER)
    ids = ProducerIds(blocks, 1, node.owner("ids"))
    assert ids.take_or_fetch() is None
    await asyncio.sleep(0.01)
    assert ids.is_empty
    with pytest.raises(ControllerError):
        await ids.fill()
    blocks.error = None
    assert ids.take_or_fetch() is None
    await until(lambda: not ids.is_empty)
    assert blocks.asked == 3 and ids.take() == 9


async def test_several_that_wait_share_a_block(node: PosixNode) -> None:
    blocks = Blocks()
    blocks.goes_on.clear()
    ids = ProducerIds(blocks, 1, node.owner("ids"))
    waiting = [asyncio.ensure_future(ids.take_from_next_block()) for _ in range(2)]
    await asyncio.sleep(0)
    assert ids.take_or_fetch() is None
    blocks.goes_on.set()
    taken = await asyncio.gather(*waiting)
    assert len({*taken, ids.take()}) == 3
