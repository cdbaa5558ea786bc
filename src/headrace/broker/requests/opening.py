"""Checks batches of clients that take long to decompress (or compress) on a worker, within the memory for requests.

One batch at a time, in order of arrival: a few KB may decompress to as many MB, so a client that sends such batches
takes one thread and the memory of one batch, however many connections it has. The codecs and the check of the records
release the interpreter for the event loop meanwhile. A batch that may be a decompression bomb is checked in the helper
process, which leaves the processor to the event loop as well.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.broker.telemetry.pace import PacedLines
from headrace.env.node import settle
from headrace.env.workers import HelperDied
from headrace.log.validate import Checked, Invalid, Opening, check_client_batch, check_in_helper
from headrace.wire.batch import BATCH_OVERHEAD, read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.records import CorruptBatch, opened_size

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Awaitable, Callable

    from headrace.broker.net.budget import Budget
    from headrace.broker.telemetry.metrics import Registry
    from headrace.env import Node
    from headrace.log.log import Log

    Check = Callable[[Log, bytes, int, int], Awaitable[Checked | None]]
    """(log, batch, now in ms, the largest body to decompress) to the result; None if the body is larger."""

BOMB_BYTES: Final = 1024 * 1024
BOMB_RATIO: Final = 32
"""A body that decompresses to more than BOMB_BYTES, and to more than BOMB_RATIO times its size, goes to the helper
process: clients' records seldom compress that well. The size in a body is not enough: for lz4 it is a bound."""


class Openings:
    """The batches of one broker that are checked on a worker."""

    def __init__(self, node: Node, budget: Budget, metrics: Registry) -> None:
        """`budget` is the memory for requests."""
        self._node = node
        self._budget = budget
        self._busy = False
        self._waiting: deque[Future[None]] = deque()  # at most one per connection
        self._count = metrics.counter("produce.batches_opened_aside")
        self._bombs = metrics.counter("produce.batches_opened_in_helper")
        self._lines = PacedLines(node.logger("requests"), node.clock.monotonic)

    async def check(self, log: Log, data: bytes, now_ms: int) -> Checked:
        """Returns the result of `check_client_batch`, however long it takes."""
        await self._turn()
        try:
            return await self._check(log, data, now_ms)
        finally:
            self._pass_on()

    async def _check(self, log: Log, data: bytes, now_ms: int) -> Checked:
        self._count.value += 1
        limit = log.state.config.max_decompressed_bytes
        size = min(await self._node.workers.run(lambda: _size(data, limit)), limit)
        few = max(BOMB_BYTES, BOMB_RATIO * len(data))
        for room in sorted({min(size, few), size, limit}):  # a body may be smaller or larger than its header's size
            check = self._on_worker if room <= few else self._in_helper
            checked = await self._within(room, check, log, data, now_ms)
            if checked is not None:
                return checked
        raise AssertionError("a batch that opens to more than its topic allows is refused")

    async def _within(self, size: int, check: Check, log: Log, data: bytes, now_ms: int) -> Checked | None:
        """Checks a batch with memory for `size` bytes; returns None if the body is larger."""
        await self._take(size)
        try:
            return await check(log, data, now_ms, size)
        finally:
            self._budget.give(size)
            self._budget.settle(self)

    async def _on_worker(self, log: Log, data: bytes, now_ms: int, size: int) -> Checked | None:
        config, name = log.state.config, log.state.name
        return await self._node.workers.run(
            lambda: check_client_batch(data, config, name, now_ms, Opening(size, True, self._node.scratch(size)))
        )

    async def _in_helper(self, log: Log, data: bytes, now_ms: int, size: int) -> Checked | None:
        self._bombs.value += 1
        config, name, helper = log.state.config, log.state.name, self._node.helper
        try:
            return await self._node.workers.run(lambda: helper.call(check_in_helper, data, config, name, now_ms, size))
        except HelperDied as error:
            opened = {"partition": name, "bytes": len(data), "opens_to": size}
            self._lines.warning(name, "batch refused", **opened, reason=str(error))
            return Invalid(ErrorCode.UNKNOWN_SERVER_ERROR, f"A batch for {name} could not be opened: {error}")
        except OSError as error:
            self._lines.warning(name, "no helper process", reason=str(error))
            return await self._on_worker(log, data, now_ms, size)

    async def _turn(self) -> None:
        """Returns when no other batch is being checked."""
        if not self._busy:
            self._busy = True
            return
        turn = self._node.future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:  # the broker stops
            if turn.done() and not turn.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False

    async def _take(self, size: int) -> None:
        """Returns when the budget has memory for a body of that size. One body at a time may exceed the limit."""
        budget = self._budget
        while not budget.take(size) and not budget.overdraw(size, self):
            woken = self._node.future()
            budget.wait(partial(settle, woken))
            await woken


def _size(data: bytes, limit: int) -> int:
    """Returns the size in bytes of a batch's decompressed body, from its header."""
    if len(data) < BATCH_OVERHEAD:
        return 0
    try:
        return opened_size(read_header(data).compression, memoryview(data)[BATCH_OVERHEAD:], limit)
    except CorruptBatch:
        return 0  # the check refuses it
